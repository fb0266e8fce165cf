//! Whether a container is ready, by the command that its author wrote for that.
//!
//! The rule: a container that says how it is checked is not ready before a check has succeeded.
//! Checks over the network are the agent's, which the lab's pods have none of.

use std::process::Stdio;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Probe};
use tokio::process::Command;
use tokio::sync::mpsc::UnboundedSender;

use super::NodeContext;
use super::lifecycle::Fact;

/// A command, and how often it is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Check {
    command: Vec<String>,
    period: Duration,
    timeout: Duration,
    /// So many failures in a row count.
    failures: u32,
}

impl Check {
    /// The check that a container's author wrote.
    pub(crate) fn of(container: &Container) -> Option<Check> {
        let probe: &Probe = container.readiness_probe.as_ref()?;
        let command = probe.exec.as_ref()?.command.clone()?;
        let or = |given: Option<i32>, usual: u32| {
            given.and_then(|it| u32::try_from(it).ok()).filter(|it| *it > 0).unwrap_or(usual)
        };
        let seconds = |given, usual| Duration::from_secs(or(given, usual).into());
        Some(Check {
            command,
            period: seconds(probe.period_seconds, 10),
            timeout: seconds(probe.timeout_seconds, 1),
            failures: or(probe.failure_threshold, 3),
        })
    }

    /// Runs it again and again, and tells what comes of it.
    pub(crate) fn repeat(
        self,
        context: &NodeContext,
        [namespace, pod]: [&String; 2],
        container: &str,
        facts: UnboundedSender<Fact>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let lab = context.home.name().to_string();
        let words = ["lab", "exec", "--name", &lab, "-n", namespace, pod, "-c", container, "--"];
        let mut command = Command::new(&context.program);
        command.args(words).args(&self.command).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let name = container.to_owned();
        let tell = move |is_ready| facts.send(Fact::Checked(name.clone(), is_ready)).is_ok();
        // Before the container runs: it is not ready from the start.
        tell(false);
        async move {
            let (mut verdict, mut pace) =
                (Verdict::new(self.failures), tokio::time::interval(self.period));
            loop {
                pace.tick().await;
                let ended = tokio::time::timeout(self.timeout, command.status()).await;
                let succeeded = matches!(ended, Ok(Ok(status)) if status.success());
                if verdict.turns(succeeded) && !tell(succeeded) {
                    return;
                }
            }
        }
    }
}

/// What the checks so far say.
struct Verdict {
    is_ready: bool,
    failed: u32,
    failures: u32,
}

impl Verdict {
    fn new(failures: u32) -> Self {
        Verdict { is_ready: false, failed: 0, failures }
    }

    /// Whether one more check changes it.
    fn turns(&mut self, succeeded: bool) -> bool {
        self.failed = if succeeded { 0 } else { self.failed.saturating_add(1) };
        let is_ready = succeeded || self.is_ready && self.failed < self.failures;
        std::mem::replace(&mut self.is_ready, is_ready) != is_ready
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(probe: &serde_json::Value) -> Option<Check> {
        let container = json!({"name": "web", "readinessProbe": probe});
        Check::of(&serde_json::from_value(container).unwrap())
    }

    #[test]
    fn a_check_is_a_command_with_the_times_of_kubernetes_where_it_has_none() {
        let plain = check(&json!({"exec": {"command": ["true"]}})).unwrap();
        assert_eq!((plain.period.as_secs(), plain.timeout.as_secs(), plain.failures), (10, 1, 3));
        let own = json!({"exec": {"command": ["a", "b"]}, "periodSeconds": 2, "timeoutSeconds": 4,
                         "failureThreshold": 1});
        let own = check(&own).unwrap();
        assert_eq!(own.command, ["a", "b"]);
        assert_eq!((own.period.as_secs(), own.timeout.as_secs(), own.failures), (2, 4, 1));
        assert_eq!(check(&json!({"tcpSocket": {"port": 80}})), None);
        assert_eq!(check(&json!(null)), None);
    }

    #[test]
    fn one_success_is_enough_and_only_failures_in_a_row_count() {
        let mut verdict = Verdict::new(2);
        let turns = [false, true, true, false, true, false, false, false, true];
        let turned = turns.map(|succeeded| verdict.turns(succeeded));
        assert_eq!(turned, [false, true, false, false, false, false, true, false, true]);
    }
}
