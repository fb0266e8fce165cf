//! What a pod asks of a flat network: any address will do, and the pod hears it.

use std::time::Duration;

use atoll_model::intent::{Kind, ObjectName, Seen};
use atoll_model::{Action, Key, Now, Settings, World};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, from_value, json};

use crate::pods::pod;
use crate::tenants::namespace;

/// A world with an Active network of this type, and a pod that asks for an address.
fn decided(type_: &str) -> Vec<Action> {
    let mut world = World::new(Settings::default());
    let meta = |name: &str| json!({"name": name, "uid": name, "resourceVersion": "1"});
    let object = |kind: &str, name: &str, spec: Value, status: Value| {
        json!({"apiVersion": "atoll.dev/v1alpha1", "kind": kind, "metadata": meta(name),
               "spec": spec, "status": status})
    };
    let cidrs = if type_ == "flat" { json!([]) } else { json!(["10.0.0.0/24"]) };
    let network: atoll_api::Network = from_value(object(
        "Network",
        "acme.default",
        json!({"tenant": "acme", "type": type_, "cidrs": cidrs}),
        json!({"phase": "Active", "id": 1}),
    ))
    .unwrap();
    let subnet: atoll_api::Subnet = from_value(object(
        "Subnet",
        "acme.default.10-0-0-0-24",
        json!({"network": "acme.default", "cidr": "10.0.0.0/24"}),
        json!({"phase": "Active", "used": 0, "free": 253}),
    ))
    .unwrap();
    let pod = pod("shop/web", None, Some(r#"[{"ip": "10.0.0.77", "mac": "02:00:00:00:00:77"}]"#));
    let seen = [namespace("shop", "acme").seen(), Seen::Network((&network).into())];
    for object in seen.into_iter().chain([Seen::Subnet((&subnet).into()), pod.seen()]) {
        world.observe(object, Duration::ZERO);
    }
    let now = Now { moment: Duration::ZERO, time: Time(Timestamp::UNIX_EPOCH) };
    let key = Key::new(Kind::Pod, ObjectName::inside("shop", "web"));
    world.decide(&key, &now).actions
}

fn made(actions: &[Action]) -> atoll_api::PortSpec {
    let made = actions.iter().find_map(|action| match action {
        Action::CreatePort(port) => Some(port.spec.clone()),
        _ => None,
    });
    made.unwrap_or_else(|| panic!("no port is made: {actions:?}"))
}

fn said(actions: &[Action]) -> Option<&str> {
    actions.iter().find_map(|action| match action {
        Action::Say(_, _, _, message) => Some(message.as_str()),
        _ => None,
    })
}

#[test]
fn what_is_asked_of_a_flat_network_is_ignored_with_a_warning() {
    let actions = decided("flat");
    let port = made(&actions);
    assert_eq!((port.ips[0].as_str(), port.mac.as_str()), ("10.0.0.2", "02:00:00:00:00:77"));
    let message = "subnet and ip of interface eth0 are ignored: network acme.default is flat and \
                   gives any address";
    assert_eq!(said(&actions), Some(message));
}

#[test]
fn what_is_asked_of_a_vpc_is_given_without_a_word() {
    let actions = decided("vpc");
    assert_eq!(made(&actions).ips, ["10.0.0.77"]);
    assert_eq!(said(&actions), None);
}
