//! Who of those behind a service takes the connections of this node's pods.
//!
//! The rules are those that users know from kube-proxy: who is ready and meant for us; else whoever
//! still answers while it ends; and where the service says so, only who is on this node.

use super::slice::Member;

/// Where the clients are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Vantage {
    pub(super) node: String,
    pub(super) zone: Option<String>,
}

/// An endpoint, and whether it is on this node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate<'a, T> {
    pub(super) member: &'a Member,
    pub(super) is_here: bool,
    pub(super) at: T,
}

/// The candidates that take connections.
pub(super) fn choose<T: Copy>(
    candidates: &[Candidate<'_, T>],
    local_only: bool,
    vantage: &Vantage,
) -> Vec<T> {
    let allowed = candidates.iter().filter(|it| it.is_here || !local_only);
    let allowed: Vec<_> = allowed.copied().collect();
    let nearness = if local_only { Nearness::Any } else { nearness(&allowed, vantage) };
    let ready = allowed.iter().filter(|it| it.member.ready && nearness.admits(it.member, vantage));
    let ready: Vec<T> = ready.map(|it| it.at).collect();
    if !ready.is_empty() {
        return ready;
    }
    allowed.iter().filter(|it| it.member.last_resort).map(|it| it.at).collect()
}

/// How near a backend must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nearness {
    Any,
    SameZone,
    SameNode,
}

impl Nearness {
    fn admits(self, member: &Member, vantage: &Vantage) -> bool {
        match self {
            Nearness::Any => true,
            Nearness::SameZone => is_for_zone(member, vantage),
            Nearness::SameNode => member.for_nodes.contains(&vantage.node),
        }
    }
}

fn is_for_zone(member: &Member, vantage: &Vantage) -> bool {
    vantage.zone.as_ref().is_some_and(|zone| member.for_zones.contains(zone))
}

/// Hints count only where all who are ready have them and one is for us.
fn nearness<T>(candidates: &[Candidate<'_, T>], vantage: &Vantage) -> Nearness {
    let ready = || candidates.iter().map(|it| it.member).filter(|member| member.ready);
    if ready().all(|it| !it.for_nodes.is_empty())
        && ready().any(|it| it.for_nodes.contains(&vantage.node))
    {
        return Nearness::SameNode;
    }
    if ready().all(|it| !it.for_zones.is_empty()) && ready().any(|it| is_for_zone(it, vantage)) {
        return Nearness::SameZone;
    }
    Nearness::Any
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::slice::Who;
    use super::*;

    #[derive(Clone, Copy, PartialEq)]
    enum Is {
        Ready,
        Ending,
        Down,
    }

    fn member(is: Is, zones: &[&str], nodes: &[&str]) -> Member {
        let set = |names: &[&str]| names.iter().map(|&it| it.to_owned()).collect::<BTreeSet<_>>();
        Member {
            who: Who::Address([10, 0, 0, 5].into()),
            ready: is == Is::Ready,
            last_resort: is == Is::Ending,
            for_nodes: set(nodes),
            for_zones: set(zones),
        }
    }

    /// Who is chosen among these, the first of which is on this node, `node1` in zone `a`.
    fn chosen(members: &[Member], local_only: bool) -> Vec<usize> {
        let vantage = Vantage { node: "node1".into(), zone: Some("a".into()) };
        let candidate = |(at, member)| Candidate { member, is_here: at == 0, at };
        let candidates: Vec<_> = members.iter().enumerate().map(candidate).collect();
        choose(&candidates, local_only, &vantage)
    }

    #[test]
    fn whoever_is_ready_takes_connections() {
        let members = [Is::Ready, Is::Down, Is::Ready, Is::Ending].map(|is| member(is, &[], &[]));
        assert_eq!(chosen(&members, false), [0, 2]);
    }

    #[test]
    fn when_nobody_is_ready_whoever_still_answers_does() {
        let members = [Is::Down, Is::Ending, Is::Down].map(|is| member(is, &[], &[]));
        assert_eq!(chosen(&members, false), [1]);
        assert_eq!(chosen(&members[..1], false), Vec::<usize>::new());
    }

    #[test]
    fn a_service_for_its_own_node_leads_nowhere_else() {
        let members = [Is::Ready, Is::Ready].map(|is| member(is, &[], &[]));
        assert_eq!(chosen(&members, true), [0]);
        let members = [Is::Ending, Is::Ready].map(|is| member(is, &[], &[]));
        assert_eq!(chosen(&members, true), [0], "one that ends is better than none");
        let members = [Is::Down, Is::Ready].map(|is| member(is, &[], &[]));
        assert_eq!(chosen(&members, true), Vec::<usize>::new());
    }

    #[test]
    fn hints_count_when_all_who_are_ready_have_them_and_one_is_for_us() {
        let near = || member(Is::Ready, &["a"], &[]);
        let far = || member(Is::Ready, &["b"], &[]);
        let unhinted = || member(Is::Ready, &[], &[]);
        assert_eq!(chosen(&[far(), near()], false), [1]);
        assert_eq!(chosen(&[far(), far()], false), [0, 1]);
        assert_eq!(chosen(&[far(), near(), unhinted()], false), [0, 1, 2]);
        let down = member(Is::Down, &[], &[]);
        assert_eq!(chosen(&[far(), near(), down], false), [1], "who is not ready has no say");
    }

    #[test]
    fn the_same_node_is_nearer_than_the_same_zone() {
        let here = member(Is::Ready, &["a"], &["node1"]);
        let zone = member(Is::Ready, &["a"], &["node2"]);
        assert_eq!(chosen(&[zone.clone(), here], false), [1]);
        assert_eq!(chosen(&[zone.clone(), zone], false), [0, 1]);
    }
}
