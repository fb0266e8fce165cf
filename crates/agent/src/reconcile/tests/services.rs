//! Services on their way into a kernel made of maps.

use std::net::Ipv4Addr;
use std::time::Instant;

use atoll_model::compile::{EndpointGroup, Outlet, ServiceFront};
use atoll_model::outside::{Held, Purpose};
use serde_json::json;

use super::*;

fn quarter() -> (String, String) {
    ("acme.default".into(), "acme".into())
}

fn front(last: u8) -> ServiceFront {
    let spec = json!({"clusterIPs": [format!("10.96.0.{last}")], "ports": [{"port": 80}]});
    ServiceFront::read(&serde_json::from_value(json!({"spec": spec})).unwrap()).unwrap()
}

fn group(service: &str, pod: &str) -> EndpointGroup {
    let labels = json!({"kubernetes.io/service-name": service});
    let target = json!({"kind": "Pod", "name": pod});
    let slice = json!({
        "metadata": {"namespace": "acme", "labels": labels}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.1"], "targetRef": target}],
        "ports": [{"port": 8080}],
    });
    EndpointGroup::read(&serde_json::from_value(slice).unwrap()).unwrap()
}

impl Agent {
    /// A pod here and one elsewhere, in a tenant's namespace.
    async fn see_pods(&self) {
        let tenant = Tenancy::Tenant("acme.default".into());
        self.change(Change::Namespaces(Delta::All([("acme".to_owned(), tenant.into())].into())))
            .await;
        self.see(&[port("web", 5, "node1"), port("db", 6, "node2")]).await;
        self.change(Change::Held("acme.default".into(), Delta::All([].into()))).await;
    }

    /// Ten services, each with the pod `web` behind it.
    async fn see_services(&self) {
        let name = |number: u8| format!("service-{number}");
        let fronts = (1..=10).map(|number| (name(number), front(number)));
        self.change(Change::Fronts(quarter(), Delta::All(fronts.collect()))).await;
        let groups = (1..=10).map(|number| (name(number), group(&name(number), "web")));
        self.change(Change::Groups(quarter(), Delta::All(groups.collect()))).await;
    }

    /// Waits until the kernel has as many services, and gives the number of backends.
    async fn serves(&self, services: usize) -> usize {
        loop {
            let served = self.observed().services;
            if served.len() == services {
                return served.values().map(|service| service.backends.len()).sum();
            }
            tokio::task::yield_now().await;
        }
    }

    /// Tells of a change, and waits until the actor is through with it.
    async fn hear(&self, change: Change) {
        self.change(change).await;
        while self.changes.capacity() < self.changes.max_capacity() {
            tokio::task::yield_now().await;
        }
        self.ask(AgentRequest::Status).await;
    }

    async fn steps_of(&self, change: Change) -> usize {
        let before = self.kernel.0.lock().unwrap().steps;
        self.hear(change).await;
        self.kernel.0.lock().unwrap().steps - before
    }
}

#[tokio::test]
async fn services_are_programmed_with_their_backends_and_one_change_is_one_step() {
    let agent = Agent::start();
    agent.see_pods().await;
    agent.see_services().await;
    assert_eq!(agent.serves(10).await, 10);
    let moved = Delta::Put("service-3".to_owned(), group("service-3", "db"));
    assert_eq!(agent.steps_of(Change::Groups(quarter(), moved)).await, 1);
    let gone = Delta::Gone("service-3".to_owned());
    assert_eq!(agent.steps_of(Change::Fronts(quarter(), gone)).await, 1);
    assert_eq!(agent.serves(9).await, 9);
}

#[tokio::test]
async fn a_pod_that_goes_leaves_the_services_that_it_was_behind() {
    let agent = Agent::start();
    agent.see_pods().await;
    agent.see_services().await;
    assert_eq!(agent.serves(10).await, 10);
    let gone = Delta::Gone(key(&port("web", 5, "node1")));
    agent.hear(Change::NetworkPorts(network(1), gone)).await;
    assert_eq!(agent.serves(10).await, 0, "the services stay, and refuse");
}

#[tokio::test]
async fn a_restarted_agent_keeps_services_until_it_has_seen_theirs() {
    let agent = Agent::start();
    agent.see_pods().await;
    agent.see_services().await;
    let before = agent.serves(10).await;
    let agent = agent.restart().await;
    agent.see_pods().await;
    agent.settle().await;
    assert_eq!(agent.serves(10).await, before);
    agent.hear(Change::Fronts(quarter(), Delta::All([].into()))).await;
    assert_eq!(agent.serves(10).await, before, "the slices were not seen");
    agent.change(Change::Groups(quarter(), Delta::All([].into()))).await;
    agent.serves(0).await;
}

const OUTSIDE: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9));
/// How long the neighbours may wait on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const CLAIM: &str = "outside.203.0.113.9";

/// Word of a claim that gives the address to this node, for a network.
fn answered(network: &str) -> Delta<String, Held> {
    let purpose = Purpose::Egress { network: network.into() };
    let held = Held { address: OUTSIDE, node: "node1".into(), purpose };
    Delta::Put(CLAIM.to_owned(), held)
}

#[tokio::test]
async fn a_node_answers_for_an_address_for_as_long_as_a_claim_says_so_and_knows_whose_it_is() {
    let agent = Agent::start();
    agent.see_pods().await;
    agent.settle().await;
    agent.hear(Change::Answered(answered("hooli.default"))).await;
    assert!(agent.observed().held.is_empty(), "nobody knows the number of its network");
    let outlet = Outlet { id: Some(network(9)), ..Outlet::default() };
    let all = Delta::All([("hooli.default".to_owned(), outlet)].into());
    agent.hear(Change::Outlet("hooli.default".into(), all)).await;
    assert_eq!(agent.observed().held, [(OUTSIDE, Some(network(9)))].into());
    agent.hear(Change::Answered(Delta::Gone(CLAIM.to_owned()))).await;
    assert!(agent.observed().held.is_empty());
}

impl Agent {
    /// Waits until the neighbours were told of the address so many times.
    async fn announces(&self, times: usize) {
        let told = || self.kernel.0.lock().unwrap().announced.clone();
        let start = Instant::now();
        while told().len() < times {
            assert!(start.elapsed() < PATIENCE, "the neighbours heard no more than {:?}", told());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(told(), vec![[OUTSIDE].into(); times]);
    }
}

#[tokio::test]
async fn an_address_that_was_anothers_while_nobody_listened_is_announced_again() {
    let agent = Agent::start();
    agent.see_pods().await;
    agent.settle().await;
    agent.hear(Change::Answered(answered("acme.default"))).await;
    agent.announces(3).await;
    let before = agent.kernel.0.lock().unwrap().steps;
    for change in [Delta::Gone(CLAIM.to_owned()), answered("acme.default")] {
        agent.changes.try_send(Change::Answered(change)).unwrap();
    }
    agent.announces(6).await;
    assert_eq!(agent.kernel.0.lock().unwrap().steps, before, "the kernel has it as it had it");
}

#[tokio::test]
async fn a_service_that_fails_waits_its_turn_whatever_is_heard_and_holds_up_no_pod() {
    let agent = Agent::trusting();
    agent.see_pods().await;
    agent.settle().await;
    agent.kernel.0.lock().unwrap().refuses_services = true;
    let started = Instant::now();
    agent.see_services().await;
    for round in 0..200_u16 {
        let spare = port(&format!("pod-{round}"), 100, "node2");
        let put = Delta::Put(key(&spare), spare.clone());
        agent.hear(Change::NetworkPorts(network(1), put)).await;
    }
    assert!(matches!(agent.ask(add("web")).await, AgentReply::Attached(_)));
    assert_eq!(agent.ask(AgentRequest::Del(id("web"))).await, AgentReply::Done);
    let (refused, looks) = {
        let state = agent.kernel.0.lock().unwrap();
        (state.refused, state.looks)
    };
    let rounds = 3 + usize::try_from(started.elapsed().as_secs()).unwrap();
    assert!((10..=10 * rounds).contains(&refused), "{refused} attempts");
    assert!(looks <= 3 + 2 * rounds, "{looks} looks");
    agent.kernel.0.lock().unwrap().refuses_services = false;
    assert_eq!(agent.serves(10).await, 10, "nobody asked for it");
}

#[tokio::test]
async fn what_has_no_room_is_not_tried_and_comes_in_when_another_goes() {
    let agent = Agent::with_room_for(12);
    agent.see_pods().await;
    agent.see_services().await;
    assert_eq!(agent.serves(6).await, 6);
    let before = agent.observed().services;
    let key = *before.keys().find(|key| key.ip == IpAddr::from([10, 96, 0, 1])).unwrap();
    agent.hear(Change::Fronts(quarter(), Delta::Gone("service-1".to_owned()))).await;
    assert_eq!(agent.serves(6).await, 6);
    assert!(!agent.observed().services.contains_key(&key));
}
