//! A node that dies: how soon what it answered for is answered by another node.
//!
//! On the lab a node dies by losing its wire and its agent standing still. What Kubernetes does when
//! a node's lease was not renewed for long enough is done here at once, by hand: the node is said
//! not to be ready, and its endpoints too. What is measured begins there, and is ours.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use atoll_api::{AddressPool, Claim, Network};
use atoll_testkit::Namespace;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::wait::await_condition;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::document::Judged;
use crate::goal::Goal;
use crate::lab::{self, Lab, NODES};
use crate::node::client;
use crate::sample::Sample;
use crate::table::Table;
use crate::volley::{Answers, Volley};

/// What Kubernetes waits for the lease of a node by default (`--node-monitor-grace-period`).
const GRACE: Duration = Duration::from_secs(50);
/// How soon what a dead node answered for must pass elsewhere, once it is said.
const LIMIT_MS: f64 = 1_000.0;
/// How long a node is away before it is said to be.
const AWAY: Duration = Duration::from_millis(500);
/// The machine outside, as the lab has it.
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(172, 30, 0, 1);
/// The address that the network leaves by, of the pool below.
const EXIT: Ipv4Addr = Ipv4Addr::new(172, 30, 0, 208);
const POOLS: [(&str, &str); 2] = [("edge", "172.30.0.200/30"), ("exits", "172.30.0.208/30")];
/// Where pods and the outside answer, and the port of the services.
const PORT: u16 = 7000;
const SERVICE_PORT: u16 = 80;
/// As many ports of the outside are asked in turns: what leaves by an address has 5433 ports towards
/// each of them, which one alone would see the end of in eleven seconds.
const OUTSIDE_PORTS: u16 = 8;
/// What the outside answers to whom it should see.
const AS_WANTED: u8 = b'y';
/// How long the cluster may take to decide.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a table and its notes say.
pub(super) const NOTES: &str = "\
*A node dies*: three nodes of a lab, each with a pod of one network. One loses its wire, and its agent \
stands still. Half a second later, the node and its endpoints are said not to be ready, which \
Kubernetes does by default when a node's lease was not renewed for 50 s: from then on the time is \
ours. Datagrams are sent every two milliseconds, each from a port of its own: from outside to a load \
balancer whose address was at the node, from a pod to eight ports outside in turns by the network's own \
address, which was at the node, and from a pod to a service with an endpoint on each node. *Decided*: the claim names \
another node. *Passes*: from then on every datagram is answered, by whom it should be, as whom it \
should be. The goal is a second for the slowest.";

/// What was answered for by the node that died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moved {
    Balancer,
    Exit,
    Endpoint,
}

impl Moved {
    const ALL: [Moved; 3] = [Moved::Balancer, Moved::Exit, Moved::Endpoint];

    fn name(self) -> &'static str {
        match self {
            Moved::Balancer => "the address of a load balancer",
            Moved::Exit => "the address that a network leaves by",
            Moved::Endpoint => "an endpoint of a service is not chosen any more",
        }
    }
}

/// What one death showed of one thing, in milliseconds after it was said.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Seen {
    what: Moved,
    decided: Option<f64>,
    passes: f64,
}

/// Lets nodes die so many times.
pub(super) fn measure(atoll: &Path, times: usize) -> Result<(Table, Vec<Judged>)> {
    let scene = Scene::set(atoll)?;
    let mut seen = vec![];
    for number in 0..times {
        eprint!("\rfaults: death {} of {times}", number + 1);
        seen.extend(scene.die_with_balancer()?);
        seen.push(scene.die_with_exit()?);
    }
    eprintln!();
    Ok((table(&seen), judge(&seen)))
}

/// The slowest of each.
fn judge(seen: &[Seen]) -> Vec<Judged> {
    let slowest = |what: Moved| {
        let passes = Sample::new(seen.iter().filter(|it| it.what == what).map(|it| it.passes));
        let share = Sample::new([passes.quantile(1.0) / LIMIT_MS]);
        let what = format!("a node dies: {}, slowest against 1 s", what.name());
        Judged::new(what, Goal::AtMost(1.0), &share)
    };
    Moved::ALL.map(slowest).into()
}

fn table(seen: &[Seen]) -> Table {
    let columns = [
        "what moves",
        "deaths",
        "decided p50 ms",
        "passes p50 ms",
        "slowest ms",
        "with 50 s of grace",
    ];
    let mut table = Table::new(columns);
    for what in Moved::ALL {
        let own = || seen.iter().filter(move |it| it.what == what);
        let decided: Vec<f64> = own().filter_map(|it| it.decided).collect();
        let decided =
            (!decided.is_empty()).then(|| format!("{:.0}", Sample::new(decided).median()));
        let passes = Sample::new(own().map(|it| it.passes));
        let whole = GRACE.as_secs_f64() + passes.median() / 1e3;
        table.row([
            what.name().to_owned(),
            passes.len().to_string(),
            decided.unwrap_or_default(),
            format!("{:.0}", passes.median()),
            format!("{:.0}", passes.quantile(1.0)),
            format!("{whole:.1} s"),
        ]);
    }
    table
}

/// The lab, its pods and who answers where.
struct Scene<'a> {
    pods: Vec<Namespace>,
    outside: Namespace,
    balancer: IpAddr,
    service: IpAddr,
    _answers: Vec<Answers>,
    client: Client,
    runtime: Runtime,
    lab: Lab<'a>,
}

impl Scene<'_> {
    fn set(atoll: &Path) -> Result<Scene<'_>> {
        let (lab, runtime) = (Lab::up(atoll, "death")?, Runtime::new()?);
        let client = runtime.block_on(client(&lab.kubeconfig()?))?;
        let (balancer, service) = runtime.block_on(fill(&client))?;
        let pods = runtime.block_on(lab::ready_pods(&client))?;
        let pods = pods.iter().map(|pod| lab.inside(pod)).collect::<Result<Vec<_>>>()?;
        let outside = lab.outside();
        let is_exit = |from: IpAddr| if from == IpAddr::V4(EXIT) { AS_WANTED } else { b'n' };
        let answer = |target: SocketAddr| Answers::start(&outside, target.port(), is_exit);
        let mut answers = outside_targets().into_iter().map(answer).collect::<Result<Vec<_>>>()?;
        for (number, pod) in pods.iter().enumerate() {
            let word = word(number);
            answers.push(Answers::start(pod, PORT, move |_| word)?);
        }
        Ok(Scene { pods, outside, balancer, service, _answers: answers, client, runtime, lab })
    }

    /// The holder of the load balancer's address dies; there is an endpoint on it, too.
    fn die_with_balancer(&self) -> Result<[Seen; 2]> {
        let claim = claim_of(self.balancer);
        let dying = self.holder(&claim, |_| true)?;
        self.serve("edge", |number| number != dying)?;
        self.serve("shop", |_| true)?;
        let target = |ip| SocketAddr::new(ip, SERVICE_PORT);
        let asking = living(dying)[0];
        let edge = Volley::start(&self.outside, target(self.balancer));
        let shop = Volley::start(&self.pods[asking], target(self.service));
        let others = |answer: Option<u8>| {
            answer.is_some_and(|it| (0..NODES.len()).any(|n| n != dying && word(n) == it))
        };
        edge.settles(Instant::now(), others)?;
        shop.settles(Instant::now(), |answer| answer.is_some())?;
        let death = self.kill(dying)?;
        let since = self.say(dying, false)?;
        let told = Instant::now();
        self.serve("shop", |number| number != dying)?;
        self.holder(&claim, |node| node != dying)?;
        let decided = Some(milliseconds(since.elapsed()));
        let edge = milliseconds(edge.settles(since, others)?);
        let shop = milliseconds(shop.settles(told, others)?);
        let seen = [
            Seen { what: Moved::Balancer, decided, passes: edge },
            Seen { what: Moved::Endpoint, decided: None, passes: shop },
        ];
        drop(death);
        self.say(dying, true)?;
        self.holder(&claim, |node| node == dying)?;
        Ok(seen)
    }

    /// The holder of the address that the network leaves by dies.
    fn die_with_exit(&self) -> Result<Seen> {
        let claim = claim_of(EXIT.into());
        let dying = self.holder(&claim, |_| true)?;
        let wanted = |answer: Option<u8>| answer == Some(AS_WANTED);
        let exit = Volley::in_turns(&self.pods[living(dying)[0]], outside_targets());
        exit.settles(Instant::now(), wanted)?;
        let death = self.kill(dying)?;
        let since = self.say(dying, false)?;
        self.holder(&claim, |node| node != dying)?;
        let decided = Some(milliseconds(since.elapsed()));
        let passes = milliseconds(exit.settles(since, wanted)?);
        drop(death);
        self.say(dying, true)?;
        self.holder(&claim, |node| node == dying)?;
        exit.settles(Instant::now(), wanted)?;
        Ok(Seen { what: Moved::Exit, decided, passes })
    }

    /// The number of the node that a claim names, once it is one that is wanted.
    fn holder(&self, claim: &str, wanted: impl Fn(usize) -> bool) -> Result<usize> {
        let node = |claim: &Claim| {
            let name = claim.spec.node.as_deref()?;
            NODES.iter().position(|node| *node == name)
        };
        let claims = Api::<Claim>::all(self.client.clone());
        let is_wanted = |it: Option<&Claim>| it.and_then(node).is_some_and(&wanted);
        let found = self.runtime.block_on(async {
            tokio::time::timeout(PATIENCE, await_condition(claims, claim, is_wanted)).await
        });
        let found = found.with_context(|| format!("{claim} did not move"))??;
        found.as_ref().and_then(node).with_context(|| format!("{claim} names no node"))
    }

    /// Says which pods are ready behind a service.
    fn serve(&self, service: &str, is_ready: impl Fn(usize) -> bool) -> Result<()> {
        let slices = lab::namespaced::<EndpointSlice>(&self.client);
        let patch = Patch::Merge(json!({"endpoints": endpoints(is_ready)}));
        self.runtime.block_on(slices.patch(service, &PatchParams::default(), &patch))?;
        Ok(())
    }

    /// Says whether a node is ready, as Kubernetes would; tells when.
    fn say(&self, node: usize, is_ready: bool) -> Result<Instant> {
        let nodes = Api::<Node>::all(self.client.clone());
        let (status, reason) = match is_ready {
            true => ("True", "KubeletReady"),
            false => ("Unknown", "NodeStatusUnknown"),
        };
        let condition = json!({"type": "Ready", "status": status, "reason": reason});
        let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        let since = Instant::now();
        let parameters = PatchParams::default();
        self.runtime.block_on(nodes.patch_status(NODES[node], &parameters, &patch))?;
        Ok(since)
    }

    /// Cuts a node off and has its agent stand still, until the value goes.
    fn kill(&self, node: usize) -> Result<Death<'_>> {
        let agent = Pid::from_raw(self.lab.agent(NODES[node])?);
        let death = Death { outside: &self.outside, node: NODES[node], agent };
        self.outside.ip(&format!("link set {} down", death.node));
        kill(agent, Signal::SIGSTOP).context("cannot stop the agent")?;
        std::thread::sleep(AWAY);
        Ok(death)
    }
}

/// A node that is dead until this value goes.
struct Death<'a> {
    outside: &'a Namespace,
    node: &'static str,
    agent: Pid,
}

impl Drop for Death<'_> {
    fn drop(&mut self) {
        self.outside.ip(&format!("link set {} up", self.node));
        if let Err(error) = kill(self.agent, Signal::SIGCONT) {
            eprintln!("cannot wake the agent of {}: {error}", self.node);
        }
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Where the outside answers.
fn outside_targets() -> Vec<SocketAddr> {
    (PORT..PORT + OUTSIDE_PORTS).map(|port| SocketAddr::new(OUTSIDE.into(), port)).collect()
}

/// The word of the pod on a node.
fn word(number: usize) -> u8 {
    b'1' + u8::try_from(number).unwrap_or(u8::MAX - b'1')
}

fn living(dying: usize) -> Vec<usize> {
    (0..NODES.len()).filter(|number| *number != dying).collect()
}

fn claim_of(address: IpAddr) -> String {
    format!("outside.{address}")
}

/// Everything but the pods' own answers; gives the addresses of the load balancer and of the service.
async fn fill(client: &Client) -> Result<(IpAddr, IpAddr)> {
    lab::fill(client).await?;
    for (name, range) in POOLS {
        let pool = json!({"metadata": {"name": name}, "spec": {"cidrs": [range]}});
        lab::create::<AddressPool>(&Api::all(client.clone()), pool).await?;
    }
    leave_by_address(client).await?;
    let shop = make_service(client, "shop", "ClusterIP").await?;
    let shop = shop.spec.and_then(|spec| spec.cluster_ip).context("a service has an address")?;
    make_service(client, "edge", "LoadBalancer").await?;
    let services = lab::namespaced::<Service>(client);
    let has_address = |it: Option<&Service>| it.and_then(ingress).is_some();
    let waiting = tokio::time::timeout(PATIENCE, await_condition(services, "edge", has_address));
    let edge = waiting.await.context("the load balancer got no address")??;
    let edge = edge.as_ref().and_then(ingress).context("a load balancer has an address")?;
    Ok((edge.parse()?, shop.parse()?))
}

fn ingress(service: &Service) -> Option<String> {
    let balancer = service.status.as_ref()?.load_balancer.as_ref()?;
    balancer.ingress.as_ref()?.first()?.ip.clone()
}

/// Once there is the tenant's network.
async fn leave_by_address(client: &Client) -> Result<()> {
    let (networks, name) =
        (Api::<Network>::all(client.clone()), format!("{}.default", lab::TENANT));
    let is_there = |it: Option<&Network>| it.is_some();
    let waiting =
        tokio::time::timeout(PATIENCE, await_condition(networks.clone(), &name, is_there));
    waiting.await.context("the tenant got no network")??;
    let egress = json!({"mode": "address", "addresses": [EXIT]});
    let patch = Patch::Merge(json!({"spec": {"egress": egress}}));
    networks.patch(&name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// A service whose endpoints are written by hand.
async fn make_service(client: &Client, name: &str, kind: &str) -> Result<Service> {
    let ports = json!([{"protocol": "UDP", "port": SERVICE_PORT, "targetPort": PORT}]);
    let service = json!({"metadata": {"name": name}, "spec": {"type": kind, "ports": ports}});
    let made = lab::create::<Service>(&lab::namespaced(client), service).await?;
    let metadata = json!({"name": name, "labels": {"kubernetes.io/service-name": name}});
    let ports = json!([{"protocol": "UDP", "port": PORT}]);
    let slice = json!({"metadata": metadata, "addressType": "IPv4", "ports": ports,
                       "endpoints": endpoints(|_| true)});
    lab::create::<EndpointSlice>(&lab::namespaced(client), slice).await?;
    Ok(made)
}

/// The pod of each node, and whether it is ready.
fn endpoints(is_ready: impl Fn(usize) -> bool) -> Vec<Value> {
    let endpoint = |(number, node): (usize, &&str)| {
        let pod = json!({"kind": "Pod", "namespace": lab::TENANT, "name": lab::pod_on(node)});
        json!({"addresses": [lab::address_on(number)], "nodeName": node, "targetRef": pod,
               "conditions": {"ready": is_ready(number)}})
    };
    NODES.iter().enumerate().map(endpoint).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::Verdict;

    #[test]
    fn the_pod_of_a_dead_node_is_no_endpoint_that_is_ready_and_the_others_are() {
        let ready: Vec<bool> = endpoints(|number| number != 1)
            .iter()
            .map(|endpoint| endpoint["conditions"]["ready"] == true)
            .collect();
        assert_eq!(ready, [true, false, true]);
        assert_eq!(living(1), [0, 2]);
    }

    #[test]
    fn what_moves_is_told_with_what_kubernetes_waits_before() {
        let seen = |what, decided, passes| Seen { what, decided, passes };
        let table = table(&[
            seen(Moved::Balancer, Some(20.0), 60.0),
            seen(Moved::Balancer, Some(30.0), 400.0),
            seen(Moved::Exit, Some(20.0), 100.0),
            seen(Moved::Endpoint, None, 10.0),
        ])
        .to_string();
        let row = |name: &str| table.lines().find(|line| line.contains(name)).unwrap().to_owned();
        let balancer: Vec<String> =
            row(Moved::Balancer.name()).split('|').map(|cell| cell.trim().to_owned()).collect();
        assert_eq!(balancer[2..7], ["2", "20", "60", "400", "50.1 s"]);
        assert!(row(Moved::Endpoint.name()).contains("50.0 s"));
    }

    #[test]
    fn the_slowest_death_decides() {
        let verdicts = |slowest| -> Vec<Verdict> {
            let seen = |what, passes| Seen { what, decided: None, passes };
            let all = Moved::ALL.map(|what| [seen(what, 10.0), seen(what, slowest)]);
            judge(&all.concat()).iter().map(|it| it.verdict).collect()
        };
        assert_eq!(verdicts(999.0), [Verdict::Met; 3]);
        assert_eq!(verdicts(1_001.0), [Verdict::Missed; 3]);
    }
}
