//! Services that change what they are and how they are reached: a name outside, an address, a port of
//! every node, a load balancer, deleted and made again; and those behind them that end. One case after the
//! other, each in two tenants with the same addresses and VIPs at the same time. The cases are those of
//! docs/services.md.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::asking::{self, Asker, await_one, await_refused, await_unanswered};
use crate::fixture::{Lab, await_condition};
use crate::service_cases::{NODES, Stage, TENANTS, VIPS, at, server};

/// What both tenants' services are asked for at each node: a number of its own for each tenant.
fn entrances(numbers: [u16; 2]) -> [(&'static str, [String; 2]); 2] {
    let of = |place: usize| (TENANTS[place], NODES.map(|node| at(node, numbers[place])));
    [of(0), of(1)]
}

/// The service of a tenant at one port of nodes, by these protocols.
fn node_port(number: u16, protocols: &[&str]) -> Value {
    let port = |protocol: &&str| {
        json!({"name": protocol.to_lowercase(), "port": 80, "targetPort": 8080,
               "protocol": protocol, "nodePort": number})
    };
    json!({"spec": {"type": "NodePort", "ports": protocols.iter().map(port).collect::<Vec<_>>()}})
}

/// Changes the service of a tenant, which is refused; says why.
fn refusal(stage: &Stage, tenant: &str, patch: &Value) -> String {
    let patch = patch.to_string();
    let args = ["patch", "service", "shop", "-n", tenant, "--type=merge", "-p", &patch];
    stage.0.kubectl(&args).bad()
}

/// Puts a pod of both tenants behind `app`.
fn label(stage: &Stage, pod: &str, app: &str) {
    for tenant in TENANTS {
        let app = format!("app={app}");
        stage.0.kubectl(&["label", "pod", pod, "-n", tenant, &app, "--overwrite"]).good();
    }
}

#[test]
fn a_service_turns_into_a_name_into_a_port_of_every_node_and_back_under_its_vip() {
    let stage = Stage::new();
    let name = json!({"spec": {"type": "ExternalName", "externalName": "elsewhere.example"}});
    stage.patch(&name);
    for tenant in TENANTS {
        await_condition(|| stage.named(tenant, "CNAME") == "elsewhere.example.")
            .unwrap_or_else(|()| panic!("{tenant}: {}", stage.named(tenant, "CNAME")));
        stage.await_nobody(tenant, "web", &at(VIPS[0], 80));
        assert_eq!(stage.field(tenant, "{.spec.clusterIP}"), "");
    }
    stage.patch(&json!({"spec": {"type": "ClusterIP", "externalName": null}}));
    stage.change(&json!({}));
    stage.await_behind("web", VIPS[0], 80, &["near", "far"]);
    for tenant in TENANTS {
        await_condition(|| stage.named(tenant, "A") == VIPS[0]).expect("its name is its VIP");
        stage.await_behind_of(
            tenant,
            "web",
            &at(&cluster_ip(&stage, tenant), 80),
            &["near", "far"],
        );
    }

    let numbers = [30_100, 30_101];
    for (tenant, number) in TENANTS.into_iter().zip(numbers) {
        stage.patch_of(tenant, &node_port(number, &["TCP"]));
    }
    for (tenant, entrances) in entrances(numbers) {
        entrances.iter().for_each(|to| stage.await_entered(tenant, ("tcp", to), &["near", "far"]));
        stage.await_behind_of(tenant, "web", &at(VIPS[0], 80), &["near", "far"]);
    }
    stage.patch(&name);
    for (tenant, entrances) in entrances(numbers) {
        entrances.iter().for_each(|to| await_unanswered(&stage.0, Asker::Outside, ("tcp", to)));
        stage.await_nobody(tenant, "web", &at(VIPS[0], 80));
    }
}

fn cluster_ip(stage: &Stage, tenant: &str) -> String {
    stage.field(tenant, "{.spec.clusterIP}")
}

/// A number that one tenant has is not another's, and is once it was given back.
fn numbers_are_given_once(stage: &Stage) {
    stage.patch_of("acme", &node_port(30_110, &["TCP"]));
    let taken = refusal(stage, "globex", &node_port(30_110, &["TCP"]));
    assert!(taken.contains("provided port is already allocated"), "{taken}");
    let outside = refusal(stage, "globex", &node_port(29_999, &["TCP"]));
    assert!(outside.contains("provided port is not in the valid range"), "{outside}");
    stage.patch_of("globex", &node_port(30_111, &["TCP"]));
    for (tenant, entrances) in entrances([30_110, 30_111]) {
        entrances.iter().for_each(|to| stage.await_entered(tenant, ("tcp", to), &["near", "far"]));
    }
    stage.patch_of("acme", &json!({"spec": {"type": "ClusterIP"}}));
    stage.patch_of("globex", &node_port(30_110, &["TCP"]));
    for node in NODES {
        stage.await_entered("globex", ("tcp", &at(node, 30_110)), &["near", "far"]);
        await_unanswered(&stage.0, Asker::Outside, ("tcp", &at(node, 30_111)));
    }
    stage.patch_of("acme", &node_port(30_111, &["TCP"]));
    for (tenant, entrances) in entrances([30_111, 30_110]) {
        entrances.iter().for_each(|to| stage.await_entered(tenant, ("tcp", to), &["near", "far"]));
    }
}

/// One number leads by each protocol that the service has there.
fn a_number_is_shared_by_protocols(stage: &Stage) {
    stage.patch_of("acme", &node_port(30_111, &["TCP", "UDP", "SCTP"]));
    stage.patch_of("globex", &node_port(30_110, &["TCP", "UDP", "SCTP"]));
    for ((tenant, entrances), by_sctp) in entrances([30_111, 30_110]).into_iter().zip([0, 1]) {
        for to in &entrances {
            stage.await_entered(tenant, ("tcp", to), &["near", "far"]);
            stage.await_entered(tenant, ("udp", to), &["near", "far"]);
        }
        // Nobody says over SCTP who it is, and everybody asks from the same ports: by one node alone.
        let (to, answering) = (&entrances[by_sctp], [NODES[by_sctp].to_owned()].into());
        asking::await_answered_by(&stage.0, Asker::Outside, ("sctp", to), &answering);
    }
    stage.patch_of("acme", &node_port(30_111, &["TCP"]));
    stage.patch_of("globex", &node_port(30_110, &["TCP"]));
    for (tenant, entrances) in entrances([30_111, 30_110]) {
        entrances.iter().for_each(|to| await_unanswered(&stage.0, Asker::Outside, ("udp", to)));
        stage.await_entered(tenant, ("tcp", &entrances[0]), &["near", "far"]);
    }
}

/// A client from outside stays with whom it met, at each node.
fn affinity_holds_at_node_ports(stage: &Stage) {
    stage.patch(&json!({"spec": {"sessionAffinity": "ClientIP"}}));
    for (tenant, entrances) in entrances([30_111, 30_110]) {
        for to in &entrances {
            let met = await_one(&stage.0, Asker::Outside, ("tcp", to));
            assert!(met.starts_with(&format!("{tenant}/")), "{to}: {met}");
        }
    }
    stage.patch(&json!({"spec": {"sessionAffinity": "None"}}));
    for (tenant, entrances) in entrances([30_111, 30_110]) {
        stage.await_entered(tenant, ("tcp", &entrances[0]), &["near", "far"]);
    }
}

#[test]
fn a_node_port_is_one_tenants_by_all_its_protocols_and_anothers_once_it_was_given_back() {
    let stage = Stage::new();
    numbers_are_given_once(&stage);
    a_number_is_shared_by_protocols(&stage);
    affinity_holds_at_node_ports(&stage);
}

/// Waits until a datagram from this port of somebody outside is answered by this pod.
fn await_datagram_led(lab: &Lab, (from, to): (u16, &str), pod: &str) {
    let mut last = String::new();
    await_condition(|| {
        let connect = ["connect", "udp", to, "--source-port", &from.to_string()];
        last = asking::outside(lab, &connect).out;
        last.contains(&format!("\"pod\":\"{pod}\""))
    })
    .unwrap_or_else(|()| panic!("{to} from port {from}: {last}, never {pod}"));
}

#[test]
fn datagrams_at_a_node_port_and_at_a_load_balancer_move_on_when_their_backend_is_replaced() {
    let stage = Stage::new();
    let pool = json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "AddressPool",
        "metadata": {"name": "edge"}, "spec": {"cidrs": ["172.30.0.200/30"]}});
    stage.0.apply(&pool.to_string()).good();
    label(&stage, "far", "other");
    let spare = json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false});
    stage.patch(&json!({ "spec": spare }));
    let addresses = TENANTS.map(|tenant| {
        let path = "jsonpath={.status.loadBalancer.ingress[0].ip}";
        let get = ["get", "service", "shop", "-n", tenant, "-o", path];
        stage.0.eventually(&get, |said| said.starts_with("172.30.0."))
    });
    for (tenant, ip) in TENANTS.into_iter().zip(&addresses) {
        stage.await_entered(tenant, ("tcp", &at(ip, 80)), &["near"]);
        assert_eq!(stage.field(tenant, "{.spec.ports[*].nodePort}"), "", "it wants none");
    }
    stage.patch(&json!({"spec": {"allocateLoadBalancerNodePorts": true}}));
    let entrances = TENANTS.map(|tenant| {
        let number = stage.field(tenant, "{.spec.ports[?(@.name=='dns')].nodePort}");
        NODES.map(|node| format!("{node}:{number}"))
    });
    let everywhere = |pod: &str| {
        for ((tenant, ip), entrances) in TENANTS.into_iter().zip(&addresses).zip(&entrances) {
            // From one port a client speaks with a backend by one way alone.
            let pod = format!("{tenant}/{pod}");
            await_datagram_led(&stage.0, (5300, &at(ip, 53)), &pod);
            await_datagram_led(&stage.0, (5301, &entrances[0]), &pod);
            await_datagram_led(&stage.0, (5302, &entrances[1]), &pod);
        }
    };
    everywhere("near");
    label(&stage, "far", "shop");
    label(&stage, "near", "other");
    everywhere("far");
    for tenant in TENANTS {
        stage.0.kubectl(&["delete", "pod", "far", "-n", tenant]).good();
    }
    label(&stage, "near", "shop");
    everywhere("near");
}

#[test]
fn a_service_made_again_under_its_name_and_vip_leads_as_before_and_its_connections_went_on() {
    let stage = Stage::new();
    let flow = ["atoll", "toolbox", "flow", "--tcp", "198.18.0.9:80", "--rate", "50"];
    let flow = [&flow[..], &["--seconds", "20", "--linger", "30s"]].concat();
    let flows = TENANTS.map(|tenant| {
        let mut command = stage.0.exec_command(&format!("{tenant}/web"), &flow);
        command.stdout(Stdio::piped()).spawn().unwrap()
    });
    for _ in 0..2 {
        for tenant in TENANTS {
            stage.0.kubectl(&["delete", "service", "shop", "-n", tenant]).good();
        }
        TENANTS.iter().for_each(|tenant| stage.await_nobody(tenant, "web", &at(VIPS[0], 80)));
        stage.change(&json!({}));
        VIPS.iter().for_each(|vip| stage.await_behind("web", vip, 80, &["near", "far"]));
    }
    for flow in flows {
        let output = flow.wait_with_output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["lost"], 0, "{report}");
    }
}

/// A server that goes on serving when it is told to end, for as long as it may.
fn slow(tenant: &str) -> Value {
    let mut pod = server(tenant, "slow", "node1", 8);
    pod["metadata"]["labels"] = json!({"app": "late"});
    pod["spec"]["terminationGracePeriodSeconds"] = 600.into();
    let stay = "trap '' TERM; exec atoll toolbox serve --port 8080";
    pod["spec"]["containers"][0]["command"] = json!(["sh", "-c", stay]);
    pod
}

fn fresh(tenant: &str) -> Value {
    let mut pod = server(tenant, "fresh", "node2", 9);
    pod["metadata"]["labels"] = json!({"app": "late"});
    pod
}

/// Asks both tenants' pods and both nodes who is behind the service.
fn await_ends(stage: &Stage, numbers: [u16; 2], inside: &[&str], by_node: [&[&str]; 2]) {
    stage.await_behind("web", VIPS[0], 80, inside);
    for (tenant, entrances) in entrances(numbers) {
        for (to, pods) in entrances.iter().zip(by_node) {
            stage.await_entered(tenant, ("tcp", to), pods);
        }
    }
}

#[test]
fn a_pod_that_ends_serves_on_while_nobody_else_does_inside_from_outside_and_on_its_node() {
    const NUMBERS: [u16; 2] = [30_120, 30_121];
    let stage = Stage::new();
    stage.apply(slow);
    TENANTS.iter().for_each(|tenant| stage.0.wait_for_pods_of(tenant));
    for (tenant, number) in TENANTS.into_iter().zip(NUMBERS) {
        stage.patch_of(tenant, &node_port(number, &["TCP"]));
        stage.patch_of(tenant, &json!({"spec": {"selector": {"app": "late"}}}));
    }
    await_ends(&stage, NUMBERS, &["slow"], [&["slow"], &["slow"]]);
    for tenant in TENANTS {
        stage.0.kubectl(&["delete", "pod", "slow", "-n", tenant, "--wait=false"]).good();
        let slices = ["get", "endpointslices", "-n", tenant, "-o"];
        let path = "jsonpath={.items[*].endpoints[*].conditions}";
        stage.0.eventually(&[&slices[..], &[path]].concat(), |said| {
            said.contains(r#""terminating":true"#)
        });
    }
    await_ends(&stage, NUMBERS, &["slow"], [&["slow"], &["slow"]]);

    stage.apply(fresh);
    await_ends(&stage, NUMBERS, &["fresh"], [&["fresh"], &["fresh"]]);
    let local = json!({"internalTrafficPolicy": "Local", "externalTrafficPolicy": "Local"});
    stage.patch(&json!({ "spec": local }));
    await_ends(&stage, NUMBERS, &["slow"], [&["slow"], &["fresh"]]);
    let cluster = json!({"internalTrafficPolicy": "Cluster", "externalTrafficPolicy": "Cluster",
                         "publishNotReadyAddresses": true});
    stage.patch(&json!({ "spec": cluster }));
    await_ends(&stage, NUMBERS, &["slow", "fresh"], [&["slow", "fresh"], &["slow", "fresh"]]);

    stage.patch(&json!({ "spec": local }));
    for tenant in TENANTS {
        let forced = ["--force", "--grace-period=0"];
        stage.0.kubectl(&[&["delete", "pod", "slow", "-n", tenant], &forced[..]].concat()).good();
    }
    for (tenant, entrances) in entrances(NUMBERS) {
        let web = format!("{tenant}/web");
        await_refused(&stage.0, Asker::Pod(&web), ("tcp", &at(VIPS[0], 80)));
        await_unanswered(&stage.0, Asker::Outside, ("tcp", &entrances[0]));
        stage.await_entered(tenant, ("tcp", &entrances[1]), &["fresh"]);
        stage.await_behind_of(tenant, "far", &at(VIPS[0], 80), &["fresh"]);
    }
}

/// A server whose port of the name that the service knows is another than the others'.
fn odd(tenant: &str) -> Value {
    let mut pod = server(tenant, "odd", "node2", 8);
    let container = &mut pod["spec"]["containers"][0];
    container["command"] = json!(["atoll", "toolbox", "serve", "--port", "7070"]);
    container["ports"] = json!([{"name": "talk", "containerPort": 7070}]);
    pod
}

/// A slice of `hand` that names one pod, and the port that it listens on.
fn slice(tenant: &str, (pod, ip): (&str, &str), port: u16) -> Value {
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
           "metadata": {"name": format!("hand-{pod}"), "namespace": tenant,
                        "labels": {"kubernetes.io/service-name": "hand"}},
           "addressType": "IPv4",
           "ports": [{"name": "http", "protocol": "TCP", "port": port}],
           "endpoints": [{"addresses": [ip],
                          "targetRef": {"kind": "Pod", "namespace": tenant, "name": pod}}]})
}

#[test]
fn a_port_may_lead_to_another_number_of_each_pod_by_its_name_or_by_several_slices() {
    const HAND: &str = "198.18.0.10";
    let stage = Stage::new();
    stage.apply(odd);
    stage.await_behind("web", VIPS[0], 80, &["near", "far", "odd"]);
    for tenant in TENANTS {
        stage.await_behind_of(tenant, "web", "10.0.0.8:7070", &["odd"]);
        stage.await_nobody(tenant, "web", "10.0.0.8:8080");
    }
    stage.apply(|tenant| {
        json!({"apiVersion": "v1", "kind": "Service",
               "metadata": {"name": "hand", "namespace": tenant,
                            "annotations": {"atoll.dev/vip": HAND}},
               "spec": {"ports": [{"name": "http", "port": 80}]}})
    });
    stage.apply(|tenant| slice(tenant, ("near", "10.0.0.6"), 9090));
    stage.apply(|tenant| slice(tenant, ("odd", "10.0.0.8"), 7070));
    stage.await_behind("web", HAND, 80, &["near", "odd"]);
    stage.apply(|tenant| slice(tenant, ("odd", "10.0.0.8"), 8080));
    for tenant in TENANTS {
        let to = at(HAND, 80);
        await_condition(|| {
            let found =
                asking::found(&stage.0, Asker::Pod(&format!("{tenant}/web")), ("tcp", &to), "5s");
            found.iter().any(|it| it == &Err("refused".to_owned()))
        })
        .unwrap_or_else(|()| panic!("{tenant}: nobody is led to the number of the slice"));
        stage.0.kubectl(&["delete", "endpointslice", "hand-odd", "-n", tenant]).good();
    }
    stage.await_behind("web", HAND, 80, &["near"]);
}
