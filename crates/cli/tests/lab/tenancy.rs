//! What tenants are promised of their networks and pods, each promise for itself, on one lab that
//! the tests share: every test has tenants of its own.

use serde_json::{Value, json};

use crate::documents::{pod, tenant, yaml};
use crate::fixture::{Lab, await_condition};
use crate::several_networks::server;
use crate::tenants::{address, field, namespace, network, said, vip};

/// A pod that runs wherever there is room.
fn anywhere(name: &str, labels: &Value, annotations: &Value) -> Value {
    let mut pod = pod(name, "node1", labels, annotations);
    pod["spec"].as_object_mut().unwrap().remove("nodeSelector");
    pod
}

fn plain(name: &str) -> Value {
    anywhere(name, &json!({}), &json!({}))
}

fn on(name: &str, network: &str) -> Value {
    anywhere(name, &json!({"atoll.dev/network": network}), &json!({}))
}

fn asking(name: &str, nics: &Value) -> Value {
    anywhere(name, &json!({}), &json!({"atoll.dev/nics": nics.to_string()}))
}

fn phase(lab: &Lab, network: &str, phase: &str) {
    field(lab, &["network", network], "{.status.phase}", |it| it == phase);
}

fn running(lab: &Lab, namespace: &str, pod: &str) {
    field(lab, &["pod", "-n", namespace, pod], "{.status.phase}", |it| it == "Running");
}

/// Why a network is ready or not.
const READY: &str = "{.status.conditions[?(@.type=='Ready')].reason}";

const STOCK: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - name: web
          image: none
          command: [atoll, toolbox, serve]
          ports: [{containerPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
";

#[test]
fn stock_manifests_run_unchanged_in_the_namespaces_network_else_in_the_tenants_default() {
    let lab = Lab::shared();
    let mut back = namespace("stock-back", "stock");
    back["metadata"]["labels"]["atoll.dev/network"] = json!("b");
    lab.apply(&(tenant("stock") + &yaml(&[back]))).good();
    for (home, range) in [("stock", "10.0."), ("stock-back", "10.1.")] {
        lab.apply_in(home, STOCK).good();
        lab.apply_in(home, &yaml(&[plain(&format!("{home}/client"))])).good();
        let rolled = ["rollout", "status", "deployment/web", "-n", home, "--timeout=90s"];
        lab.kubectl(&rolled).good();
        lab.wait_for_pods_of(home);
        let ips = ["get", "pods", "-n", home, "-o", "jsonpath={.items[*].status.podIP}"];
        let ips = lab.kubectl(&ips).good();
        let there = |ips: &str| ips.split(' ').filter(|ip| ip.starts_with(range)).count();
        assert_eq!(there(&ips), 3, "{home}: {ips}");
        let service = format!("{}:80", vip(&lab, home, "web"));
        let client = format!("{home}/client");
        await_condition(|| lab.connect(&client, "tcp", &service).ok).expect("the service leads");
    }
    let other = address(&lab, "stock-back", "client");
    lab.connect("stock/client", "tcp", &server(&other)).bad();
}

#[test]
fn no_pod_gets_into_a_network_of_another_tenant_by_naming_it() {
    let lab = Lab::shared();
    lab.apply(&(tenant("owner") + &tenant("guest"))).good();
    let extra = json!({"atoll.dev/extra-networks": "owner.b"});
    lab.apply(&yaml(&[
        on("owner/at-home", "b"),
        on("guest/named", "owner.b"),
        anywhere("guest/extra", &json!({}), &extra),
        on("guest/own", "b"),
    ]))
    .good();
    running(&lab, "owner", "at-home");
    running(&lab, "guest", "own");
    for pod in ["named", "extra"] {
        said(&lab, "guest", pod, "\"owner.b\"");
        let phase = ["get", "pod", "-n", "guest", pod, "-o", "jsonpath={.status.phase}"];
        assert_eq!(lab.kubectl(&phase).good(), "Pending", "{pod}");
    }
    let networks = ["get", "ports", "-n", "guest", "-o", "jsonpath={.items[*].spec.network}"];
    assert_eq!(lab.kubectl(&networks).good(), "guest.b", "its own network of that name");
    assert!(address(&lab, "guest", "own").starts_with("10.1."));
}

#[test]
fn flat_is_ready_with_no_other_field_vpc_with_its_ranges_and_another_type_waits_for_its_provider() {
    let lab = Lab::shared();
    let typed = |name: &str, more: Value| {
        let mut spec = json!({"tenant": "typed", "type": name});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        network(&format!("typed.{name}"), &spec)
    };
    let ranges = json!({"cidrs": ["10.3.0.0/16", "fd03::/64"], "vpcID": "three"});
    lab.apply(
        &(tenant("typed")
            + &yaml(&[typed("flat", json!({})), typed("vpc", ranges), typed("sdn", json!({}))])),
    )
    .good();
    phase(&lab, "typed.flat", "Active");
    phase(&lab, "typed.vpc", "Active");
    phase(&lab, "typed.sdn", "Pending");
    field(&lab, &["network", "typed.sdn"], READY, |it| it == "NoProvider");

    let registration = json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "NetworkType",
        "metadata": {"name": "sdn"}, "spec": {"provider": "sdn.example/provider"}});
    lab.apply(&registration.to_string()).good();
    let provided = "{.status.conditions[?(@.type=='Provided')].status}";
    field(&lab, &["network", "typed.sdn"], provided, |it| it == "True");
    let write = |status: Value| {
        let status = json!({"status": status}).to_string();
        let patch = ["--type=merge", "-p", &status, "--subresource=status"];
        lab.kubectl(&[&["patch", "network", "typed.sdn"], &patch[..]].concat()).good();
    };
    write(json!({"phase": "Active", "cidrs": ["192.168.0.0/24"]}));
    phase(&lab, "typed.sdn", "Active");
    let networks = "{.status.networks}";
    field(&lab, &["networktype", "sdn"], networks, |it| it == "1");
    lab.kubectl(&["delete", "network", "typed.sdn", "--wait=false"]).good();
    phase(&lab, "typed.sdn", "Terminating");
    let released = json!({"type": "Released", "status": "True", "reason": "Gone", "message": "",
                          "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let standing = lab.kubectl(&["get", "network", "typed.sdn", "-o", "json"]).json();
    let mut conditions = standing["status"]["conditions"].as_array().unwrap().clone();
    conditions.push(released);
    write(json!({"conditions": conditions}));
    lab.kubectl(&["wait", "--for=delete", "network/typed.sdn", "--timeout=90s"]).good();
    lab.kubectl(&["delete", "networktype", "sdn", "--timeout=90s"]).good();
}

#[test]
fn a_pod_gets_the_subnet_and_address_that_it_asks_for_or_hears_which_it_cannot_have() {
    let lab = Lab::shared();
    let subnet = json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Subnet",
        "metadata": {"name": "asker.default.web"},
        "spec": {"network": "asker.default", "cidr": "10.0.9.0/24"}});
    let flat = network("asker.flat", &json!({"tenant": "asker", "type": "flat"}));
    lab.apply(&(tenant("asker") + &yaml(&[subnet, flat]))).good();
    let place = |ip: &str| json!([{"subnet": "web", "ip": ip, "name": "eth0"}]);
    lab.apply(&yaml(&[asking("asker/first", &place("10.0.9.7"))])).good();
    running(&lab, "asker", "first");
    assert_eq!(address(&lab, "asker", "first"), "10.0.9.7");
    let mut ignored = asking("asker/ignored", &place("10.0.9.8"));
    ignored["metadata"]["labels"] = json!({"atoll.dev/network": "flat"});
    lab.apply(&yaml(&[
        asking("asker/second", &place("10.0.9.7")),
        asking("asker/outside", &place("10.77.0.1")),
        asking("asker/reserved", &place("10.0.9.1")),
        asking("asker/nowhere", &json!([{"subnet": "db"}])),
        ignored,
    ]))
    .good();
    said(&lab, "asker", "second", "address 10.0.9.7 of network asker.default is in use by port");
    said(&lab, "asker", "outside", "address 10.77.0.1 is outside the ranges of network");
    said(&lab, "asker", "reserved", "address 10.0.9.1 is reserved in subnet asker.default.web");
    said(&lab, "asker", "nowhere", "network asker.default has no subnet db");
    said(&lab, "asker", "ignored", "flat");
    running(&lab, "asker", "ignored");
    assert!(!address(&lab, "asker", "ignored").starts_with("10.0.9."));
    let wide = lab.kubectl(&["get", "ports", "-A", "-o", "wide"]).good();
    let row = wide.lines().find(|line| line.contains("10.0.9.7")).unwrap();
    assert!(row.contains("first") && row.contains("asker.default.web"), "{row}");

    lab.kubectl(&["delete", "pod", "-n", "asker", "first"]).good();
    running(&lab, "asker", "second");
    assert_eq!(address(&lab, "asker", "second"), "10.0.9.7", "it waited for it");
}

#[test]
fn a_pod_gets_the_mac_and_the_name_of_its_interface_that_it_asks_for() {
    let lab = Lab::shared();
    let wanted = [("eth0", "0a:99:00:00:00:42"), ("front0", "0a:99:00:00:00:43")];
    let nics = json!([{"mac": wanted[0].1}, {"mac": wanted[1].1, "name": "front0"}]);
    lab.apply(&(tenant("named") + &yaml(&[asking("named/asks", &nics), plain("named/client")])))
        .good();
    lab.wait_for_pods_of("named");
    let network_status = r"{.metadata.annotations.k8s\.v1\.cni\.cncf\.io/network-status}";
    let told = field(&lab, &["pod", "-n", "named", "asks"], network_status, |it| !it.is_empty());
    let told: Value = serde_json::from_str(&told).unwrap();
    for (position, (name, mac)) in wanted.into_iter().enumerate() {
        let link = lab.exec("named/asks", &["ip", "-o", "link", "show", name]).good();
        assert!(link.contains(mac), "{link}");
        let told = &told[position];
        assert_eq!((&told["interface"], &told["mac"]), (&json!(name), &json!(mac)));
        lab.reach("named/client", "tcp", &server(told["ips"][0].as_str().unwrap())).good();
    }
    lab.exec("named/asks", &["ip", "link", "show", "net1"]).bad();
}

#[test]
fn a_subnet_gives_of_its_pools_and_neither_its_gateway_nor_what_is_excluded() {
    let lab = Lab::shared();
    let subnet = json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Subnet",
        "metadata": {"name": "pooled.default.web"},
        "spec": {"network": "pooled.default", "cidr": "10.0.9.0/28", "gateway": "10.0.9.14",
                 "excluded": ["10.0.9.3"], "pools": ["10.0.9.2-10.0.9.4", "10.0.9.13-10.0.9.14"]}});
    lab.apply(&(tenant("pooled") + &yaml(&[subnet]))).good();
    let counts = |wanted: &str| {
        let path = "{.status.used} {.status.free}";
        field(&lab, &["subnet", "pooled.default.web"], path, |it| it == wanted);
    };
    counts("0 3");
    let web = json!([{"subnet": "web"}]);
    let pods = [1, 2, 3].map(|number| asking(&format!("pooled/web-{number}"), &web));
    lab.apply(&yaml(&pods)).good();
    lab.wait_for_pods_of("pooled");
    let mut given = [1, 2, 3].map(|number| address(&lab, "pooled", &format!("web-{number}")));
    given.sort();
    assert_eq!(given, ["10.0.9.13", "10.0.9.2", "10.0.9.4"]);
    counts("3 0");
    lab.reach("pooled/web-1", "tcp", &server(&address(&lab, "pooled", "web-2"))).good();
    let place = |ip: &str| json!([{"subnet": "web", "ip": ip}]);
    lab.apply(&yaml(&[
        asking("pooled/excluded", &place("10.0.9.3")),
        asking("pooled/gateway", &place("10.0.9.14")),
        asking("pooled/late", &web),
    ]))
    .good();
    said(&lab, "pooled", "excluded", "address 10.0.9.3 is reserved in subnet");
    said(&lab, "pooled", "gateway", "address 10.0.9.14 is reserved in subnet");
    said(&lab, "pooled", "late", "no free address");
    let columns = lab.kubectl(&["get", "subnet", "pooled.default.web"]).good();
    assert!(columns.contains("SubnetExhausted"), "who lists subnets sees it: {columns}");
}

#[test]
fn a_node_that_does_not_acknowledge_a_network_is_named_until_it_does() {
    let lab = Lab::up(2);
    lab.apply(&tenant("slow")).good();
    phase(&lab, "slow.default", "Active");
    let programmed = |wanted: &[&str]| {
        let condition = "{.status.conditions[?(@.type=='Programmed')]";
        let path = format!(
            "{condition}.status}} {condition}.message}} {{.status.nodes.ready}}/{{.status.nodes.total}}"
        );
        field(&lab, &["network", "slow.default"], &path, |it| {
            wanted.iter().all(|word| it.contains(word))
        });
    };
    lab.signal_agent("node2", "-STOP");
    let (none, on) = (json!({}), |node: &str| format!("slow/on-{node}"));
    lab.apply(&yaml(&["node1", "node2"].map(|node| pod(&on(node), node, &none, &none)))).good();
    running(&lab, "slow", "on-node1");
    programmed(&["False", "not yet: node2", "1/2"]);
    lab.signal_agent("node2", "-CONT");
    running(&lab, "slow", "on-node2");
    programmed(&["True", "2 of 2 nodes", "2/2"]);
    lab.reach("slow/on-node1", "tcp", &server(&address(&lab, "slow", "on-node2"))).good();
}

#[test]
fn a_provider_that_never_answers_keeps_no_network_of_another_type_waiting() {
    let lab = Lab::shared();
    let registration = json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "NetworkType",
        "metadata": {"name": "hung"}, "spec": {"provider": "hung.example/provider"}});
    let hung = |number: u8| {
        network(&format!("patient.hung-{number}"), &json!({"tenant": "patient", "type": "hung"}))
    };
    let mut documents: Vec<Value> = (0..40).map(hung).collect();
    documents.push(registration);
    lab.apply(&(yaml(&documents) + &tenant("patient"))).good();
    lab.apply(&yaml(&[plain("patient/web"), on("patient/back", "b")])).good();
    lab.wait_for_pods_of("patient");
    phase(&lab, "patient.b", "Active");
    field(&lab, &["networktype", "hung"], "{.status.networks}", |it| it == "40");
    let of_type = |field: &str| {
        let path = format!("jsonpath={{.items[?(@.spec.type=='hung')].{field}}}");
        lab.kubectl(&["get", "networks", "-o", &path]).good()
    };
    let phases = of_type("status.phase");
    assert!(phases.split(' ').all(|phase| phase == "Pending"), "{phases}");
    assert_a_provider_that_is_gone_for_good_is_left_behind(&lab, &of_type("metadata.name"));
}

/// An administrator who takes the type away from a provider that will not come back.
fn assert_a_provider_that_is_gone_for_good_is_left_behind(lab: &Lab, networks: &str) {
    let networks: Vec<&str> = networks.split(' ').collect();
    let delete = [&["delete", "network", "--wait=false"], &networks[..]].concat();
    lab.kubectl(&delete).good();
    phase(lab, networks[0], "Terminating");
    lab.kubectl(&["delete", "networktype", "hung", "--wait=false"]).good();
    let reason = "{.status.conditions[?(@.type=='Ready')].reason}";
    field(lab, &["networktype", "hung"], reason, |it| it == "InUse");
    let free = json!({"metadata": {"finalizers": null}}).to_string();
    lab.kubectl(&["patch", "networktype", "hung", "--type=merge", "-p", &free]).good();
    let all = [&["wait", "--for=delete", "--timeout=90s", "network"], &networks[..]].concat();
    lab.kubectl(&all).good();
}

#[test]
fn a_tenants_isolation_is_hard_while_all_its_networks_have_dns_of_their_own() {
    let lab = Lab::shared();
    let graded = json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Tenant",
        "metadata": {"name": "graded"}, "spec": {"defaultNetwork": {"type": "vpc",
        "cidrs": ["10.0.0.0/16"], "dns": {"mode": "dedicated"}}}});
    lab.apply(&graded.to_string()).good();
    let isolation = |wanted: &[&str]| {
        let told = "{.status.isolation.grade} {.status.isolation.reason}";
        field(&lab, &["tenant", "graded"], told, |it| wanted.iter().all(|word| it.contains(word)));
    };
    isolation(&["Hard", "isolated and have DNS of their own"]);
    let shared = json!({"tenant": "graded", "type": "vpc", "cidrs": ["10.1.0.0/16"]});
    lab.apply(&network("graded.shared", &shared).to_string()).good();
    isolation(&["Soft", "network graded.shared has no DNS of its own"]);
    lab.kubectl(&["delete", "network", "graded.shared", "--timeout=90s"]).good();
    isolation(&["Hard"]);
    let open = json!({"tenant": "graded", "type": "flat", "isolation": "open",
                      "dns": {"mode": "dedicated"}});
    lab.apply(&network("graded.open", &open).to_string()).good();
    isolation(&["Soft", "network graded.open is open"]);
}

#[test]
fn counts_of_a_subnet_are_true_at_each_step_and_a_full_one_is_said() {
    let lab = Lab::shared();
    let small = json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Tenant",
        "metadata": {"name": "counted"},
        "spec": {"defaultNetwork": {"type": "vpc", "cidrs": ["10.0.0.0/29"]}}});
    lab.apply(&yaml(&[small, namespace("counted", "counted")])).good();
    let subnet = ["subnet", "counted.default.10-0-0-0-29"];
    let counts = |wanted: &str| {
        field(&lab, &subnet, "{.status.used} {.status.free}", |it| it == wanted);
    };
    counts("0 5");
    for number in 1..=5 {
        lab.apply(&yaml(&[plain(&format!("counted/web-{number}"))])).good();
        counts(&format!("{number} {}", 5 - number));
    }
    field(&lab, &subnet, READY, |it| it == "SubnetExhausted");
    lab.apply(&yaml(&[plain("counted/late")])).good();
    said(&lab, "counted", "late", "network counted.default has no free address");
    lab.kubectl(&["delete", "pod", "-n", "counted", "web-3"]).good();
    running(&lab, "counted", "late");
    counts("5 0");
    lab.kubectl(&["delete", "pods", "-n", "counted", "--all"]).good();
    counts("0 5");
    assert_deletion_of_the_tenant_waits(&lab);
}

/// A tenant goes when nothing is inside, and names what is.
fn assert_deletion_of_the_tenant_waits(lab: &Lab) {
    let second = json!({"tenant": "counted", "type": "flat"});
    lab.apply(&network("counted.second", &second).to_string()).good();
    phase(lab, "counted.second", "Active");
    lab.kubectl(&["delete", "tenant", "counted", "--wait=false"]).good();
    let message = "{.status.conditions[?(@.type=='Ready')].message}";
    field(lab, &["tenant", "counted"], message, |it| {
        it.contains("namespaces to be deleted: counted") && it.contains("deleted: counted.second")
    });
    lab.kubectl(&["delete", "namespace", "counted"]).good();
    field(lab, &["tenant", "counted"], message, |it| !it.contains("namespaces"));
    lab.kubectl(&["delete", "network", "counted.second"]).good();
    lab.kubectl(&["wait", "--for=delete", "tenant/counted", "--timeout=90s"]).good();
    let left = lab.kubectl(&["get", "networks,subnets,claims", "-o", "name"]).good();
    assert_eq!(left.lines().find(|line| line.contains("counted")), None);
}
