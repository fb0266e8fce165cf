//! Services: what they are given by their type, and what they lose with it.

use crate::Subject;
use crate::server::refusal;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

async fn create(subject: &Subject, name: &str, spec: Value) -> kube::Result<Service> {
    let service = json!({"metadata": {"name": name}, "spec": spec});
    let service: Service = serde_json::from_value(service).unwrap();
    subject.api().create(&PostParams::default(), &service).await
}

async fn patch(subject: &Subject, name: &str, spec: Value) -> kube::Result<Service> {
    let api: Api<Service> = subject.api();
    let patch = json!({"spec": spec});
    api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await
}

fn spec(service: kube::Result<Service>) -> ServiceSpec {
    service.unwrap().spec.unwrap()
}

fn ports(spec: &ServiceSpec) -> &[ServicePort] {
    spec.ports.as_deref().unwrap()
}

fn node_ports(spec: &ServiceSpec) -> Vec<Option<i32>> {
    ports(spec).iter().map(|port| port.node_port).collect()
}

fn two_ports() -> Value {
    json!([{"name": "http", "port": 80}, {"name": "https", "port": 443}])
}

#[tokio::test]
async fn a_service_loses_its_node_ports_with_its_type_and_others_may_have_them() {
    let subject = Subject::new().await;
    let made =
        spec(create(&subject, "web", json!({"type": "NodePort", "ports": two_ports()})).await);
    let had = node_ports(&made);
    assert!(had.iter().all(|port| port.is_some_and(|port| port >= 30_000)), "{had:?}");
    assert_eq!(made.external_traffic_policy.as_deref(), Some("Cluster"));

    let asked = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": had[0]}]});
    let taken = refusal(create(&subject, "other", asked.clone()).await);
    assert!(taken.message.contains("provided port is already allocated"), "{}", taken.message);

    let inside = spec(patch(&subject, "web", json!({"type": "ClusterIP"})).await);
    assert_eq!(node_ports(&inside), [None, None]);
    assert_eq!(inside.external_traffic_policy, None);
    assert_eq!(inside.cluster_ip, made.cluster_ip);

    let other = spec(create(&subject, "other", asked).await);
    assert_eq!(node_ports(&other), had[..1]);
    let back = spec(patch(&subject, "web", json!({"type": "NodePort"})).await);
    assert!(node_ports(&back).iter().all(|port| port.is_some() && *port != had[0]));
}

#[tokio::test]
async fn a_service_inside_of_the_cluster_asks_for_no_node_port() {
    let subject = Subject::new().await;
    let asked = json!([{"port": 80, "nodePort": 30_999}]);
    let told = refusal(create(&subject, "web", json!({"ports": asked})).await);
    let why = "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'";
    assert!(told.message.contains(why), "{}", told.message);
    create(&subject, "web", json!({"type": "NodePort", "ports": two_ports()})).await.unwrap();
    let told = patch(&subject, "web", json!({"type": "ClusterIP", "ports": asked})).await;
    assert!(refusal(told).message.contains(why));
}

#[tokio::test]
async fn a_service_becomes_a_name_outside_and_has_an_address_again_when_it_comes_back() {
    let subject = Subject::new().await;
    let made = spec(create(&subject, "web", json!({"ports": two_ports()})).await);
    let outside = json!({"type": "ExternalName", "externalName": "example.org"});
    let name = spec(patch(&subject, "web", outside).await);
    assert_eq!(name.cluster_ip.unwrap_or_default(), "");
    assert_eq!((name.cluster_ips, name.ip_families), (None, None));
    let asked = json!({"clusterIP": made.cluster_ip, "ports": two_ports()});
    let heir = spec(create(&subject, "heir", asked).await);
    assert_eq!(heir.cluster_ip, made.cluster_ip, "what it had is free");
    let back = json!({"type": "ClusterIP", "externalName": null});
    let back = spec(patch(&subject, "web", back).await);
    assert!(back.cluster_ip.as_ref().is_some_and(|ip| !ip.is_empty()));
    assert_ne!(back.cluster_ip, made.cluster_ip);
}

#[tokio::test]
async fn node_ports_follow_the_names_of_a_services_ports() {
    let subject = Subject::new().await;
    let made =
        spec(create(&subject, "web", json!({"type": "NodePort", "ports": two_ports()})).await);
    let moved = json!([{"name": "https", "port": 444}, {"name": "more", "port": 81}]);
    let moved = spec(patch(&subject, "web", json!({"ports": moved})).await);
    assert_eq!(node_ports(&moved)[0], node_ports(&made)[1], "https keeps its own");
}

#[tokio::test]
async fn a_number_is_shared_by_ports_of_one_service_that_differ_by_their_protocol() {
    let subject = Subject::new().await;
    let dns = |number: Option<i32>, more: Value| {
        let mut ports = json!([
            {"name": "tcp", "port": 53, "protocol": "TCP", "nodePort": number},
            {"name": "udp", "port": 53, "protocol": "UDP", "nodePort": number}]);
        ports.as_array_mut().unwrap().extend(more.as_array().unwrap().clone());
        json!({"type": "NodePort", "ports": ports})
    };
    let made = spec(create(&subject, "dns", dns(None, json!([]))).await);
    let number = node_ports(&made)[0];
    assert_eq!(node_ports(&made), [number, number]);
    assert!(number.is_some());
    let other = json!([{"port": 53, "protocol": "SCTP", "nodePort": number}]);
    let taken =
        refusal(create(&subject, "other", json!({"type": "NodePort", "ports": other})).await);
    assert!(taken.message.contains("provided port is already allocated"), "{}", taken.message);
    let twice = json!([{"name": "again", "port": 54, "protocol": "UDP", "nodePort": number}]);
    let twice = refusal(patch(&subject, "dns", dns(number, twice)).await);
    assert!(twice.message.to_lowercase().contains("duplicate"), "{}", twice.message);
    let sctp = json!([{"name": "sctp", "port": 54, "protocol": "SCTP", "nodePort": number}]);
    let three = spec(patch(&subject, "dns", dns(number, sctp)).await);
    assert_eq!(node_ports(&three), [number, number, number]);
}

#[tokio::test]
async fn a_load_balancer_has_no_node_ports_where_it_wants_none() {
    let subject = Subject::new().await;
    let without = json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false,
        "ports": two_ports()});
    let made = spec(create(&subject, "web", without).await);
    assert_eq!(node_ports(&made), [None, None]);
    let with = spec(patch(&subject, "web", json!({"allocateLoadBalancerNodePorts": true})).await);
    assert!(node_ports(&with).iter().all(Option::is_some));
    let kept = spec(patch(&subject, "web", json!({"allocateLoadBalancerNodePorts": false})).await);
    assert_eq!(node_ports(&kept), node_ports(&with), "nothing is taken from it");
    let usual = json!({"type": "LoadBalancer", "ports": two_ports()});
    let usual = spec(create(&subject, "usual", usual).await);
    assert_eq!(usual.allocate_load_balancer_node_ports, Some(true));
    assert!(node_ports(&usual).iter().all(Option::is_some));
    let inside = spec(patch(&subject, "usual", json!({"type": "ClusterIP"})).await);
    assert_eq!(inside.allocate_load_balancer_node_ports, None);
    let wrong = json!({"allocateLoadBalancerNodePorts": false, "ports": two_ports()});
    let told = refusal(create(&subject, "wrong", wrong).await);
    let why = "spec.allocateLoadBalancerNodePorts: Forbidden: may only be used when `type` is";
    assert!(told.message.contains(why), "{}", told.message);
}

fn stays_on_its_node(number: Option<i32>) -> Value {
    json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local",
           "healthCheckNodePort": number, "ports": two_ports()})
}

#[tokio::test]
async fn a_load_balancer_that_stays_on_its_node_has_a_health_port_until_it_does_not() {
    let subject = Subject::new().await;
    let made = spec(create(&subject, "web", stays_on_its_node(None)).await);
    let had = made.health_check_node_port;
    assert!(had.is_some_and(|port| (30_000..32_768).contains(&port)), "{had:?}");
    assert!(!node_ports(&made).contains(&had), "one of its own");

    let kept = spec(patch(&subject, "web", json!({"sessionAffinity": "ClientIP"})).await);
    assert_eq!(kept.health_check_node_port, had);
    let unsaid = spec(patch(&subject, "web", json!({"healthCheckNodePort": null})).await);
    assert_eq!(unsaid.health_check_node_port, had);
    let other = patch(&subject, "web", json!({"healthCheckNodePort": 32_767})).await;
    let why = "spec.healthCheckNodePort: Forbidden: field is immutable";
    assert!(refusal(other).message.contains(why));

    for taken in [had, node_ports(&made)[0]] {
        let told = refusal(create(&subject, "heir", stays_on_its_node(taken)).await).message;
        assert!(told.contains("provided port is already allocated"), "{told}");
    }
    let anywhere = json!({"externalTrafficPolicy": "Cluster"});
    let anywhere = spec(patch(&subject, "web", anywhere).await);
    assert_eq!(anywhere.health_check_node_port, None);
    let heir = spec(create(&subject, "heir", stays_on_its_node(had)).await);
    assert_eq!(heir.health_check_node_port, had, "what it had is free");
    let inside = spec(patch(&subject, "heir", json!({"type": "ClusterIP"})).await);
    assert_eq!(inside.health_check_node_port, None);
}

#[tokio::test]
async fn nobody_else_asks_for_a_health_port_and_none_is_outside_of_the_range() {
    let subject = Subject::new().await;
    let why =
        "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
    for kind in ["NodePort", "LoadBalancer"] {
        let asked = json!({"type": kind, "healthCheckNodePort": 30_990, "ports": two_ports()});
        let told = refusal(create(&subject, "web", asked).await).message;
        assert!(told.contains(why), "{kind}: {told}");
    }
    let told = refusal(create(&subject, "web", stays_on_its_node(Some(80))).await).message;
    assert!(told.contains("port is not in the valid range"), "{told}");
    create(&subject, "web", json!({"ports": two_ports()})).await.unwrap();
    let told = refusal(patch(&subject, "web", json!({"healthCheckNodePort": 30_990})).await);
    assert!(told.message.contains(why), "{}", told.message);
}
