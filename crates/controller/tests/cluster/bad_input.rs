//! Bad input: each field, wrong in each way that one object can show, is refused by the API with a
//! message that names the field. Each table begins with the object that is right.

use kube::Error;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use serde_json::{Value, json};

use crate::subject::Subject;

/// One way to be wrong: where, what, and what the message says.
type Wrong = (&'static str, Value, &'static str);

async fn refusal(api: &Api<DynamicObject>, object: &Value) -> Option<String> {
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    match api.create(&params, &object).await {
        Ok(_) => None,
        Err(Error::Api(status)) => {
            assert!([400, 422].contains(&status.code), "{status:?}");
            Some(status.message)
        }
        Err(error) => panic!("{error}"),
    }
}

/// Sets a field by its JSON pointer; `null` takes it away.
fn with(right: &Value, pointer: &str, wrong: &Value) -> Value {
    let mut object = right.clone();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    let parent = object.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    match wrong {
        Value::Null => drop(parent.remove(field)),
        wrong => drop(parent.insert(field.to_owned(), wrong.clone())),
    }
    object
}

async fn check<K>(case: &str, right: Value, table: Vec<Wrong>)
where
    K: kube::Resource<DynamicType = ()>,
{
    let subject = Subject::new(case).await;
    let resource = ApiResource::erase::<K>(&());
    let api = match right["metadata"]["namespace"].as_str() {
        Some(inside) => Api::namespaced_with(subject.client.clone(), inside, &resource),
        None => Api::<DynamicObject>::all_with(subject.client.clone(), &resource),
    };
    assert_eq!(refusal(&api, &right).await, None, "the control");
    for (pointer, wrong, says) in table {
        let message = refusal(&api, &with(&right, pointer, &wrong)).await;
        let message = message.unwrap_or_else(|| panic!("{pointer} = {wrong} was taken"));
        assert!(message.contains(says), "{pointer} = {wrong}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_field_of_a_tenant_that_is_wrong_is_refused_by_its_name() {
    let right = json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Tenant",
        "metadata": {"name": "acme"},
        "spec": {"defaultNetwork": {"type": "vpc", "cidrs": ["10.0.0.0/16"]},
                 "serviceCIDRs": ["10.96.0.0/16", "fd96::/112"],
                 "quota": {"networks": 3, "ports": 100, "vips": 10}}});
    let table: Vec<Wrong> = vec![
        ("/metadata/name", json!("a.b"), "a tenant's name is at most 63 lower-case letters"),
        ("/metadata/name", json!("a".repeat(64)), "a tenant's name is at most 63"),
        ("/spec/defaultNetwork/type", json!(""), "spec.defaultNetwork.type"),
        ("/spec/defaultNetwork/type", Value::Null, "spec.defaultNetwork.type"),
        ("/spec/defaultNetwork/type", json!(7), "spec.defaultNetwork.type"),
        ("/spec/defaultNetwork/cidrs", json!(["10.0.0.0/99"]), "spec.defaultNetwork.cidrs"),
        ("/spec/defaultNetwork/cidrs", json!(["10.0.0.5/16"]), "spec.defaultNetwork.cidrs"),
        ("/spec/defaultNetwork/cidrs", json!("10.0.0.0/16"), "spec.defaultNetwork.cidrs"),
        ("/spec/defaultNetwork/cidrs", json!([7]), "spec.defaultNetwork.cidrs"),
        ("/spec/defaultNetwork/isolation", json!("ajar"), "spec.defaultNetwork.isolation"),
        ("/spec/serviceCIDRs", json!(["10.96.0.0/99"]), "spec.serviceCIDRs"),
        ("/spec/serviceCIDRs", json!(["10.96.0.7/16"]), "spec.serviceCIDRs"),
        ("/spec/serviceCIDRs", json!("10.96.0.0/16"), "spec.serviceCIDRs"),
        ("/spec/serviceCIDRs", json!(["10.96.0.0/16", "10.97.0.0/16"]), "spec.serviceCIDRs"),
        ("/spec/quota/networks", json!(-1), "spec.quota.networks"),
        ("/spec/quota/networks", json!("many"), "spec.quota.networks"),
        ("/spec/quota/ports", json!(-1), "spec.quota.ports"),
        ("/spec/quota/ports", json!(1.5), "spec.quota.ports"),
        ("/spec/quota/vips", json!(-1), "spec.quota.vips"),
        ("/spec/quota/vips", json!("1"), "spec.quota.vips"),
        ("/spec/quota", json!([]), "spec.quota"),
    ];
    check::<atoll_api::Tenant>("bad-tenant", right, table).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_field_of_a_network_that_is_wrong_is_refused_by_its_name() {
    let right = json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Network",
        "metadata": {"name": "acme.default"},
        "spec": {"tenant": "acme", "type": "vpc", "vpcID": "vpc-1",
                 "cidrs": ["10.0.0.0/16", "fd00::/64"]}});
    let table: Vec<Wrong> = vec![
        ("/metadata/name", json!("default"), "a network's name is <tenant>.<network>"),
        ("/metadata/name", json!("acme.a.b"), "a network's name is <tenant>.<network>"),
        ("/metadata/name", json!("globex.default"), "a network's name begins with its tenant"),
        ("/spec/tenant", json!(""), "spec.tenant"),
        ("/spec/tenant", Value::Null, "spec.tenant"),
        ("/spec/tenant", json!("globex"), "a network's name begins with its tenant"),
        ("/spec/type", Value::Null, "spec.type"),
        ("/spec/type", json!(""), "spec.type"),
        ("/spec/type", json!(1), "spec.type"),
        ("/spec/type", json!("flat"), "a network of type flat takes no cidrs and no vpcID"),
        ("/spec/vpcID", json!("A"), "vpcID must be of lower-case letters"),
        ("/spec/vpcID", json!("a.b"), "vpcID must be of lower-case letters"),
        ("/spec/vpcID", json!(""), "spec.vpcID"),
        ("/spec/vpcID", json!("a".repeat(64)), "spec.vpcID"),
        ("/spec/cidrs", json!([]), "needs at least one range in cidrs"),
        ("/spec/cidrs", json!(["10.0.0.0"]), "spec.cidrs"),
        ("/spec/cidrs", json!(["10.0.0.0/33"]), "spec.cidrs"),
        ("/spec/cidrs", json!(["10.0.0.1/16"]), "spec.cidrs"),
        ("/spec/cidrs", json!(["fd00::/129"]), "spec.cidrs"),
        ("/spec/cidrs", json!(["x".repeat(65)]), "spec.cidrs"),
        ("/spec/cidrs", json!("10.0.0.0/16"), "spec.cidrs"),
        ("/spec/isolation", json!("open"), "isolation: only a network of type flat can be open"),
        ("/spec/isolation", json!("ajar"), "spec.isolation"),
        ("/spec", Value::Null, "spec"),
    ];
    check::<atoll_api::Network>("bad-network", right, table).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_field_of_a_subnet_that_is_wrong_is_refused_by_its_name() {
    let right = json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Subnet",
        "metadata": {"name": "web"},
        "spec": {"network": "acme.default", "cidr": "10.0.0.0/24", "gateway": "10.0.0.1",
                 "excluded": ["10.0.0.10-10.0.0.20", "10.0.0.99"],
                 "pools": ["10.0.0.2-10.0.0.200"]}});
    let table: Vec<Wrong> = vec![
        ("/spec/network", Value::Null, "spec.network"),
        ("/spec/network", json!("a"), "spec.network"),
        ("/spec/cidr", Value::Null, "spec.cidr"),
        ("/spec/cidr", json!("10.0.0.0"), "spec.cidr"),
        ("/spec/cidr", json!("10.0.0.7/24"), "spec.cidr"),
        ("/spec/gateway", json!("gw"), "spec.gateway"),
        ("/spec/gateway", json!("10.0.1.1"), "the gateway must lie in the subnet's range"),
        ("/spec/excluded", json!(["ten"]), "spec.excluded"),
        ("/spec/excluded", json!(["10.0.0.1-"]), "spec.excluded"),
        ("/spec/excluded", json!(["10.0.0.0/28"]), "spec.excluded"),
        ("/spec/excluded", json!(["10.0.0.1-10.0.0.2-10.0.0.3"]), "spec.excluded"),
        ("/spec/excluded", json!(["10.0.1.1"]), "each of excluded must lie in the subnet's range"),
        ("/spec/excluded", json!("10.0.0.9"), "spec.excluded"),
        ("/spec/pools", json!(["ten-twelve"]), "spec.pools"),
        ("/spec/pools", json!(["10.0.0.9-10.0.1.9"]), "each of pools must lie in"),
        ("/spec/pools", json!([9]), "spec.pools"),
    ];
    check::<atoll_api::Subnet>("bad-subnet", right, table).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_field_of_a_port_that_is_wrong_is_refused_by_its_name() {
    let right = json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Port",
        "metadata": {"name": "web.net1", "namespace": "default"},
        "spec": {"network": "acme.default", "networkID": 7, "subnet": "acme.default.web",
                 "ips": ["10.0.0.5", "fd00::5"], "mac": "0a:04:0a:00:00:05", "persistent": true,
                 "pod": "web", "podUID": "u-1", "interface": "net1", "node": "node1",
                 "primary": false, "otherInterfaces": ["net2"], "routes": ["10.1.0.0/16"]}});
    let table: Vec<Wrong> = vec![
        ("/spec/network", Value::Null, "spec.network"),
        ("/spec/network", json!("default"), "<tenant>.<network>"),
        ("/spec/network", json!("acme.a.b"), "<tenant>.<network>"),
        ("/spec/network", json!("Acme.b"), "<tenant>.<network>"),
        ("/spec/network", json!(7), "spec.network"),
        ("/spec/networkID", json!(0), "spec.networkID"),
        ("/spec/networkID", json!(16_777_216), "spec.networkID"),
        ("/spec/networkID", json!("7"), "spec.networkID"),
        ("/spec/networkID", Value::Null, "a port of a pod needs networkID and interface"),
        ("/spec/subnet", json!(""), "spec.subnet"),
        ("/spec/subnet", json!("A b"), "subnet is the name of a subnet"),
        ("/spec/subnet", Value::Null, "networkID needs subnet, ips and mac"),
        ("/spec/ips", json!([]), "spec.ips"),
        ("/spec/ips", json!(["ten"]), "each of ips must be an IP address like 10.0.0.5"),
        ("/spec/ips", json!(["10.0.0.5/16"]), "each of ips must be an IP address like 10.0.0.5"),
        (
            "/spec/ips",
            json!(["10.0.0.5", "10.0.0.6"]),
            "at most one address of IPv4 and one of IPv6",
        ),
        ("/spec/ips", json!(["10.0.0.5", "fd00::5", "fd00::6"]), "spec.ips"),
        ("/spec/ips", json!("10.0.0.5"), "spec.ips"),
        ("/spec/ips", Value::Null, "networkID needs subnet, ips and mac"),
        ("/spec/mac", json!("10.0.0.5"), "a unicast MAC address like 02:00:0a:00:00:05"),
        ("/spec/mac", json!("ff:ff:ff:ff:ff:ff"), "a unicast MAC address like"),
        ("/spec/mac", json!("00:00:00:00:00:00"), "a unicast MAC address like"),
        ("/spec/mac", json!("0a:04:0a:00:00:05:06"), "spec.mac"),
        ("/spec/mac", Value::Null, "networkID needs subnet, ips and mac"),
        ("/spec/persistent", json!("yes"), "spec.persistent"),
        ("/spec/pod", json!(""), "spec.pod"),
        ("/spec/pod", json!("shop/web"), "pod is the name of a pod in the port's namespace"),
        ("/spec/pod", Value::Null, "pod and podUID go together"),
        ("/spec/podUID", json!(""), "spec.podUID"),
        ("/spec/podUID", json!("u".repeat(64)), "spec.podUID"),
        ("/spec/podUID", Value::Null, "pod and podUID go together"),
        ("/spec/interface", json!("lo"), "interface is a name like eth0"),
        ("/spec/interface", json!("eth_0"), "interface is a name like eth0"),
        ("/spec/interface", json!("a-very-long-name"), "spec.interface"),
        ("/spec/interface", Value::Null, "a port of a pod needs networkID and interface"),
        ("/spec/node", json!(""), "spec.node"),
        ("/spec/node", json!(1), "spec.node"),
        ("/spec/primary", json!("first"), "spec.primary"),
        ("/spec/otherInterfaces", json!(["lo"]), "each of otherInterfaces is a name like net1"),
        ("/spec/otherInterfaces", json!(["NET"]), "each of otherInterfaces is a name like net1"),
        ("/spec/otherInterfaces", json!("net2"), "spec.otherInterfaces"),
        ("/spec/otherInterfaces", json!(vec!["net2"; 17]), "spec.otherInterfaces"),
        ("/spec/routes", json!(["10.1.0.1/16"]), "each of routes must be a CIDR like 10.0.0.0/16"),
        ("/spec/routes", json!(["ten"]), "each of routes must be a CIDR like 10.0.0.0/16"),
        ("/spec/routes", json!("10.1.0.0/16"), "spec.routes"),
        ("/spec", Value::Null, "spec"),
    ];
    check::<atoll_api::Port>("bad-port", right, table).await;
}
