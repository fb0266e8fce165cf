//! The tests of the lab that need no lab, run here: the same test program, told which cluster to use.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::install;
use crate::stage::{Stage, archive};

/// Those that ask nothing of a lab but pods on nodes. The others are about the lab itself, open
/// files of it, bring what a real API refuses, or end agents more often than a kubelet is willing
/// to start them again.
const TESTS: [&str; 29] = [
    "bad_input::a_pod_of_a_network_that_does_not_exist_waits_and_then_starts",
    "bad_input::an_overlap_inside_a_vpc_is_named_and_one_between_vpcs_is_fine",
    "bad_input::ranges_that_cannot_be_are_refused_with_the_reason",
    "flat::flat_networks_of_two_tenants_are_reached_inside_and_only_open_ones_from_each_other",
    "infra::a_service_is_reached_by_the_tenants_it_is_exported_to_and_by_nobody_else",
    "isolation::a_pod_that_takes_another_address_or_mac_reaches_nobody_and_is_counted",
    "isolation::equal_five_tuples_of_both_tenants_at_once_each_reach_their_own",
    "isolation::sctp_too_reaches_ones_own_on_the_node_and_across_and_nobody_else",
    "names::a_dedicated_network_is_answered_by_its_own_pods_and_no_more_by_the_agent",
    "names::a_network_is_answered_at_its_own_dns_address_and_asks_its_own_upstreams_or_nobody",
    "names::a_tenants_own_dns_takes_over_in_its_network_alone_and_without_it_the_agent_answers_again",
    "names::one_name_is_answered_to_each_tenant_with_its_own_and_names_of_others_do_not_exist",
    "names::pods_of_a_stateful_set_have_names_and_their_addresses_point_back_in_each_tenant",
    "names::what_changes_is_answered_anew_in_its_own_tenant_alone",
    "policy::moments::a_namespace_that_is_deleted_opens_none_of_its_pods",
    "policy::the_cases_of_kubernetes_hold_with_real_packets_in_two_tenants_at_once",
    "policy::ways::a_connection_that_is_there_ends_with_the_policy_that_allowed_it",
    "policy::ways::a_policy_that_is_aimed_at_one_network_closes_the_interfaces_there_alone",
    "policy::ways::a_question_to_the_resolver_is_egress_like_any_other",
    "policy::ways::policy_sees_through_a_service_by_the_port_that_each_backend_gives_the_name",
    "resolvers::what_changes_is_answered_anew_on_every_node_that_has_the_network",
    "services::a_service_follows_its_pods_and_refuses_at_once_when_none_is_left",
    "services::a_service_keeps_its_clients_together_or_on_their_node_where_it_says_so",
    "several_networks::a_pod_in_two_networks_reaches_both_and_joins_them_for_nobody",
    "several_networks::a_port_made_beforehand_and_a_stateful_sets_port_bring_their_address_to_the_next_pod",
    "several_networks::a_running_pod_reaches_the_range_that_its_extra_network_grew_by",
    "several_networks::a_second_interface_in_the_same_network_answers_for_itself",
    "tenants::pods_of_two_namespaces_and_of_two_networks_of_a_vpc_meet_and_another_vpc_is_apart",
    "tenants::services_of_two_tenants_have_one_vip_and_no_tenant_has_more_than_its_quota",
];

/// Installed anew, because the cluster is without Atoll here and is to be afterwards.
pub(crate) fn tests_hold(stage: &Stage) -> Result<()> {
    let cluster = stage.own_cluster().context("these nodes are not ours")?;
    let program = stage.lab_tests().context("give --lab-tests")?;
    cluster.load(&archive("tools"))?;
    install::apply_as_the_lab(stage)?;
    let passed = run(program, cluster.name())?;
    ensure!(passed == TESTS.len(), "{passed} of {} tests of the lab passed", TESTS.len());
    stage.atoll(&["uninstall", "--purge"]).map(drop)
}

/// One after the other, because there is one cluster. Gives how many passed, and shows the rest.
fn run(program: &Path, cluster: &str) -> Result<usize> {
    let mut tests = Command::new(program);
    tests.args(["--exact", "--test-threads=1"]).args(TESTS).env("ATOLL_TEST_CLUSTER", cluster);
    let mut child = tests.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let child = child.as_mut().map_err(|error| anyhow::anyhow!("cannot run the tests: {error}"))?;
    let lines = BufReader::new(child.stdout.take().context("the tests say nothing")?).lines();
    let mut passed = 0;
    for line in lines {
        let line = line?;
        println!("     {line}");
        passed += usize::from(line.starts_with("test ") && line.ends_with(" ok"));
    }
    child.wait()?;
    Ok(passed)
}
