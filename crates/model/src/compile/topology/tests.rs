//! Who is where on a node, from its ports and what its runtime asked for.

use atoll_plan::Device;
use atoll_types::MacAddr;

use super::*;

fn port(network: u32, ip: &str, pod: &str, node: &str) -> PlacedPort {
    let ip = ip.parse().unwrap();
    PlacedPort {
        network: NetworkId::try_from(network).unwrap(),
        network_name: format!("tenant-{network}.default"),
        ips: vec![ip],
        mac: MacAddr::for_ip(ip),
        pod: PodRef::new(format!("tenant-{network}"), pod),
        pod_uid: format!("{network}-{pod}"),
        interface: "eth0".into(),
        device: Device::Veth,
        node: Some(node.into()),
        others: BTreeSet::new(),
        routes: BTreeSet::new(),
    }
}

fn attachment(port: &PlacedPort) -> Attachment {
    Attachment {
        container_id: port.pod_uid.clone(),
        sandbox: "/run/netns/pod".into(),
        interface: "eth0".into(),
        pod: port.pod.clone(),
        pod_uid: Some(port.pod_uid.clone()),
    }
}

fn addr(network: u32, ip: &str) -> NetAddr {
    NetAddr::new(NetworkId::try_from(network).unwrap(), ip.parse().unwrap())
}

fn compile_on_node1(ports: &[PlacedPort], attachments: &[Attachment]) -> Compiled {
    compile(&NodeView {
        node: "node1",
        pod_mtu: 1450,
        nodes: [("node1", [192, 0, 2, 1].into()), ("node2", [192, 0, 2, 2].into())].into(),
        ports: ports.iter().collect(),
        attachments: attachments.iter().collect(),
        ..NodeView::default()
    })
}

#[test]
fn two_networks_may_use_the_same_address_on_one_node() {
    let ports = [port(1, "10.0.0.5", "web", "node1"), port(2, "10.0.0.5", "web", "node1")];
    let attachments = [attachment(&ports[0]), attachment(&ports[1])];
    let compiled = compile_on_node1(&ports, &attachments);
    assert_eq!(compiled.complaints, []);
    for (port, attachment) in ports.iter().zip(&attachments) {
        let addr = NetAddr::new(port.network, port.ips[0]);
        let here = Place::Here(attachment.host_interface(port));
        assert_eq!(compiled.plan.endpoints[&addr].place, here);
        let interface = &compiled.plan.interfaces[&attachment.host_interface(port)];
        assert_eq!(interface.guard.network, port.network);
    }
}

#[test]
fn a_pod_elsewhere_is_behind_its_nodes_underlay_address() {
    let compiled = compile_on_node1(&[port(1, "10.0.0.5", "web", "node2")], &[]);
    let there = Place::There([192, 0, 2, 2].into());
    assert_eq!(compiled.plan.endpoints[&addr(1, "10.0.0.5")].place, there);
    assert!(compiled.plan.interfaces.is_empty());
}

#[test]
fn a_node_is_no_peer_of_itself() {
    let compiled = compile_on_node1(&[], &[]);
    assert_eq!(compiled.plan.peers, [[192, 0, 2, 2].into()].into());
}

#[test]
fn a_pod_that_is_not_attached_yet_gets_no_packet() {
    let compiled = compile_on_node1(&[port(1, "10.0.0.5", "web", "node1")], &[]);
    assert_eq!(compiled.plan.endpoints, BTreeMap::new());
}

#[test]
fn a_pod_without_a_node_is_nowhere() {
    let unbound = PlacedPort { node: None, ..port(1, "10.0.0.5", "web", "node1") };
    assert_eq!(compile_on_node1(&[unbound], &[]).plan.endpoints, BTreeMap::new());
}

#[test]
fn an_attachment_of_a_pod_that_had_the_same_name_before_is_not_taken_for_it() {
    let web = port(1, "10.0.0.5", "web", "node1");
    let former = Attachment { pod_uid: Some("another".into()), ..attachment(&web) };
    let compiled = compile_on_node1(&[web], &[former]);
    assert!(compiled.plan.interfaces.is_empty());
}

#[test]
fn an_address_with_two_owners_serves_neither() {
    let ports = [
        port(1, "10.0.0.5", "web", "node1"),
        port(1, "10.0.0.5", "thief", "node2"),
        port(1, "10.0.0.6", "bystander", "node2"),
    ];
    let compiled = compile_on_node1(&ports, &[attachment(&ports[0])]);
    assert_eq!(compiled.plan.endpoints.len(), 1);
    assert!(compiled.plan.endpoints.contains_key(&addr(1, "10.0.0.6")));
    assert_eq!(
        compiled.complaints[0].to_string(),
        "1/10.0.0.5 belongs to both tenant-1/web and tenant-1/thief: neither is served"
    );
}

#[test]
fn a_pod_on_an_unknown_node_is_named() {
    let compiled = compile_on_node1(&[port(1, "10.0.0.5", "web", "node9")], &[]);
    assert_eq!(compiled.plan.endpoints, BTreeMap::new());
    assert_eq!(
        compiled.complaints[0].to_string(),
        "tenant-1/web is on node node9, whose address is not known"
    );
}

/// A pod with a second interface in another network.
fn two_interfaces() -> [PlacedPort; 2] {
    let web = port(1, "10.0.0.5", "web", "node1");
    let first = PlacedPort { others: ["net1".to_owned()].into(), ..web.clone() };
    let second = PlacedPort {
        pod: web.pod.clone(),
        pod_uid: web.pod_uid,
        interface: "net1".into(),
        routes: ["10.1.0.0/16".parse().unwrap()].into(),
        ..port(2, "10.1.0.5", "web", "node1")
    };
    [first, second]
}

#[test]
fn one_request_attaches_every_interface_and_the_first_has_the_default_route() {
    let ports = two_interfaces();
    let asked = attachment(&ports[0]);
    let compiled = compile_on_node1(&ports, std::slice::from_ref(&asked));
    let [first, second] = ports.each_ref().map(|port| {
        let name = asked.host_interface(port);
        let addr = NetAddr::new(port.network, port.ips[0]);
        assert_eq!(compiled.plan.endpoints[&addr].place, Place::Here(name.clone()));
        &compiled.plan.interfaces[&name]
    });
    assert_eq!((first.name.as_str(), &first.reach), ("eth0", &Reach::Everything));
    assert_eq!((second.name.as_str(), second.guard.network), ("net1", ports[1].network));
    assert_eq!(second.reach, Reach::Only(ports[1].routes.clone()));
    assert!(first.has_siblings && second.has_siblings);
}

#[test]
fn an_interface_that_the_pods_first_does_not_name_is_not_attached() {
    let [first, second] = two_interfaces();
    let alone = PlacedPort { others: BTreeSet::new(), ..first };
    let asked = attachment(&alone);
    let compiled = compile_on_node1(&[alone, second], &[asked]);
    assert_eq!(compiled.plan.interfaces.len(), 1);
    assert!(!compiled.plan.interfaces.values().any(|interface| interface.has_siblings));
}

#[test]
fn without_the_first_interface_no_other_is_attached() {
    let [first, second] = two_interfaces();
    let asked = attachment(&first);
    assert!(compile_on_node1(&[second], &[asked]).plan.interfaces.is_empty());
}

#[test]
fn a_network_has_doors_to_the_clusters_resolver_and_its_own_where_it_has_a_pod_here() {
    let ports = [port(1, "10.0.0.5", "web", "node1"), port(2, "10.0.0.5", "web", "node2")];
    let asked = attachment(&ports[0]);
    let cluster_dns: Resolver = [IpAddr::from([10, 96, 0, 10])].into_iter().collect();
    let view = NodeView {
        node: "node1",
        nodes: [("node2", [192, 0, 2, 2].into())].into(),
        ports: ports.iter().collect(),
        attachments: vec![&asked],
        cluster_dns,
        ..NodeView::default()
    };
    let doors = compile(&view).plan.doors;
    let cluster_only = Doors { cluster: cluster_dns, own: Resolver::default() };
    assert_eq!(doors, [(ports[0].network, cluster_only)].into());
    let own: Resolver = [IpAddr::from([198, 18, 0, 10])].into_iter().collect();
    let doors = |answers| {
        let own = OwnResolver { at: own, answers };
        let own_dns = ports.each_ref().map(|port| (port.network, own)).into();
        compile(&NodeView { own_dns, ..view.clone() }).plan.doors
    };
    let both = Doors { cluster: cluster_dns, own };
    assert_eq!(doors(Answers::Agent), [(ports[0].network, both)].into());
    let node = Doors { cluster: Resolver::default(), own: at_the_node() };
    assert_eq!(doors(Answers::Pods), [(ports[0].network, node)].into(), "for the DNS pods");
    let without = NodeView { cluster_dns: Resolver::default(), ..view };
    assert_eq!(compile(&without).plan.doors, BTreeMap::new());
}

#[test]
fn a_network_has_a_door_to_a_service_where_a_tenant_that_may_call_it_has_a_pod_here() {
    let ports = [1, 2].map(|number| port(number, "10.0.0.5", "web", "node1"));
    let elsewhere = port(3, "10.0.0.5", "web", "node2");
    let asked = ports.each_ref().map(attachment);
    let (all, one) = (Audience::All, Audience::Listed(["tenant-2".to_owned()].into()));
    let front = |last, datagrams, to| {
        let (ip, listener) = ([10, 96, 0, last].into(), 61100 + u16::from(datagrams));
        Front { ip, port: 443, datagrams, listener, to }
    };
    let view = NodeView {
        node: "node1",
        nodes: [("node2", [192, 0, 2, 2].into())].into(),
        ports: ports.iter().chain([&elsewhere]).collect(),
        attachments: asked.iter().collect(),
        fronts: vec![front(1, false, &all), front(7, false, &one), front(7, true, &one)],
        ..NodeView::default()
    };
    let doors = compile(&view).plan.service_doors;
    let text = |door: &ServiceDoor| format!("{} {}", door.addr, door.protocol());
    let texts: Vec<_> = doors.keys().map(text).collect();
    let of_both = ["2/10.96.0.1 TCP", "2/10.96.0.7 TCP", "2/10.96.0.7 UDP"];
    assert_eq!(texts, [&["1/10.96.0.1 TCP"], &of_both[..]].concat());
}

#[test]
fn a_pod_with_several_interfaces_is_known_by_its_first_at_each() {
    let ports = two_interfaces();
    let asked = attachment(&ports[0]);
    let occupants = compile_on_node1(&ports, std::slice::from_ref(&asked)).occupants;
    assert_eq!(occupants.len(), 2);
    for port in &ports {
        let occupant = &occupants[&asked.host_interface(port)];
        assert_eq!(occupant.network_name, "tenant-1.default");
        assert_eq!(occupant.pod_uid, ports[0].pod_uid);
    }
}
