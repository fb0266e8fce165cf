//! Scenarios of pods, their ports and their addresses.

use std::time::Duration;

use atoll_model::intent::{Kind, ObjectName, Thing};
use k8s_openapi::api::core::v1 as core;
use serde_json::json;

use crate::cluster::Object;
use crate::controller::{Controller, Scene};
use crate::networks::network;
use crate::tenants::{key, namespace, tenant};

pub(crate) fn pod(name: &str, network: Option<&str>, nics: Option<&str>) -> Object {
    let (namespace, name) = name.split_once('/').unwrap();
    let mut pod = json!({"metadata": {"namespace": namespace, "name": name},
                         "spec": {"containers": []}});
    if let Some(network) = network {
        pod["metadata"]["labels"] = json!({"atoll.dev/network": network});
    }
    if let Some(nics) = nics {
        pod["metadata"]["annotations"] = json!({"atoll.dev/nics": nics});
    }
    Object::Pod(serde_json::from_value::<core::Pod>(pod).unwrap())
}

fn change_pod(scene: &mut Scene, name: &str, change: impl FnOnce(&mut core::Pod)) {
    scene.cluster.change(&key(Kind::Pod, name), |object| {
        let Object::Pod(pod) = object else { unreachable!() };
        change(pod);
    });
    scene.settle();
}

fn acme() -> Scene {
    let mut scene = Scene::new();
    scene.create(tenant("acme", &["10.0.0.0/16"])).create(namespace("shop", "acme"));
    scene
}

/// The address of a pod of namespace shop, if it has one.
fn ip(scene: &Scene, pod: &str) -> Option<String> {
    let port = scene.cluster.port("shop", &format!("{pod}.eth0"))?;
    Some(port.spec.ips[0].clone())
}

fn said_of_pod(scene: &Scene, name: &str) -> Vec<String> {
    scene.said_of(&key(Kind::Pod, name)).into_iter().map(Into::into).collect()
}

#[test]
fn a_pod_gets_a_port_with_an_address_of_its_network() {
    let mut scene = acme();
    scene.create(pod("shop/web", None, None));
    let port = scene.cluster.port("shop", "web.eth0").unwrap();
    assert_eq!(port.spec.network, "acme.default");
    assert_eq!(port.spec.network_id, 1);
    assert_eq!(port.spec.ips, ["10.0.0.2"]);
    assert_eq!(port.spec.mac, "0a:04:0a:00:00:02");
    assert_eq!(port.spec.interface, "eth0");
    assert_eq!(port.spec.node, None);
    let owner = &port.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.name.as_str()), ("Pod", "web"));
    assert!(scene.exists(Kind::Claim, "address.1.10.0.0.2"));
}

#[test]
fn a_port_learns_its_node_as_soon_as_its_pod_has_one() {
    let mut scene = acme();
    scene.create(pod("shop/web", None, None));
    change_pod(&mut scene, "shop/web", |pod| {
        pod.spec.as_mut().unwrap().node_name = Some("node1".into());
    });
    let port = scene.cluster.port("shop", "web.eth0").unwrap();
    assert_eq!(port.spec.node.as_deref(), Some("node1"));
}

#[test]
fn two_tenants_may_have_the_same_address() {
    let mut scene = acme();
    scene.create(tenant("globex", &["10.0.0.0/16"])).create(namespace("lab", "globex"));
    let nics = Some(r#"[{"ip": "10.0.0.5"}]"#);
    scene.create(pod("shop/web", None, nics)).create(pod("lab/web", None, nics));
    let one = &scene.cluster.port("shop", "web.eth0").unwrap().spec;
    let other = &scene.cluster.port("lab", "web.eth0").unwrap().spec;
    assert_eq!((&one.ips, &other.ips), (&vec!["10.0.0.5".into()], &vec!["10.0.0.5".into()]));
    assert_ne!(one.network_id, other.network_id);
}

#[test]
fn pods_that_are_none_of_ours_get_nothing() {
    let mut scene = acme();
    let outside = json!({"metadata": {"name": "kube-system"}});
    scene.create(Object::Namespace(serde_json::from_value(outside).unwrap()));
    scene.create(pod("kube-system/dns", None, None));
    let host = json!({"metadata": {"namespace": "shop", "name": "host"},
                      "spec": {"hostNetwork": true, "containers": []}});
    scene.create(Object::Pod(serde_json::from_value(host).unwrap()));
    assert_eq!(scene.cluster.of_kind(Kind::Port).len(), 0);
}

#[test]
fn a_pod_naming_a_network_that_does_not_exist_waits_for_it() {
    let mut scene = acme();
    scene.create(pod("shop/web", Some("later"), None));
    assert!(said_of_pod(&scene, "shop/web").is_empty(), "it may still come");
    scene.controller.wait(&mut scene.cluster, Duration::from_secs(2));
    let message = "network acme.later does not exist; the pod starts once it does";
    assert_eq!(said_of_pod(&scene, "shop/web"), [message]);
    change_pod(&mut scene, "shop/web", |_| {});
    assert_eq!(said_of_pod(&scene, "shop/web").len(), 1, "it is said once");
    scene.create(network("acme.later", None, &["10.3.0.0/16"]));
    assert_eq!(ip(&scene, "web").as_deref(), Some("10.3.0.2"));
}

#[test]
fn a_pod_cannot_name_a_network_of_another_tenant() {
    let mut scene = acme();
    scene.create(tenant("globex", &["10.7.0.0/16"]));
    scene.create(pod("shop/web", Some("globex.default"), None));
    assert_eq!(ip(&scene, "web"), None);
    assert!(said_of_pod(&scene, "shop/web")[0].starts_with("label atoll.dev/network: "));
}

#[test]
fn a_pod_that_names_no_network_joins_that_of_its_namespace() {
    let mut scene = acme();
    scene.create(network("acme.second", None, &["10.4.0.0/16"]));
    let labels = json!({"metadata": {"name": "back", "labels":
        {"atoll.dev/tenant": "acme", "atoll.dev/network": "second"}}});
    scene.create(Object::Namespace(serde_json::from_value(labels).unwrap()));
    scene.create(pod("back/db", None, None));
    assert_eq!(scene.cluster.port("back", "db.eth0").unwrap().spec.network, "acme.second");
}

#[test]
fn an_address_that_cannot_be_had_is_refused_with_the_reason() {
    let mut scene = acme();
    scene.create(pod("shop/first", None, Some(r#"[{"ip": "10.0.0.5"}]"#)));
    let mut refused = |name: &str, nics: &str| {
        scene.create(pod(&format!("shop/{name}"), None, Some(nics)));
        scene.controller.wait(&mut scene.cluster, Duration::from_secs(5));
        assert_eq!(ip(&scene, name), None);
        said_of_pod(&scene, &format!("shop/{name}"))[0].clone()
    };
    assert_eq!(
        refused("twin", r#"[{"ip": "10.0.0.5"}]"#),
        "address 10.0.0.5 of network acme.default is in use by port shop/first.eth0"
    );
    assert_eq!(
        refused("out", r#"[{"ip": "192.168.0.5"}]"#),
        "address 192.168.0.5 is outside the ranges of network acme.default: 10.0.0.0/16"
    );
    assert_eq!(
        refused("gateway", r#"[{"ip": "10.0.0.1"}]"#),
        "address 10.0.0.1 is reserved in subnet acme.default.10-0-0-0-16"
    );
    assert_eq!(
        refused("nowhere", r#"[{"subnet": "web"}]"#),
        "network acme.default has no subnet web that gives addresses"
    );
    assert!(refused("words", r#"[{"ip": "ten"}]"#).contains("is not an IP address"));

    scene.delete(Kind::Pod, "shop/first");
    assert_eq!(ip(&scene, "twin").as_deref(), Some("10.0.0.5"), "it gets it once it is free");
}

#[test]
fn a_pod_in_a_full_subnet_hears_it_and_gets_an_address_after_its_rest() {
    let mut scene = Scene::new();
    scene.create(tenant("acme", &["10.0.0.0/30"])).create(namespace("shop", "acme"));
    scene.create(pod("shop/one", None, None)).create(pod("shop/two", None, None));
    assert_eq!(ip(&scene, "one").as_deref(), Some("10.0.0.2"));
    assert!(said_of_pod(&scene, "shop/two")[0].starts_with("network acme.default has no free"));
    scene.delete(Kind::Pod, "shop/one");
    scene.controller.wait(&mut scene.cluster, Duration::from_secs(6));
    assert_eq!(ip(&scene, "two"), None, "the address rests");
    scene.controller.wait(&mut scene.cluster, Duration::from_secs(31));
    assert_eq!(ip(&scene, "two").as_deref(), Some("10.0.0.2"));
}

#[test]
fn a_port_goes_with_its_pod_and_with_a_pod_that_finished() {
    let mut scene = acme();
    scene.create(pod("shop/web", None, None)).create(pod("shop/job", None, None));
    scene.delete(Kind::Pod, "shop/web");
    change_pod(&mut scene, "shop/job", |pod| {
        pod.status.get_or_insert_default().phase = Some("Succeeded".into());
    });
    assert_eq!(scene.cluster.of_kind(Kind::Port).len(), 0);
    assert_eq!(scene.cluster.of_kind(Kind::Claim).len(), 2, "those of the network stay");
}

/// Every way in which a pod can go, as the API shows it.
#[test]
fn addresses_come_back_on_every_way_a_pod_can_go() {
    type Way = fn(&mut Scene);
    let ways: [(&str, Way); 6] = [
        ("deleted", |scene| {
            scene.delete(Kind::Pod, "shop/web");
        }),
        ("deleted by force after its node was lost", |scene| {
            scene.cluster.change(&key(Kind::Pod, "shop/web"), |pod| {
                pod.meta_mut().finalizers = Some(vec!["kubelet".into()]);
            });
            scene.delete(Kind::Pod, "shop/web");
            assert!(ip(scene, "web").is_some(), "its kubelet may still run it");
            change_pod(scene, "shop/web", |pod| pod.metadata.finalizers = None);
        }),
        ("finished", |scene| end(scene, "Succeeded")),
        ("evicted or failed", |scene| end(scene, "Failed")),
        ("gone with its namespace", |scene| {
            scene.cluster.delete(&key(Kind::Namespace, "shop"));
            scene.delete(Kind::Pod, "shop/web");
        }),
        ("gone while no controller ran", |scene| {
            scene.cluster.delete(&key(Kind::Pod, "shop/web"));
            let template = atoll_model::intent::Template::None;
            scene.controller = Controller::start(&scene.cluster, &template, Duration::ZERO);
            scene.settle();
        }),
    ];
    for (name, way) in ways {
        let mut scene = acme();
        let nics = r#"[{"ip": "10.0.0.9"}, {}]"#;
        scene.create(pod("shop/web", None, Some(nics)));
        assert_eq!(scene.cluster.of_kind(Kind::Port).len(), 2, "{name}");
        way(&mut scene);
        assert_eq!(scene.cluster.of_kind(Kind::Port).len(), 0, "{name}");
        assert_eq!(scene.cluster.of_kind(Kind::Claim).len(), 2, "{name}: the network's stay");
    }
}

fn end(scene: &mut Scene, phase: &str) {
    change_pod(scene, "shop/web", |pod| {
        pod.status.get_or_insert_default().phase = Some(phase.into());
    });
}

#[test]
fn a_hundred_pods_that_came_and_went_leave_no_port_and_no_claim() {
    let mut scene = acme();
    for _ in 0..100 {
        scene.create(pod("shop/web", None, Some("[{}, {}]"))).delete(Kind::Pod, "shop/web");
    }
    assert_eq!(scene.cluster.of_kind(Kind::Port).len(), 0);
    assert_eq!(scene.cluster.of_kind(Kind::Claim).len(), 2, "those of the network stay");
    assert_eq!(scene.controller.world.tally().repaired, 0, "nothing had to be repaired");
}

#[test]
fn a_pod_being_deleted_keeps_its_port_until_it_is_gone() {
    let mut scene = acme();
    let mut slow = pod("shop/slow", None, None);
    slow.meta_mut().finalizers = Some(vec!["kubelet".into()]);
    scene.create(slow).delete(Kind::Pod, "shop/slow");
    assert!(ip(&scene, "slow").is_some());
    change_pod(&mut scene, "shop/slow", |pod| pod.metadata.finalizers = None);
    assert_eq!(ip(&scene, "slow"), None);
}

#[test]
fn a_pod_of_the_same_name_made_later_has_a_port_of_its_own() {
    let mut scene = acme();
    scene.create(pod("shop/web", None, None));
    let first = scene.cluster.port("shop", "web.eth0").unwrap().spec.clone();
    scene.cluster.delete(&key(Kind::Pod, "shop/web"));
    scene.create(pod("shop/web", None, None));
    let second = scene.cluster.port("shop", "web.eth0").unwrap().spec.clone();
    assert_ne!(first.pod_uid, second.pod_uid);
    assert_ne!(first.ips, second.ips, "the old address rests");
}

#[test]
fn a_pods_own_subnet_is_not_used_for_others() {
    let mut scene = Scene::new();
    scene.create(tenant("acme", &["10.0.0.0/28"])).create(namespace("shop", "acme"));
    let spec = atoll_api::SubnetSpec {
        network: "acme.default".into(),
        cidr: "10.0.0.0/29".into(),
        ..Default::default()
    };
    scene.create(Object::Subnet(atoll_api::Subnet::new("acme.default.web", spec)));
    scene.create(pod("shop/plain", None, None));
    assert_eq!(ip(&scene, "plain").as_deref(), Some("10.0.0.8"));
    scene.create(pod("shop/web", None, Some(r#"[{"subnet": "web"}]"#)));
    assert_eq!(ip(&scene, "web").as_deref(), Some("10.0.0.2"));
    assert_eq!(scene.cluster.subnet("acme.default.web").status.clone().unwrap().used, 1);
}

#[test]
fn a_claim_that_somebody_deleted_is_made_again() {
    let mut scene = acme();
    scene.create(pod("shop/web", None, None)).delete(Kind::Claim, "address.1.10.0.0.2");
    assert!(scene.exists(Kind::Claim, "address.1.10.0.0.2"));
}

#[test]
fn a_pod_that_can_never_get_its_port_hears_why() {
    let mut scene = acme();
    scene.create(pod("shop/web", None, Some(r#"[{"name": "net1"}]"#)));
    assert!(said_of_pod(&scene, "shop/web")[0].contains("always eth0, not net1"));
    let long = format!("shop/{}", "x".repeat(249));
    scene.create(pod(&long, None, None));
    assert!(said_of_pod(&scene, &long)[0].contains("too long"));
    assert!(scene.cluster.of_kind(Kind::Port).is_empty());
    scene.create(pod(&format!("shop/{}", "x".repeat(248)), None, None));
    assert_eq!(scene.cluster.of_kind(Kind::Port).len(), 1);
}

/// A port that somebody made by hand for a pod of namespace shop.
fn forged(scene: &Scene, pod: &str, network: &str, id: u32, ip: &str) -> Object {
    let spec = atoll_api::PortSpec {
        network: network.into(),
        network_id: id,
        ips: vec![ip.into()],
        pod: pod.into(),
        pod_uid: scene.cluster.port("shop", &format!("{pod}.eth0")).unwrap().spec.pod_uid.clone(),
        ..Default::default()
    };
    let mut port = atoll_api::Port::new("forged", spec);
    port.metadata.namespace = Some("shop".into());
    Object::Port(port)
}

#[test]
fn a_port_made_by_hand_gets_into_no_network_of_another_tenant() {
    for (network, id) in [("globex.default", 2), ("acme.default", 2), ("nonsense", 2)] {
        let mut scene = acme();
        scene.create(tenant("globex", &["10.0.0.0/16"])).create(pod("shop/web", None, None));
        let port = forged(&scene, "web", network, id, "10.0.0.99");
        scene.create(port);
        assert!(scene.cluster.port("shop", "forged").is_none(), "{network}");
        assert!(!scene.exists(Kind::Claim, "address.2.10.0.0.99"), "{network}");
        assert_eq!(ip(&scene, "web").as_deref(), Some("10.0.0.2"), "its own port stays");
    }
}

#[test]
fn a_port_made_by_hand_takes_nobodys_address() {
    let mut scene = acme();
    scene.create(pod("shop/web", None, None)).create(pod("shop/thief", None, None));
    let port = forged(&scene, "thief", "acme.default", 1, "10.0.0.2");
    scene.create(port);
    assert!(scene.cluster.port("shop", "forged").is_none());
    assert!(scene.exists(Kind::Claim, "address.1.10.0.0.2"));
    assert_eq!(ip(&scene, "web").as_deref(), Some("10.0.0.2"));
}

#[test]
fn a_claim_whose_holder_is_gone_is_given_back_after_a_while_and_that_is_reported() {
    let mut scene = acme();
    let holder =
        atoll_model::intent::holder_of_port(&ObjectName::inside("shop", "x.eth0"), "uid-0");
    let address =
        atoll_types::NetAddr::new(atoll_types::NetworkId::MIN, "10.0.0.9".parse().unwrap());
    scene.create(Object::Claim(Thing::Address(address).claimed_by(holder)));
    assert!(scene.exists(Kind::Claim, "address.1.10.0.0.9"));
    assert_eq!(scene.controller.world.tally().repaired, 0);
    scene.controller.wait(&mut scene.cluster, Duration::from_secs(31));
    assert!(!scene.exists(Kind::Claim, "address.1.10.0.0.9"));
    assert_eq!(scene.controller.world.tally().repaired, 1);
    let said = scene.said_of(&key(Kind::Claim, "address.1.10.0.0.9"));
    assert_eq!(said, ["address.1.10.0.0.9 was given back: port shop/x.eth0 has it no more"]);
}

/// A scene in which a controller has claimed an address for pod `web` and not made the port yet,
/// and a second controller that was there before the pod.
fn claimed_without_port() -> (Scene, Controller) {
    let mut scene = acme();
    let template = atoll_model::intent::Template::None;
    let other = Controller::start(&scene.cluster, &template, scene.controller.now);
    scene.cluster.create(pod("shop/web", None, None)).unwrap();
    scene.controller.read_next(&scene.cluster, Kind::Pod);
    scene.controller.work_on_nth(&mut scene.cluster, 0);
    scene.controller.work_on_nth(&mut scene.cluster, usize::MAX);
    assert!(scene.exists(Kind::Claim, "address.1.10.0.0.2"));
    assert_eq!(ip(&scene, "web"), None);
    (scene, other)
}

#[test]
fn a_claim_is_left_alone_while_its_port_may_be_on_the_way() {
    let (mut scene, mut other) = claimed_without_port();
    scene.cluster.delete(&key(Kind::Pod, "shop/web"));
    other.settle(&mut scene.cluster);
    assert!(scene.exists(Kind::Claim, "address.1.10.0.0.2"));
    other.wait(&mut scene.cluster, Duration::from_secs(31));
    assert!(!scene.exists(Kind::Claim, "address.1.10.0.0.2"));
}

#[test]
fn a_claim_is_not_given_back_by_somebody_who_has_not_heard_of_its_pod() {
    let (mut scene, mut other) = claimed_without_port();
    while other.read_next(&scene.cluster, Kind::Claim) {}
    other.work_off(&mut scene.cluster);
    other.now += Duration::from_secs(31);
    other.work_off(&mut scene.cluster);
    assert!(scene.exists(Kind::Claim, "address.1.10.0.0.2"));
}

#[test]
fn a_controller_that_was_killed_after_the_claim_goes_on_with_the_same_address() {
    let (mut scene, _) = claimed_without_port();
    let template = atoll_model::intent::Template::None;
    scene.controller = Controller::start(&scene.cluster, &template, scene.controller.now);
    scene.settle();
    assert_eq!(ip(&scene, "web").as_deref(), Some("10.0.0.2"));
}

#[test]
fn everything_deleted_leaves_nothing() {
    let mut scene = acme();
    for number in 0..20 {
        scene.create(pod(&format!("shop/web-{number}"), None, None));
    }
    scene.cluster.delete(&key(Kind::Tenant, "acme"));
    scene.cluster.delete(&key(Kind::Namespace, "shop"));
    for number in 0..20 {
        scene.cluster.delete(&key(Kind::Pod, &format!("shop/web-{number}")));
    }
    scene.settle();
    assert!(scene.cluster.objects.is_empty(), "{:?}", scene.cluster.objects.keys());
}
