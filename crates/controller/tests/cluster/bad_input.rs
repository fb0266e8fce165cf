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
    let api = Api::<DynamicObject>::all_with(subject.client.clone(), &ApiResource::erase::<K>(&()));
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
                 "quota": {"networks": 3, "ports": 100}}});
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
