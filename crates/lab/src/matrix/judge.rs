//! What a probe's end means for isolation. Pure: who asked, whom, and what came back.

use std::collections::HashSet;
use std::net::IpAddr;

use atoll_toolbox::Outcome;
use serde::Serialize;

/// One pod of the matrix.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct Member {
    /// `namespace/name`.
    pub(crate) pod: String,
    pub(crate) tenant: String,
    /// The network's name inside its tenant.
    pub(crate) network: String,
    pub(crate) ip: IpAddr,
    pub(crate) node: String,
}

impl Member {
    fn shares_network_with(&self, other: &Member) -> bool {
        self.tenant == other.tenant && self.network == other.network
    }
}

/// What one client got when it asked for one server's address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "verdict", content = "detail")]
pub(crate) enum Verdict {
    /// The very pod that was meant, and it saw the client's own address.
    Reached,
    /// The pod that was meant, but it saw another address for the client.
    Masked(IpAddr),
    /// Another pod, of the client's own network, that has the same address.
    Twin(String),
    /// A pod that the client's network does not hold.
    Foreign(String),
    /// Nobody; the reason.
    Nothing(String),
}

/// The verdict on `outcome` of `client` asking for the address of `server`.
pub(crate) fn judge(
    client: &Member,
    server: &Member,
    members: &[Member],
    outcome: &Outcome,
) -> Verdict {
    let own = members.iter().find(|one| one.shares_network_with(client) && one.ip == server.ip);
    let own = own.map(|member| member.pod.as_str());
    match outcome {
        Outcome::Failed(failure) => Verdict::Nothing(failure.message.clone()),
        Outcome::Answered(answer) if Some(answer.pod.as_str()) != own => {
            Verdict::Foreign(answer.pod.clone())
        }
        Outcome::Answered(answer) if answer.peer.ip() != client.ip => {
            Verdict::Masked(answer.peer.ip())
        }
        Outcome::Answered(answer) => named(&answer.pod, server),
        // A reply does not say who sent it: it is judged by whether the client's own network has
        // anyone at that address.
        Outcome::Replied(_) => match own {
            Some(pod) => named(pod, server),
            None => Verdict::Foreign(server.pod.clone()),
        },
    }
}

/// A pod of the client's own network answered: the one that was meant, or its twin.
fn named(pod: &str, server: &Member) -> Verdict {
    if pod == server.pod { Verdict::Reached } else { Verdict::Twin(pod.to_owned()) }
}

/// Why `verdict` breaks isolation, in a sentence; `None` when it does not.
pub(crate) fn violation(client: &Member, server: &Member, verdict: &Verdict) -> Option<String> {
    let pair = || format!("{} → {} ({})", client.pod, server.pod, server.ip);
    match verdict {
        Verdict::Reached | Verdict::Twin(_) => None,
        Verdict::Foreign(pod) => Some(format!("{}: {pod} of another network answered", pair())),
        Verdict::Masked(seen) => {
            Some(format!("{}: the server saw {seen}, not {}", pair(), client.ip))
        }
        Verdict::Nothing(why) if client.shares_network_with(server) => {
            Some(format!("{}: {why}", pair()))
        }
        Verdict::Nothing(_) => None,
    }
}

/// Why `members` can prove nothing about isolation; `None` when they can.
pub(crate) fn proves_nothing(members: &[Member]) -> Option<String> {
    let networks: HashSet<_> =
        members.iter().map(|member| (&member.tenant, &member.network)).collect();
    let pair_inside = members
        .iter()
        .enumerate()
        .any(|(at, one)| members[..at].iter().any(|other| one.shares_network_with(other)));
    match (networks.len(), pair_inside) {
        (0 | 1, _) => Some("it takes pods of two networks to show that they are isolated".into()),
        (_, false) => Some("no network has two pods that could reach each other".into()),
        (_, true) => None,
    }
}

#[cfg(test)]
mod tests {
    use atoll_toolbox::{Answer, Failure, FailureKind};

    use super::*;

    fn member(tenant: &str, name: &str, last: u8) -> Member {
        Member {
            pod: format!("{tenant}/{name}"),
            tenant: tenant.to_owned(),
            network: "default".to_owned(),
            ip: [10, 0, 0, last].into(),
            node: "node1".to_owned(),
        }
    }

    /// Both tenants have a `web` at .5 and a `db` at .6; only globex has `solo` at .22.
    fn members() -> Vec<Member> {
        let twins = ["acme", "globex"]
            .into_iter()
            .flat_map(|tenant| [member(tenant, "web", 5), member(tenant, "db", 6)]);
        twins.chain([member("globex", "solo", 22)]).collect()
    }

    fn find(pod: &str) -> Member {
        members().into_iter().find(|member| member.pod == pod).unwrap()
    }

    fn answer(pod: &str, seen: u8) -> Outcome {
        Outcome::Answered(Answer {
            pod: pod.to_owned(),
            ip: [10, 0, 0, 6].into(),
            node: "node1".to_owned(),
            peer: ([10, 0, 0, seen], 40000).into(),
            echo: None,
        })
    }

    fn silence() -> Outcome {
        Outcome::Failed(Failure { error: FailureKind::Timeout, message: "no answer".to_owned() })
    }

    fn replied(server: &str) -> Outcome {
        Outcome::Replied(find(server).ip)
    }

    #[test]
    fn every_end_of_a_probe_has_its_verdict() {
        use Verdict::*;
        let cases = [
            ("acme/web", "acme/db", answer("acme/db", 5), Reached, true),
            ("acme/web", "acme/db", answer("acme/db", 9), Masked([10, 0, 0, 9].into()), false),
            ("acme/web", "acme/db", silence(), Nothing("no answer".into()), false),
            ("acme/web", "acme/db", answer("globex/db", 5), Foreign("globex/db".into()), false),
            ("acme/web", "globex/db", answer("acme/db", 5), Twin("acme/db".into()), true),
            ("acme/web", "globex/db", answer("globex/db", 5), Foreign("globex/db".into()), false),
            ("acme/web", "globex/web", answer("acme/web", 5), Twin("acme/web".into()), true),
            ("acme/web", "globex/solo", silence(), Nothing("no answer".into()), true),
            (
                "acme/web",
                "globex/solo",
                answer("globex/solo", 5),
                Foreign("globex/solo".into()),
                false,
            ),
            ("acme/web", "acme/db", replied("acme/db"), Reached, true),
            ("acme/web", "globex/db", replied("globex/db"), Twin("acme/db".into()), true),
            (
                "acme/web",
                "globex/solo",
                replied("globex/solo"),
                Foreign("globex/solo".into()),
                false,
            ),
            ("acme/web", "acme/db", answer("who/knows", 5), Foreign("who/knows".into()), false),
        ];
        for (client, server, outcome, expected, fine) in cases {
            let (client, server) = (find(client), find(server));
            let verdict = judge(&client, &server, &members(), &outcome);
            assert_eq!(verdict, expected, "{} → {}: {outcome:?}", client.pod, server.pod);
            let said = violation(&client, &server, &verdict);
            assert_eq!(said.is_none(), fine, "{} → {}: {said:?}", client.pod, server.pod);
        }
    }

    #[test]
    fn networks_of_one_tenant_are_strangers_to_each_other() {
        let client = find("acme/web");
        let mut server = member("acme", "other", 7);
        server.network = "second".to_owned();
        let members = [client.clone(), server.clone()];
        let verdict = judge(&client, &server, &members, &answer("acme/other", 5));
        assert_eq!(verdict, Verdict::Foreign("acme/other".into()));
    }

    #[test]
    fn a_violation_names_both_pods_and_what_happened() {
        let verdict = Verdict::Foreign("globex/db".into());
        let said = violation(&find("acme/web"), &find("globex/db"), &verdict).unwrap();
        assert_eq!(said, "acme/web → globex/db (10.0.0.6): globex/db of another network answered");
    }

    #[test]
    fn a_matrix_without_a_control_proves_nothing() {
        assert_eq!(proves_nothing(&members()), None);
        assert!(proves_nothing(&[]).is_some());
        assert!(proves_nothing(&[find("acme/web"), find("acme/db")]).is_some());
        assert!(proves_nothing(&[find("acme/web"), find("globex/db")]).is_some());
    }
}
