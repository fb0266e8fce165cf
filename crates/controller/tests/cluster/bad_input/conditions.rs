//! What only the controller can see to be wrong: an object is taken, and its condition, or an event
//! of a pod or a service, names the field and says what would be right.

use std::fmt::Debug;

use atoll_api::{AddressPool, Network, Subnet, Tenant};
use atoll_controller::ControllerConfig;
use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Api, DeleteParams};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::subject::{Subject, eventually, make, pod, remove, remove_pods, try_make};

/// Makes an object, and waits until one of its conditions says this.
async fn told<K>(api: &Api<K>, object: Value, type_: &str, says: &str)
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
{
    let name = make(api, object).await.name_any();
    eventually(|| async {
        let found = serde_json::to_value(api.get(&name).await.unwrap()).unwrap();
        let conditions = found["status"]["conditions"].clone();
        let conditions: Vec<Condition> = serde_json::from_value(conditions).unwrap_or_default();
        let about = conditions.into_iter().find(|it| it.type_ == type_)?;
        about.message.contains(says).then_some(())
    })
    .await;
    api.delete(&name, &DeleteParams::default()).await.unwrap();
}

fn named(name: &str, spec: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec})
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_the_controller_sees_to_be_wrong_is_said_in_a_condition_by_its_field() {
    let subject = Subject::new("seen").await;
    let _controller = subject.start(ControllerConfig::default());
    let acme = subject.unique("acme");
    subject.make_tenant(&acme, "10.0.0.0/16").await;
    let default = format!("{acme}.default");
    subject.network_in_phase(&default, "Active").await;
    let networks = subject.all::<Network>();
    let bad = |changes: Value| {
        let mut spec = json!({"tenant": acme, "type": "vpc", "cidrs": ["10.0.0.0/16"]});
        spec.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        named(&format!("{acme}.bad"), &spec)
    };
    for (changes, type_, says) in [
        (json!({"type": "sdn"}), "Ready", "spec.type: no provider serves networks of type sdn"),
        (json!({"vpcID": "default"}), "Ready", "spec.cidrs: 10.0.0.0/16 overlaps 10.0.0.0/16 of"),
        (json!({"cidrs": ["198.18.0.0/15"]}), "Ready", "spec.cidrs: 198.18.0.0/15 overlaps 198.18"),
        (json!({"dns": {"upstreams": ["192.0.2.53:99999"]}}), "Ready", "spec.dns.upstreams[0]: "),
        (
            json!({"egress": {"mode": "address", "addresses": ["192.0.2.9"]}}),
            "Egress",
            "spec.egress.addresses: 192.0.2.9 is in no pool of tenant",
        ),
    ] {
        told(&networks, bad(changes), type_, says).await;
        gone(&networks, &format!("{acme}.bad")).await;
    }
    let orphan = json!({"tenant": "nobody", "type": "vpc", "cidrs": ["10.0.0.0/16"]});
    let says = "spec.tenant: tenant nobody does not exist";
    told(&networks, named("nobody.default", &orphan), "Ready", says).await;
    gone(&networks, "nobody.default").await;
    assert_subnets_and_pools_are_told(&subject, &default).await;
    let tenants = subject.all::<Tenant>();
    let wide = json!({"defaultNetwork": {"type": "vpc", "cidrs": ["198.18.0.0/16"]}});
    let name = subject.unique("wide");
    told(&tenants, named(&name, &wide), "Ready", "waits for its default network").await;
    subject.remove_tenant(&acme).await;
}

async fn gone(networks: &Api<Network>, name: &str) {
    eventually(|| async { networks.get_opt(name).await.unwrap().is_none().then_some(()) }).await;
}

async fn assert_subnets_and_pools_are_told(subject: &Subject, network: &str) {
    let subnets = subject.all::<Subnet>();
    for (number, (spec, says)) in [
        (
            json!({"network": network, "cidr": "10.9.0.0/24"}),
            "spec.cidr: 10.9.0.0/24 lies in no range of network",
        ),
        (json!({"network": network, "cidr": "10.0.0.0/16"}), "spec.cidr: subnet "),
        (json!({"network": "acme.nowhere", "cidr": "10.0.0.0/24"}), "spec.network: network acme."),
        (
            json!({"network": network, "cidr": "10.0.1.0/24", "excluded": ["10.0.1.20-10.0.1.10"]}),
            "spec.excluded",
        ),
        (
            json!({"network": network, "cidr": "10.0.1.0/24", "pools": ["10.0.1.20-10.0.1.10"]}),
            "spec.pools",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let name = subject.unique(&format!("subnet-{number}"));
        told(&subnets, named(&name, &spec), "Ready", says).await;
    }
    let local = named(&subject.unique("local"), &json!({"cidrs": ["127.0.0.0/8"]}));
    let says = "spec.cidrs[0]: 127.0.0.0/8 has addresses of 127.0.0.0/8";
    told(&subject.all::<AddressPool>(), local, "HasRoom", says).await;
}

/// The labels and annotations that people write, as the API's crate lists them.
fn marks_of_people() -> Vec<String> {
    let source = include_str!("../../../../api/src/marks.rs");
    let parts = source.split("\n\n").filter(|part| part.contains("pub const"));
    let of_people = parts.filter(|part| {
        let says = part.replace("\n/// ", " ");
        let is_mark = says.starts_with("/// Label of") || says.starts_with("/// Annotation of");
        is_mark && !says.contains("that the controller writes") && !says.contains("definition")
    });
    let value = |part: &str| part.split('"').rev().nth(1).unwrap().to_owned();
    of_people.map(value).collect()
}

/// Where each mark's wrong values are said: here, or by those who read it.
const SAID_ELSEWHERE: [&str; 3] =
    ["atoll.dev/export", "atoll.dev/export-to", "atoll.dev/policy-networks"];

fn marked(name: &str, kind: &str, mark: &str, value: &str) -> Value {
    let mut pod = pod(name);
    pod["metadata"][kind][mark] = json!(value);
    pod
}

#[tokio::test(flavor = "multi_thread")]
async fn each_label_and_annotation_that_is_wrong_is_said_in_an_event_by_its_name() {
    let subject = Subject::new("marks").await;
    let _controller = subject.start(ControllerConfig::default());
    let acme = subject.unique("acme");
    subject.make_tenant(&acme, "10.0.0.0/16").await;
    let right = "1 to 63 lower-case letters, digits and inner dashes";
    let on_pods = [
        ("labels", "atoll.dev/network", "Net_1", right),
        ("labels", "arktos.futurewei.com/network", "Net_1", right),
        ("annotations", "atoll.dev/nics", "ten", "must be a JSON list like"),
        ("annotations", "atoll.dev/extra-networks", "globex.b", right),
        ("annotations", "atoll.dev/persistent", "yes", "is neither \"true\" nor \"false\""),
    ];
    let mut seen: Vec<String> = Vec::new();
    for (number, (kind, mark, value, says)) in on_pods.into_iter().enumerate() {
        let name = format!("wrong-{number}");
        make(&subject.pods(&acme), marked(&name, kind, mark, value)).await;
        let said = subject.event(&name, "RequestMalformed").await;
        assert!(said.contains(mark) && said.contains(says), "{mark}: {said}");
        seen.push(mark.to_owned());
    }
    seen.extend(wrong_vip_and_tenant_are_told(&subject, &acme, right).await);
    let read: Vec<String> = marks_of_people();
    assert!(read.len() >= 9, "the marks were found: {read:?}");
    for mark in read.iter().filter(|mark| !SAID_ELSEWHERE.contains(&mark.as_str())) {
        assert!(seen.contains(mark), "no case for {mark}");
    }
    subject.remove_tenant(&acme).await;
}

/// Of a service and of namespaces.
async fn wrong_vip_and_tenant_are_told(subject: &Subject, acme: &str, right: &str) -> Vec<String> {
    let service = json!({"metadata": {"name": "vip", "annotations": {"atoll.dev/vip": "ten"}},
                         "spec": {"ports": [{"port": 80}], "selector": {"app": "web"}}});
    make(&subject.inside::<Service>(acme), service).await;
    let said = subject.event("vip", "RequestMalformed").await;
    assert!(said.contains("atoll.dev/vip") && said.contains("address"), "{said}");
    wrong_openings_are_told(subject, acme).await;
    let odd = subject.unique("odd");
    for (mark, tenant, network) in
        [("atoll.dev/tenant", "No_Such", "default"), ("atoll.dev/network", acme, "Net_1")]
    {
        let labels = json!({"atoll.dev/tenant": tenant, "atoll.dev/network": network});
        let namespace = json!({"metadata": {"name": odd, "labels": labels}});
        // An API that takes manifests of other designs reads the labels itself.
        if let Err(refused) = try_make(&subject.all::<Namespace>(), namespace).await {
            let refused = refused.to_string();
            assert!(refused.contains("metadata.labels") && refused.contains(right), "{refused}");
            continue;
        }
        let name = format!("in-{}", tenant.to_lowercase().replace('_', "-"));
        make::<Pod>(&subject.pods(&odd), pod(&name)).await;
        let said = subject.event(&name, "RequestMalformed").await;
        assert!(said.contains(&format!("label {mark} of namespace {odd}")), "{said}");
        assert!(said.contains(right), "{said}");
        remove_pods(&subject.pods(&odd)).await;
        remove(&subject.all::<Namespace>(), &odd).await;
    }
    let of_services = ["atoll.dev/vip", "atoll.dev/open", "atoll.dev/open-to", "atoll.dev/tenant"];
    of_services.map(Into::into).into()
}

async fn wrong_openings_are_told(subject: &Subject, acme: &str) {
    for (name, label, to, says) in [
        ("open", "everybody", "", "label atoll.dev/open is"),
        ("open-to", "listed", "Not/One", "annotation atoll.dev/open-to"),
    ] {
        let metadata = json!({"name": name, "labels": {"atoll.dev/open": label},
                              "annotations": {"atoll.dev/open-to": to}});
        let spec = json!({"type": "NodePort", "ports": [{"port": 80}]});
        let service = json!({"metadata": metadata, "spec": spec});
        make(&subject.inside::<Service>(acme), service).await;
        let said = subject.event(name, "RequestMalformed").await;
        assert!(said.contains(says), "{said}");
    }
}
