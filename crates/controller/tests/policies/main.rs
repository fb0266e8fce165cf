//! Who may do what: the roles and admission policies of `deploy/`, asked on a real API as the
//! people and programs that they are about. Each refusal stands beside what is allowed.

#![allow(clippy::unwrap_used, reason = "what a test needs must be there")]

mod cluster;

use atoll_api::{Claim, Network, NetworkType, Port, Subnet};
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::ListParams;
use serde_json::{Value, json};

use cluster::{Cluster, Who, allowed, refused, tier};

fn network(name: &str) -> Value {
    let tenant = name.split('.').next();
    json!({"metadata": {"name": name},
           "spec": {"tenant": tenant, "type": "vpc", "cidrs": ["10.0.0.0/16"]}})
}

fn subnet(name: &str, network: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"network": network, "cidr": "10.0.1.0/24"}})
}

fn port(name: &str, network: &str, node: &str) -> Value {
    json!({"metadata": {"name": name},
           "spec": {"network": network, "networkID": 7, "subnet": "s", "ips": ["10.0.0.5"],
                    "mac": "02:00:00:00:00:05", "pod": "web", "podUID": "u",
                    "interface": "eth0", "node": node}})
}

fn label(tenant: Option<&str>) -> Value {
    json!({"metadata": {"labels": {"atoll.dev/tenant": tenant}}})
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real API: make test-real"]
async fn only_administrators_give_a_namespace_to_a_tenant_or_take_it_away() {
    let cluster = Cluster::installed("label").await;
    let admin = cluster.all::<Namespace>(Who::Administrator);
    let alice = cluster.all::<Namespace>(Who::UserOf("acme"));
    let says = "only by who has the verb use";
    let born =
        |name: &str| json!({"metadata": {"name": name, "labels": {"atoll.dev/tenant": "acme"}}});
    refused(cluster::create(&alice, born("label-stolen")).await, says);
    allowed(cluster::create(&alice, json!({"metadata": {"name": "label-plain"}})).await);
    refused(cluster::patch(&alice, "label-plain", label(Some("acme"))).await, says);
    allowed(cluster::patch(&admin, "label-plain", label(Some("acme"))).await);
    refused(cluster::patch(&alice, "label-plain", label(Some("globex"))).await, says);
    refused(cluster::patch(&alice, "label-plain", label(None)).await, says);
    let other = json!({"metadata": {"labels": {"team": "shop"}}});
    allowed(cluster::patch(&alice, "label-plain", other).await);
    allowed(cluster::patch(&admin, "label-plain", label(None)).await);
    cluster::remove(&admin, "label-plain").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real API: make test-real"]
async fn a_tenants_users_read_and_write_only_their_own_networks_and_subnets() {
    let cluster = Cluster::installed("own").await;
    let admin = cluster.all::<Network>(Who::Administrator);
    allowed(cluster::create(&admin, network("globex.default")).await);
    let alice = cluster.all::<Network>(Who::UserOf("acme"));
    allowed(cluster::create(&alice, network("acme.default")).await);
    let says = "only by who has the verb manage";
    refused(cluster::create(&alice, network("globex.second")).await, says);
    refused(alice.get("acme.default").await.map(drop), "cannot get resource");
    cluster.give_role(&["acme.default"], &["own-ours"]).await;
    allowed(alice.get("acme.default").await.map(drop));
    let only = |name: &str| ListParams::default().fields(&format!("metadata.name={name}"));
    allowed(alice.list(&only("acme.default")).await.map(drop));
    refused(alice.list(&only("globex.default")).await.map(drop), "cannot list resource");
    refused(alice.get("globex.default").await.map(drop), "cannot get resource");
    refused(alice.list(&Default::default()).await.map(drop), "cannot list resource");
    let more = json!({"spec": {"cidrs": ["10.0.0.0/16", "10.1.0.0/16"]}});
    allowed(cluster::patch(&alice, "acme.default", more.clone()).await);
    refused(cluster::patch(&alice, "globex.default", more).await, "cannot patch resource");

    let subnets = cluster.all::<Subnet>(Who::UserOf("acme"));
    refused(cluster::create(&subnets, subnet("own-theirs", "globex.default")).await, says);
    allowed(cluster::create(&subnets, subnet("own-ours", "acme.default")).await);
    allowed(subnets.get("own-ours").await.map(drop));
    let role = cluster.all::<ClusterRole>(Who::UserOf("acme"));
    allowed(role.get("atoll.tenant.acme").await.map(drop));
    refused(role.get("edit").await.map(drop), "cannot get resource");
    let controller = cluster.all::<Network>(Who::Controller);
    for name in ["acme.default", "globex.default"] {
        let finalizers = json!({"metadata": {"finalizers": ["atoll.dev/cleanup"]}});
        allowed(cluster::patch(&controller, name, finalizers).await);
        allowed(cluster::patch(&controller, name, json!({"metadata": {"finalizers": null}})).await);
        cluster::remove(&controller, name).await;
    }
    cluster::remove(&cluster.all::<Subnet>(Who::Controller), "own-ours").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real API: make test-real"]
async fn only_the_controller_hands_out_addresses() {
    let cluster = Cluster::installed("hand").await;
    cluster.namespace("hand", "acme").await;
    let (alice, controller) = (Who::UserOf("acme"), Who::Controller);
    let theirs = cluster.inside::<Port>("hand", alice);
    let ours = cluster.inside::<Port>("hand", controller);
    let forged = port("forged.eth0", "acme.default", "node1");
    refused(cluster::create(&theirs, forged).await, "says nothing of pod, podUID, networkID");
    let foreign = port("foreign.eth0", "globex.default", "node1");
    refused(cluster::create(&theirs, foreign).await, "Forbidden");
    let beforehand = json!({"metadata": {"name": "door"}, "spec": {"network": "acme.default"}});
    allowed(cluster::create(&theirs, beforehand).await);
    cluster::remove(&ours, "door").await;
    allowed(cluster::create(&ours, port("web.eth0", "acme.default", "node1")).await);
    allowed(cluster::patch(&ours, "web.eth0", json!({"spec": {"node": "node2"}})).await);
    let editor = cluster.inside::<Port>("hand", Who::PortEditor);
    let moved = json!({"spec": {"node": "node3"}});
    refused(cluster::patch(&editor, "web.eth0", moved).await, "by the controller alone");
    let labels = json!({"metadata": {"labels": {"team": "shop"}}});
    allowed(cluster::patch(&editor, "web.eth0", labels).await);

    let claim = json!({"metadata": {"name": "address.7.10.0.0.5"},
        "spec": {"holder": {"kind": "Port", "namespace": "hand", "name": "web.eth0", "uid": "u"}}});
    let says = "claims are written by the controller alone";
    refused(cluster::create(&cluster.all::<Claim>(Who::PortEditor), claim.clone()).await, says);
    let claims = cluster.all::<Claim>(controller);
    allowed(cluster::create(&claims, claim).await);
    cluster::remove(&claims, "address.7.10.0.0.5").await;
    cluster::remove(&ours, "web.eth0").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real API: make test-real"]
async fn an_agent_writes_only_the_status_of_ports_of_its_own_node() {
    let cluster = Cluster::installed("agent").await;
    cluster.namespace("agent", "acme").await;
    let controller = cluster.inside::<Port>("agent", Who::Controller);
    allowed(cluster::create(&controller, port("web.eth0", "acme.default", "node1")).await);
    let attached = || json!({"status": {"phase": "Attached", "hostInterface": "at1"}});
    let report = async |who| {
        let agent = cluster.inside::<Port>("agent", who);
        cluster::patch_status(&agent, "web.eth0", attached()).await
    };
    let says = "an agent writes the status of ports of its own node";
    refused(report(Who::AgentOn(Some("node2"))).await, says);
    refused(report(Who::AgentOn(None)).await, says);
    allowed(report(Who::AgentOn(Some("node1"))).await);
    let agent = cluster.inside::<Port>("agent", Who::AgentOn(Some("node1")));
    let spec = json!({"spec": {"node": "node9"}});
    refused(cluster::patch(&agent, "web.eth0", spec).await, "cannot patch resource");
    cluster::remove(&controller, "web.eth0").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real API: make test-real"]
async fn a_provider_writes_the_status_of_networks_of_its_own_type_alone() {
    let cluster = Cluster::installed("provide").await;
    let admin = cluster.all::<Network>(Who::Administrator);
    let ours = cluster.all::<Network>(Who::Controller);
    let provider = cluster.all::<Network>(Who::Provider);
    let types = cluster.all::<NetworkType>(Who::Administrator);
    let registration = json!({"metadata": {"name": "sdn"}, "spec": {"provider": "sdn.example/p"}});
    allowed(cluster::create(&types, registration).await);
    for (name, type_) in [("acme.theirs", "sdn"), ("acme.others", "mizar")] {
        let spec = json!({"tenant": "acme", "type": type_});
        let network = json!({"metadata": {"name": name}, "spec": spec});
        allowed(cluster::create(&admin, network).await);
    }
    allowed(cluster::create(&admin, network("acme.vpc")).await);
    let active = || json!({"status": {"phase": "Active"}});
    allowed(cluster::patch_status(&provider, "acme.theirs", active()).await);
    let says = "only by who has the verb provide on this NetworkType";
    for name in ["acme.others", "acme.vpc"] {
        refused(cluster::patch_status(&provider, name, active()).await, says);
        allowed(cluster::patch_status(&ours, name, active()).await);
    }
    let condition = json!({"type": "Provided", "status": "True", "reason": "Mine", "message": "",
                           "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let provided = json!({"status": {"conditions": [condition]}});
    let says = "Provided is written by the controller alone";
    refused(cluster::patch_status(&provider, "acme.theirs", provided).await, says);
    let spec = json!({"spec": {"dns": {"mode": "dedicated"}}});
    refused(cluster::patch(&provider, "acme.theirs", spec).await, "cannot patch resource");
    for name in ["acme.theirs", "acme.others", "acme.vpc"] {
        cluster::remove(&ours, name).await;
    }
    cluster::remove(&types, "sdn").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real API: make test-real"]
async fn only_administrators_export_services_to_tenants() {
    let cluster = Cluster::installed("export").await;
    let namespaces = cluster.all::<Namespace>(Who::Administrator);
    allowed(cluster::create(&namespaces, json!({"metadata": {"name": "export-infra"}})).await);
    let admin = cluster.inside::<Service>("export-infra", Who::Administrator);
    let alice = cluster.inside::<Service>("export-infra", Who::UserOf("acme"));
    let service = |marks: Value| {
        let mut metadata = json!({"name": "registry"});
        metadata.as_object_mut().unwrap().extend(marks.as_object().unwrap().clone());
        json!({"metadata": metadata, "spec": {"ports": [{"port": 80}]}})
    };
    let to = |value: Option<&str>| json!({"labels": {"atoll.dev/export": value}});
    let marked = |value: Option<&str>| json!({"metadata": to(value)});
    let says = "only by who has the verb export on tenants";
    refused(cluster::create(&alice, service(to(Some("all")))).await, says);
    allowed(cluster::create(&alice, service(json!({}))).await);
    refused(cluster::patch(&alice, "registry", marked(Some("all"))).await, says);
    refused(cluster::patch_status(&alice, "registry", marked(Some("all"))).await, says);
    let status = json!({"status": {"loadBalancer": {}}});
    allowed(cluster::patch_status(&alice, "registry", status).await);
    allowed(cluster::patch(&admin, "registry", marked(Some("all"))).await);
    refused(cluster::patch(&alice, "registry", marked(None)).await, says);
    let ports = json!({"spec": {"ports": [{"port": 81}]}});
    allowed(cluster::patch(&alice, "registry", ports).await);
    let nonsense = marked(Some("acme"));
    refused(cluster::patch(&admin, "registry", nonsense).await, "\"all\" or \"listed\"");
    refused(cluster::patch(&admin, "registry", marked(Some("listed"))).await, "must list tenants");
    let listed = json!({"metadata": {"labels": {"atoll.dev/export": "listed"},
                                     "annotations": {"atoll.dev/export-to": "acme, globex"}}});
    allowed(cluster::patch(&admin, "registry", listed).await);
    let inside = cluster.inside::<Service>("hand", Who::Administrator);
    refused(cluster::create(&inside, service(to(Some("all")))).await, "namespaces of no tenant");
    cluster::remove(&namespaces, "export-infra").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real API: make test-real"]
async fn the_tiers_of_a_tenant_are_written_by_its_own_administrators_and_the_clusters_by_its() {
    let cluster = Cluster::installed("tiers").await;
    let (admin, alice) = (cluster.tiers(Who::Administrator), cluster.tiers(Who::UserOf("acme")));
    let (own, all) = ("only by who has the verb manage", "only by who has the verb police");
    allowed(cluster::create(&alice, tier("tiers-ours", Some("acme"))).await);
    refused(cluster::create(&alice, tier("tiers-theirs", Some("globex"))).await, own);
    refused(cluster::create(&alice, tier("tiers-theirs", Some("no.name"))).await, own);
    for nobody in [None, Some("")] {
        refused(cluster::create(&alice, tier("tiers-all", nobody)).await, all);
    }
    allowed(cluster::create(&admin, tier("tiers-all", None)).await);
    allowed(cluster::create(&admin, tier("tiers-theirs", Some("globex"))).await);
    let first = json!({"spec": {"priority": 0}});
    allowed(cluster::patch(&alice, "tiers-ours", first.clone()).await);
    refused(cluster::patch(&alice, "tiers-theirs", first.clone()).await, own);
    refused(cluster::patch(&alice, "tiers-all", first).await, all);
    refused(cluster::patch(&alice, "tiers-ours", label(None)).await, all);
    refused(cluster::patch(&alice, "tiers-ours", label(Some("globex"))).await, own);
    refused(cluster::patch(&alice, "tiers-theirs", label(Some("acme"))).await, own);
    refused(cluster::patch(&alice, "tiers-all", label(Some("acme"))).await, all);
    refused(alice.delete("tiers-theirs", &Default::default()).await.map(drop), own);
    refused(alice.delete("tiers-all", &Default::default()).await.map(drop), all);
    cluster::remove(&alice, "tiers-ours").await;
    cluster::remove(&admin, "tiers-theirs").await;
    cluster::remove(&admin, "tiers-all").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real API: make test-real"]
async fn the_controller_writes_the_roles_of_tenants_and_no_other_and_gives_no_more_than_it_has() {
    let cluster = Cluster::installed("roles").await;
    let roles = cluster.all::<ClusterRole>(Who::Controller);
    let role = |name: &str, rule: Value| json!({"metadata": {"name": name}, "rules": [rule]});
    let modest = json!({"apiGroups": ["atoll.dev"], "resources": ["networks"],
                        "resourceNames": ["globex.default"], "verbs": ["get"]});
    let greedy = json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]});
    allowed(cluster::create(&roles, role("atoll.tenant.globex", modest.clone())).await);
    let says = "the controller writes the roles of tenants alone";
    refused(cluster::create(&roles, role("test-other", modest.clone())).await, says);
    refused(cluster::patch(&roles, "test-ports", label(None)).await, says);
    refused(roles.delete("test-ports", &Default::default()).await.map(drop), says);
    let more = json!({"rules": [greedy]});
    refused(cluster::patch(&roles, "atoll.tenant.globex", more).await, "attempting to grant RBAC");
    cluster::remove(&roles, "atoll.tenant.globex").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real API: make test-real"]
async fn the_controller_writes_the_status_of_resource_claims_and_nothing_else_of_them() {
    let cluster = Cluster::installed("claims").await;
    let admin = cluster.inside::<ResourceClaim>("hand", Who::Administrator);
    let controller = cluster.inside::<ResourceClaim>("hand", Who::Controller);
    let claim = json!({"metadata": {"name": "nets"}, "spec": {"devices": {}}});
    allowed(cluster::create(&admin, claim).await);
    controller.get("nets").await.unwrap();
    let status = json!({"status": {"devices": []}});
    allowed(cluster::patch_status(&controller, "nets", status).await);
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    refused(cluster::patch(&controller, "nets", label).await, "cannot patch resource");
    let gone = controller.delete("nets", &Default::default()).await.map(drop);
    refused(gone, "cannot delete resource");
    cluster::remove(&admin, "nets").await;
}
