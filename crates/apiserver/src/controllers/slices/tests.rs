use super::*;

fn service() -> Value {
    json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "web", "namespace": "a", "uid": "s", "labels": {"tier": "1"}},
        "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.9", "selector": {"app": "web"},
            "ipFamilies": ["IPv4"],
            "ports": [{"name": "http", "port": 80, "targetPort": "web", "protocol": "TCP"}]}})
}

fn pod(name: &str, address: &str, port: i64) -> Value {
    json!({"metadata": {"name": name, "namespace": "a", "uid": name, "labels": {"app": "web"}},
        "spec": {"nodeName": "n1", "containers": [
            {"name": "c", "ports": [{"name": "web", "containerPort": port, "protocol": "TCP"}]}]},
        "status": {"phase": "Running", "podIPs": [{"ip": address}],
            "conditions": [{"type": "Ready", "status": "True"}]}})
}

fn node() -> Arc<Stored> {
    let value = json!({"metadata": {"name": "n1", "labels": {ZONE: "east"}}});
    let key = crate::store::Key::new("nodes", "", "n1");
    Arc::new(Stored { key, revision: 1, json: value.to_string().into(), value })
}

fn due(service: &Value, pods: &[Value], slices: &[Value]) -> Vec<Step> {
    decide(service, pods, slices, |name| (name == "n1").then(node)).steps
}

/// The slices as they are after the steps are taken, named by their order.
fn settled(service: &Value, pods: &[Value], slices: &[Value]) -> Vec<Value> {
    let mut after = slices.to_vec();
    for step in due(service, pods, slices) {
        match step {
            Step::Create(_, mut slice) => {
                object::set_meta(&mut slice, "name", format!("web-{}", after.len()));
                after.push(slice);
            }
            Step::Update(key, fresh) => {
                let slot = after.iter_mut().find(|slice| object::name(slice) == key.name);
                *slot.unwrap() = fresh;
            }
            Step::Delete(key) => after.retain(|slice| object::name(slice) != key.name),
            Step::Status(..) => panic!("a slice has no status"),
        }
    }
    assert_eq!(due(service, pods, &after), [], "a second look finds more to do");
    after
}

fn addresses(slice: &Value) -> Vec<&str> {
    let endpoints = slice["endpoints"].as_array().unwrap().iter();
    endpoints.map(|endpoint| endpoint["addresses"][0].as_str().unwrap()).collect()
}

#[test]
fn a_ready_pod_is_an_endpoint_with_node_zone_and_the_number_of_its_named_port() {
    let slices = settled(&service(), &[pod("p", "10.0.0.5", 8080)], &[]);
    let expected = json!([{"addresses": ["10.0.0.5"], "nodeName": "n1", "zone": "east",
        "conditions": {"ready": true, "serving": true, "terminating": false},
        "targetRef": {"kind": "Pod", "namespace": "a", "name": "p", "uid": "p"}}]);
    assert_eq!(slices[0]["endpoints"], expected);
    let ports = json!([{"name": "http", "port": 8080, "protocol": "TCP"}]);
    assert_eq!((&slices[0]["ports"], &slices[0]["addressType"]), (&ports, &"IPv4".into()));
    let labels = json!({"tier": "1", SERVICE_NAME: "web", MANAGED_BY: MANAGER});
    assert_eq!(slices[0]["metadata"]["labels"], labels);
    assert_eq!(slices[0]["metadata"]["ownerReferences"][0]["uid"], "s");
}

#[test]
fn pods_without_address_ended_or_of_other_labels_are_no_endpoints() {
    let (mut waiting, mut ended, mut other) =
        (pod("w", "10.0.0.1", 80), pod("e", "10.0.0.2", 80), pod("o", "10.0.0.3", 80));
    waiting["status"]["podIPs"] = json!([]);
    ended["status"]["phase"] = "Succeeded".into();
    other["metadata"]["labels"]["app"] = "db".into();
    let slices = settled(&service(), &[waiting, ended, other, pod("p", "10.0.0.4", 80)], &[]);
    assert_eq!((slices.len(), addresses(&slices[0])), (1, vec!["10.0.0.4"]));
}

#[test]
fn what_is_not_ready_or_ends_says_so_unless_all_addresses_are_published() {
    let (mut unready, mut ending) = (pod("u", "10.0.0.1", 80), pod("x", "10.0.0.2", 80));
    unready["status"]["conditions"][0]["status"] = "False".into();
    object::set_meta(&mut ending, "deletionTimestamp", "t");
    let pods = [unready, ending];
    let conditions = |service: &Value| -> Vec<Value> {
        let slices = settled(service, &pods, &[]);
        slices[0]["endpoints"].as_array().unwrap().iter().map(|e| e["conditions"].clone()).collect()
    };
    let told = |ready: [bool; 2]| {
        [
            json!({"ready": ready[0], "serving": false, "terminating": false}),
            json!({"ready": ready[1], "serving": true, "terminating": true}),
        ]
    };
    assert_eq!(conditions(&service()), told([false, false]));
    let mut published = service();
    published["spec"]["publishNotReadyAddresses"] = true.into();
    assert_eq!(conditions(&published), told([true, true]));
}

#[test]
fn pods_with_another_number_for_a_named_port_are_in_a_slice_of_their_own() {
    let pods = [pod("a", "10.0.0.1", 80), pod("b", "10.0.0.2", 81)];
    let slices = settled(&service(), &pods, &[]);
    let ports: Vec<_> = slices.iter().map(|slice| slice["ports"][0]["port"].clone()).collect();
    assert_eq!(ports, [80, 81]);
}

#[test]
fn each_address_family_has_its_own_slice() {
    let mut service = service();
    service["spec"]["ipFamilies"] = json!(["IPv4", "IPv6"]);
    let mut both = pod("p", "10.0.0.1", 80);
    both["status"]["podIPs"] = json!([{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]);
    let slices = settled(&service, &[both], &[]);
    let kinds: Vec<_> = slices.iter().map(|s| (text(s, "addressType"), addresses(s))).collect();
    assert_eq!(kinds, [("IPv4", vec!["10.0.0.1"]), ("IPv6", vec!["fd00::1"])]);
}

#[test]
fn a_service_without_pods_has_one_empty_slice() {
    let empty = settled(&service(), &[], &[]);
    assert_eq!(
        (empty.len(), &empty[0]["endpoints"], &empty[0]["ports"]),
        (1, &json!([]), &json!([]))
    );
    let filled = settled(&service(), &[pod("p", "10.0.0.1", 80)], &empty);
    assert_eq!((filled.len(), addresses(&filled[0])), (1, vec!["10.0.0.1"]));
    let again = settled(&service(), &[], &filled);
    assert_eq!((again.len(), &again[0]["endpoints"]), (1, &json!([])));
}

#[test]
fn a_slice_holds_a_hundred_and_a_change_of_one_pod_touches_one_slice() {
    let mut pods: Vec<Value> =
        (0..150).map(|n| pod(&format!("p{n}"), &format!("10.0.0.{n}"), 80)).collect();
    let slices = settled(&service(), &pods, &[]);
    let sizes: Vec<_> = slices.iter().map(|slice| addresses(slice).len()).collect();
    assert_eq!(sizes, [100, 50]);
    pods[120]["status"]["conditions"][0]["status"] = "False".into();
    let steps = due(&service(), &pods, &slices);
    assert!(matches!(&steps[..], [Step::Update(key, _)] if key.name == "web-1"), "{steps:?}");
    pods.truncate(100);
    assert_eq!(settled(&service(), &pods, &slices).len(), 1);
}

#[test]
fn a_pod_with_a_host_name_below_the_service_keeps_it() {
    let mut named = pod("p", "10.0.0.1", 80);
    named["spec"]["hostname"] = "db-0".into();
    named["spec"]["subdomain"] = "other".into();
    assert!(
        settled(&service(), &[named.clone()], &[])[0]["endpoints"][0].get("hostname").is_none()
    );
    named["spec"]["subdomain"] = "web".into();
    assert_eq!(settled(&service(), &[named], &[])[0]["endpoints"][0]["hostname"], "db-0");
}

#[test]
fn a_headless_service_marks_its_slices_and_needs_no_ports() {
    let mut headless = service();
    headless["spec"]["clusterIP"] = "None".into();
    headless["spec"].as_object_mut().unwrap().remove("ports");
    let slices = settled(&headless, &[pod("p", "10.0.0.1", 80)], &[]);
    assert_eq!(slices[0]["metadata"]["labels"][HEADLESS], "");
    assert_eq!((&slices[0]["ports"], addresses(&slices[0])), (&json!([]), vec!["10.0.0.1"]));
}

#[test]
fn services_without_selector_and_slices_of_others_are_left_alone() {
    let mut foreign = settled(&service(), &[], &[]).remove(0);
    foreign["metadata"]["labels"].as_object_mut().unwrap().remove(MANAGED_BY);
    let after = settled(&service(), &[], std::slice::from_ref(&foreign));
    assert_eq!((after.len(), &after[0]), (2, &foreign));
    let mut bare = service();
    bare["spec"].as_object_mut().unwrap().remove("selector");
    assert_eq!(due(&bare, &[pod("p", "10.0.0.1", 80)], &after), []);
    let mut elsewhere = service();
    elsewhere["spec"]["type"] = "ExternalName".into();
    assert_eq!(due(&elsewhere, &[pod("p", "10.0.0.1", 80)], &[]), []);
}

#[test]
fn a_pod_on_a_node_that_does_not_exist_is_an_endpoint_only_where_all_are_published() {
    let mut lost = pod("p", "10.0.0.1", 80);
    lost["spec"]["nodeName"] = "n2".into();
    let lost = [lost];
    assert_eq!(addresses(&settled(&service(), &lost, &[])[0]), Vec::<&str>::new());
    let mut published = service();
    published["spec"]["publishNotReadyAddresses"] = true.into();
    assert_eq!(addresses(&settled(&published, &lost, &[])[0]), ["10.0.0.1"]);
}

#[test]
fn a_node_that_comes_goes_or_moves_to_another_zone_concerns_slices() {
    let (here, there) = (json!({"metadata": {"labels": {ZONE: "a"}}}), json!({"metadata": {}}));
    assert!(concerns(None, Some(&there)) && concerns(Some(&there), None));
    assert!(concerns(Some(&here), Some(&there)));
    assert!(!concerns(Some(&here), Some(&here)));
}
