//! The promises, in order. Each is a sentence; the first that does not hold ends the run on its
//! cluster, because those after it build on it.
//!
//! Clusters of our own are three, and their promises are tried at the same time. Those of one build on
//! nothing that happened on another.

use std::panic::AssertUnwindSafe;
use std::time::Instant;

use anyhow::{Result, anyhow};

use crate::scenarios::{
    agents, away, beside, by_others, defaults, families, infra, lab, leaving, life, names, nodes,
    plain, plain_ports, plain_services, power, probes, reach, restored, services, upgraded, users,
    workloads,
};
use crate::stage::{CLUSTERS, Stage};

/// A sentence, and how it is tried.
pub(crate) struct Promise {
    pub(crate) sentence: &'static str,
    check: fn(&Stage) -> Result<()>,
    /// What the cluster lacks that it needs, if it lacks something.
    lacks: fn(&Stage) -> Option<&'static str>,
    /// Whether it is in the part that CI runs.
    pub(crate) smoke: bool,
    /// Whether no other cluster is there meanwhile.
    alone: bool,
}

const fn promise(sentence: &'static str, check: fn(&Stage) -> Result<()>) -> Promise {
    Promise { sentence, check, lacks: |_| None, smoke: false, alone: false }
}

impl Promise {
    /// It needs nodes that the suite made itself, and may kill.
    const fn on_own_nodes(self) -> Self {
        let lacks = |stage: &Stage| stage.own_cluster().is_none().then_some("nodes that are ours");
        Promise { lacks, ..self }
    }

    /// It needs Atoll to be the only network.
    const fn with_plain_network(self) -> Self {
        let lacks = |stage: &Stage| {
            stage.plain_network().is_none().then_some("a range for pods of no tenant")
        };
        Promise { lacks, ..self }
    }

    /// It needs a chart's program.
    const fn with_helm(self) -> Self {
        let lacks = |stage: &Stage| stage.helm().is_none().then_some("helm");
        Promise { lacks, ..self }
    }

    /// It needs a cluster whose services have addresses of both families.
    const fn in_both_families(self) -> Self {
        let lacks = |stage: &Stage| (!families::are_both(stage)).then_some("a second family");
        Promise { lacks, ..self }
    }

    const fn smoke(self) -> Self {
        Promise { smoke: true, ..self }
    }

    /// It comes before any other cluster does: all others need it, or it takes the time of something.
    const fn alone(self) -> Self {
        Promise { alone: true, ..self }
    }
}

/// Those of the first cluster, or of one that was given.
const PROMISES: &[Promise] = &[
    promise("a released Kubernetes is up, without a network", Stage::raise)
        .on_own_nodes()
        .smoke()
        .alone(),
    promise(
        "nodes become ready once Atoll is installed, and installing again changes nothing",
        nodes::become_ready,
    )
    .smoke()
    .alone(),
    promise("a node is ready within ten seconds of its agent's pod", nodes::in_time).alone(),
    promise("the controller has no powers, the agent only what it needs", nodes::least_privilege)
        .smoke(),
    promise(
        "a tenant that asks for nothing has its default network from the installed template",
        defaults::network_comes_from_the_template,
    )
    .smoke(),
    promise("the controllers' metrics are read where they say", defaults::metrics_are_served)
        .smoke(),
    promise("two tenants with one range of addresses get their pods running", reach::pods_run)
        .smoke(),
    promise("two tenants have the same address on the same node", reach::addresses_are_equal)
        .smoke(),
    promise("pods reach their tenant, seen by their own address, and nobody else", reach::isolated)
        .smoke(),
    promise("what was dropped is counted by network and reason", reach::drops_are_counted),
    promise("a name is another in each tenant", names::each_tenant_has_its_own).smoke(),
    promise(
        "two tenants have one service address and name, and each meets its own pod there",
        services::lead_to_ones_own,
    )
    .smoke(),
    promise(
        "a policy closes a pod of its own tenant, and not its twin",
        services::one_policy_is_anothers_nothing,
    )
    .smoke(),
    promise(
        "a service with an address of each family leads to its own tenant's pod by both",
        families::services_have_both,
    )
    .in_both_families(),
    promise(
        "what of a policy is not enforced is told as its event",
        services::faults_of_policies_are_told,
    ),
    promise("exec runs in the pod and passes on input and exit code", users::exec),
    promise("logs shows what the container wrote", users::logs),
    promise("port-forward leads into the pod", users::port_forward),
    promise("users of a tenant see and change what is its own", users::of_a_tenant),
    promise("pods reach the API, which knows them by their tokens", infra::api_is_reached).smoke(),
    promise(
        "probes and hooks meet their own pod, where two have one address on one node",
        infra::probes_meet_their_own_pod,
    )
    .smoke(),
    promise(
        "probes of every kind fail and recover, each for its own pod",
        probes::fail_and_recover,
    ),
    promise(
        "what is not well is started again, and its twin is left alone",
        probes::end_what_is_not_well,
    ),
    promise("hooks are called, and those that fail are told", probes::hooks_are_called),
    promise(
        "a probe that leads elsewhere is refused with a sentence",
        infra::probes_elsewhere_are_refused,
    ),
    promise(
        "agents are deleted under traffic and no packet is lost",
        agents::deleted_under_traffic,
    ),
    promise("ordinary manifests run unchanged in a tenant's namespace", workloads::run_unchanged),
    promise("a node is drained, and its pods are served elsewhere", life::node_is_drained),
    promise("a StatefulSet's pod keeps its address", workloads::stateful_pods_keep_their_address),
    promise("pods with several interfaces meet in each network", workloads::several_interfaces),
    promise("a virtual machine's pod gets its tap", workloads::tap_is_made),
    promise("controllers are killed and their successors go on", life::controllers_are_killed),
    promise(
        "controllers and agents are upgraded under traffic and no packet is lost",
        upgraded::under_traffic,
    )
    .on_own_nodes(),
    promise("a runtime is started again under traffic", life::runtime_is_started_again)
        .on_own_nodes(),
    promise("the API is away and pods go on, and containers are started again", away::pods_go_on)
        .on_own_nodes(),
    promise("two hundred pods come and go at once and leave nothing", life::burst_leaves_nothing),
    promise("a node that lost power comes back with its pods", power::node_comes_back)
        .on_own_nodes(),
    promise(
        "the API is given back an older store, and no address has two holders",
        restored::no_address_is_given_twice,
    )
    .on_own_nodes(),
    promise(
        "an upgrade keeps the settings, and as the only network Atoll serves pods of no tenant",
        plain::upgraded,
    )
    .with_plain_network(),
    promise(
        "plain pods reach each other, by their own addresses, and nodes",
        plain::everybody_meets,
    )
    .with_plain_network(),
    promise(
        "services of no tenant's namespace are led for plain pods, without kube-proxy",
        plain_services::are_led,
    )
    .with_plain_network(),
    promise(
        "services of no tenant's namespace are led for the nodes' own processes, too",
        plain_services::nodes_are_led,
    )
    .with_plain_network(),
    promise(
        "node ports of no tenant's services lead to pods of their node and of others",
        plain_ports::node_ports_are_led,
    )
    .with_plain_network(),
    promise(
        "and to pods of their node alone, seen by their clients' address, where they say so",
        plain_ports::node_ports_stay_on_their_node_where_they_say_so,
    )
    .with_plain_network(),
    promise(
        "plain pods reach the API, which knows them by their tokens",
        plain_services::the_api_is_reached,
    )
    .with_plain_network(),
    promise(
        "services of plain pods and of tenants are not each other's",
        plain_services::tenants_have_their_own,
    )
    .with_plain_network(),
    promise("plain pods and tenants do not meet", plain::tenants_stay_apart).with_plain_network(),
    promise(
        "uninstalling is refused while tenants have pods",
        leaving::refused_while_tenants_have_pods,
    )
    .smoke(),
    promise("deleted tenants leave no port and no claim behind", reach::nothing_is_left).smoke(),
    promise("uninstalling leaves tenants by choice, and else nothing", leaving::nothing_stays)
        .smoke(),
];

/// Those of the second: Atoll comes and goes in several ways.
const SECOND: &[Promise] = &[
    promise("a second Kubernetes is up beside it", Stage::raise).on_own_nodes(),
    promise("installed and removed, nodes are as before", leaving::nodes_are_as_before)
        .on_own_nodes(),
    promise("a release of the chart comes and goes, and nothing stays", by_others::by_helm)
        .with_helm(),
    promise("the manifests come and go, and nothing stays", by_others::by_manifests),
    promise("half of the tests of the lab that need no lab hold here", lab::one_half_holds)
        .on_own_nodes(),
];

/// Those of the third: at its end it has another network, too.
const THIRD: &[Promise] = &[
    promise("a third Kubernetes is up beside both", Stage::raise).on_own_nodes(),
    promise("the other half of the tests of the lab holds, too", lab::other_half_holds)
        .on_own_nodes(),
    promise(
        "beside another network, pods and packets of that one stay as they are",
        beside::comes_beside,
    )
    .on_own_nodes(),
    promise("and stay so when Atoll goes", beside::goes_again).on_own_nodes(),
];

/// For each cluster its own.
const LISTS: [&[Promise]; CLUSTERS] = [PROMISES, SECOND, THIRD];

/// The promises of each list that are to be tried.
type Chosen = [Vec<&'static Promise>; CLUSTERS];
/// What is to be tried on one cluster.
type Part<'a> = (&'a Stage, Vec<&'static Promise>);

/// Whether every promise held that was chosen and could be tried, from the one with the words `from`
/// on. Where none was chosen, none held. As soon as nothing more is to be tried on a cluster, `finish`
/// is told whether all held there, and says whether it is content.
pub(crate) fn run(
    stages: &[Stage],
    from: Option<&str>,
    is_chosen: impl Fn(&Promise) -> bool,
    finish: impl Fn(&Stage, bool) -> bool + Sync,
) -> bool {
    let began = Instant::now();
    let held = at_once(&parts(stages, chosen(from, is_chosen)), &finish);
    let verdict = match held {
        None => "no promise has these words",
        Some(true) => "every promise that was tried held",
        Some(false) => "not everything was as promised",
    };
    println!("\n{verdict}, after {:.0} s", began.elapsed().as_secs_f32());
    held == Some(true)
}

fn chosen(from: Option<&str>, is_chosen: impl Fn(&Promise) -> bool) -> Chosen {
    let is_before = |promise: &&Promise| !promise.sentence.contains(from.unwrap_or_default());
    LISTS.map(|all| all.iter().skip_while(is_before).filter(|promise| is_chosen(promise)).collect())
}

/// A part for each cluster with something to try. Where there is one cluster, all is tried on it.
fn parts(stages: &[Stage], chosen: Chosen) -> Vec<Part<'_>> {
    let promises = match stages {
        [_] => vec![chosen.concat()],
        _ => chosen.into(),
    };
    let parts = stages.iter().zip(promises);
    parts.filter(|(_, promises)| !promises.is_empty()).collect()
}

/// Whether all parts went well. They are tried at once, but for what the first tries alone; where that
/// does not hold, the others do not begin.
fn at_once<'a>(
    parts: &'a [Part<'a>],
    finish: &(impl Fn(&Stage, bool) -> bool + Sync),
) -> Option<bool> {
    let ((stage, promises), others) = parts.split_first()?;
    let (alone, rest) = promises.split_at(promises.partition_point(|promise| promise.alone));
    let ready = all_hold(stage, alone);
    let others = if ready { others } else { &[] };
    std::thread::scope(|scope| {
        let begin = |(stage, promises): &'a Part<'a>| {
            scope.spawn(|| finish(stage, all_hold(stage, promises)))
        };
        let others: Vec<_> = others.iter().map(begin).collect();
        let first = finish(stage, ready && all_hold(stage, rest));
        let others = others.into_iter().map(|other| other.join().unwrap_or(false));
        Some(others.fold(first, |all, one| all && one))
    })
}

fn all_hold(stage: &Stage, promises: &[&Promise]) -> bool {
    promises.iter().all(|promise| holds(stage, promise))
}

fn holds(stage: &Stage, promise: &Promise) -> bool {
    let Promise { sentence, check, lacks, .. } = promise;
    if let Some(what) = lacks(stage) {
        stage.tell(&format!("skip {sentence} (this cluster lacks {what})"));
        return true;
    }
    stage.tell(&format!("     … {sentence}"));
    let began = Instant::now();
    let outcome = tried(|| check(stage));
    let took = began.elapsed().as_secs_f32();
    match &outcome {
        Ok(()) => stage.tell(&format!("ok   {sentence} ({took:.1} s)")),
        Err(error) => stage.tell(&format!("FAIL {sentence} ({took:.1} s)\n     {error:#}")),
    }
    outcome.is_ok()
}

/// What came of a try. One that panics has failed like any other: what was made is looked at and taken
/// down all the same.
fn tried(check: impl FnOnce() -> Result<()>) -> Result<()> {
    std::panic::catch_unwind(AssertUnwindSafe(check)).unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str);
        let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(anyhow!("the suite itself panicked: {}", words.unwrap_or("without a word")))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};
    use std::time::Duration;

    use anyhow::ensure;
    use clap::Parser;

    use super::*;
    use crate::Options;

    #[test]
    fn a_try_that_panics_has_failed_and_says_with_what() {
        assert!(tried(|| Ok(())).is_ok());
        assert_eq!(tried(|| Err(anyhow!("no"))).unwrap_err().to_string(), "no");
        for said in [tried(|| panic!("oh")), tried(|| panic!("{}", "oh".to_owned()))] {
            assert_eq!(said.unwrap_err().to_string(), "the suite itself panicked: oh");
        }
    }

    #[test]
    fn a_suite_goes_on_from_the_promise_that_is_named_and_from_nowhere_else() {
        let from = |words| chosen(words, |_| true);
        assert_eq!(from(None).map(|list| list.len()), LISTS.map(<[_]>::len));
        let [rest, second, third] = from(Some("port-forward"));
        assert!(rest.len() < PROMISES.len() && second.is_empty() && third.is_empty());
        assert_eq!(rest[0].sentence, "port-forward leads into the pod");
        assert_eq!(from(Some("beside another network")).map(|list| list.len()), [0, 0, 2]);
        assert!(from(Some("pigs fly")).concat().is_empty());
    }

    #[test]
    fn the_smoke_part_begins_with_a_cluster_and_ends_without_atoll() {
        let [smoke, second, third] = chosen(None, |promise| promise.smoke);
        assert_eq!(smoke[0].sentence, "a released Kubernetes is up, without a network");
        assert!(smoke[smoke.len() - 1].sentence.starts_with("uninstalling"));
        assert!(smoke.len() < PROMISES.len() && second.is_empty() && third.is_empty());
    }

    #[test]
    fn what_is_tried_alone_comes_first() {
        let begin = PROMISES.partition_point(|promise| promise.alone);
        assert!(PROMISES[..begin].iter().any(|promise| promise.sentence.contains("ten seconds")));
        let others = PROMISES[begin..].iter().chain(SECOND).chain(THIRD);
        assert!(others.into_iter().all(|promise| !promise.alone));
    }

    fn stages(words: &[&str]) -> Vec<Stage> {
        let words = [&["e2e", "--name", "never-was"], words].concat();
        Stage::all(&Options::parse_from(words)).unwrap()
    }

    #[test]
    fn each_of_our_clusters_has_its_own_promises_and_one_that_was_given_has_all() {
        let sizes = |stages: &[Stage], chosen| {
            parts(stages, chosen).iter().map(|(_, promises)| promises.len()).collect::<Vec<_>>()
        };
        let ours = stages(&["--kubernetes=/nowhere"]);
        let all = LISTS.map(<[_]>::len);
        assert_eq!(sizes(&ours, chosen(None, |_| true)), all);
        let smoke = parts(&ours, chosen(None, |promise| promise.smoke));
        assert_eq!(smoke.len(), 1, "other clusters have nothing to do");
        let given = stages(&["--kubeconfig=/nowhere"]);
        assert_eq!(sizes(&given, chosen(None, |_| true)), [all.iter().sum::<usize>()]);
    }

    static THERE: Mutex<usize> = Mutex::new(0);
    static COMING: Condvar = Condvar::new();
    /// Waits for whoever tries it on the other cluster.
    static TOGETHER: Promise = promise("two meet", |_| {
        let mut there = THERE.lock().unwrap();
        *there += 1;
        COMING.notify_all();
        let patience = Duration::from_secs(60);
        let (there, waited) =
            COMING.wait_timeout_while(there, patience, |there| *there < 2).unwrap();
        ensure!(!waited.timed_out(), "only {there} came");
        Ok(())
    });
    static HELD: Promise = promise("it holds", |_| Ok(())).alone();
    static BROKEN: Promise = promise("it does not", |_| Err(anyhow!("no")));
    static BROKEN_ALONE: Promise = promise("it does not at first", |_| Err(anyhow!("no"))).alone();

    /// What came of it, and what was said at the end of each cluster, whichever ended first.
    fn outcome(promises: [&[&'static Promise]; 2]) -> (Option<bool>, Vec<bool>) {
        let stages = stages(&["--kubernetes=/nowhere"]);
        let parts: Vec<_> = stages.iter().zip(promises.map(Vec::from)).collect();
        let said = Mutex::new(Vec::new());
        let content = at_once(&parts, &|stage, held| {
            said.lock().unwrap().push((stage.name().to_owned(), held));
            held
        });
        let mut said = said.into_inner().unwrap();
        said.sort();
        (content, said.into_iter().map(|(_, held)| held).collect())
    }

    #[test]
    fn clusters_are_tried_at_once_and_each_has_its_own_end() {
        assert_eq!(outcome([&[&HELD, &TOGETHER], &[&TOGETHER]]), (Some(true), vec![true, true]));
        assert_eq!(outcome([&[&HELD, &BROKEN], &[&HELD]]), (Some(false), vec![false, true]));
        assert_eq!(outcome([&[&HELD], &[&BROKEN, &HELD]]), (Some(false), vec![true, false]));
        assert_eq!(outcome([&[&BROKEN_ALONE, &HELD], &[&HELD]]), (Some(false), vec![false]));
    }
}
