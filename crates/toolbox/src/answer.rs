//! What a server says of itself, and how a try to reach one ended: the lines of JSON that the
//! toolbox prints and others read.

use std::io;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::target::Target;

/// A server's answer: who it is, and whom it sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// `namespace/name` of the pod.
    pub pod: String,
    /// The address the question arrived at.
    pub ip: IpAddr,
    /// The node the pod runs on; empty outside a cluster.
    pub node: String,
    /// Whom the server saw asking.
    pub peer: SocketAddr,
    /// What was asked, sent back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub echo: Option<String>,
}

impl Answer {
    /// The answer as one line, its end included.
    pub(crate) fn to_line(&self) -> String {
        let json = serde_json::to_string(self).expect("an answer has only plain fields");
        json + "\n"
    }
}

/// Why no answer came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The kind of failure.
    pub error: FailureKind,
    /// The whole sentence.
    pub message: String,
}

/// The kinds of failure that a user tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FailureKind {
    /// Nothing came back in time.
    Timeout,
    /// The other end said no.
    Refused,
    /// The network said there is no way.
    Unreachable,
    /// Anything else; the message tells.
    Other,
}

impl Failure {
    /// No answer from `target` within `waited`.
    pub(crate) fn timeout(target: &Target, waited: std::time::Duration) -> Self {
        let message = format!("no answer from {target} within {} ms", waited.as_millis());
        Failure { error: FailureKind::Timeout, message }
    }

    /// The failure that `error` means for a try to reach `target`.
    pub(crate) fn from_io(target: &Target, error: &io::Error) -> Self {
        let (error, message) = match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                (FailureKind::Refused, format!("{target} refused the connection"))
            }
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
                (FailureKind::Unreachable, format!("{target} is unreachable: {error}"))
            }
            io::ErrorKind::TimedOut => {
                (FailureKind::Timeout, format!("no answer from {target}: {error}"))
            }
            _ => (FailureKind::Other, format!("cannot reach {target}: {error}")),
        };
        Failure { error, message }
    }
}

/// How one try ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// A server said who it is.
    Answered(Answer),
    /// Something replied that cannot say who it is (ICMP).
    Replied(IpAddr),
    /// Nothing did.
    Failed(Failure),
}

/// One try of a prober, as it is printed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// What was tried.
    pub target: Target,
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took.
    pub rtt_ms: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Target {
        "tcp/10.0.0.5:8080".parse().unwrap()
    }

    #[test]
    fn an_answer_is_one_line_of_json() {
        let answer = Answer {
            pod: "acme/web-1".into(),
            ip: [10, 0, 0, 5].into(),
            node: "node1".into(),
            peer: ([10, 0, 0, 6], 43210).into(),
            echo: None,
        };
        assert_eq!(
            answer.to_line(),
            "{\"pod\":\"acme/web-1\",\"ip\":\"10.0.0.5\",\"node\":\"node1\",\
             \"peer\":\"10.0.0.6:43210\"}\n"
        );
    }

    #[test]
    fn the_reason_of_a_failure_is_told_apart() {
        let cases = [
            (io::ErrorKind::ConnectionRefused, FailureKind::Refused),
            (io::ErrorKind::HostUnreachable, FailureKind::Unreachable),
            (io::ErrorKind::NetworkUnreachable, FailureKind::Unreachable),
            (io::ErrorKind::TimedOut, FailureKind::Timeout),
            (io::ErrorKind::AddrInUse, FailureKind::Other),
        ];
        for (kind, expected) in cases {
            let failure = Failure::from_io(&target(), &kind.into());
            assert_eq!(failure.error, expected);
            assert!(failure.message.contains("tcp/10.0.0.5:8080"), "{}", failure.message);
        }
    }

    #[test]
    fn a_report_reads_back_as_itself() {
        let failure = Failure::timeout(&target(), std::time::Duration::from_secs(1));
        let report = Report { target: target(), outcome: Outcome::Failed(failure), rtt_ms: 1000.5 };
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
    }
}
