//! What policy decides about a packet: on the opener's node by `from_pod`, on the other by `from_overlay`.

use atoll_datapath::DropReason::{self, PolicyDeniedEgress, PolicyDeniedIngress, PolicyUnknown};
use atoll_policy::Event;
use atoll_types::PodRef;

use super::{Packet, Table, Tunnel, Verdict};
use crate::forge::{datagram, packet};
use crate::policy_threats::{Scene, closed, tenant, without_policy};

pub(super) const JUDGED: &[DropReason] = &[PolicyDeniedEgress, PolicyDeniedIngress, PolicyUnknown];

#[test]
fn what_policy_lets_out_and_in() {
    let scene = Scene::new();
    let (client, server) = (&scene.client, &scene.server);
    [client, server].iter().for_each(|pod| pod.silence());
    let nodes = &scene.fabric.nodes;
    let out = Table::on(&nodes[0], "from_pod", &client.host_side.to_string());
    let into = Table::on(&nodes[1], "from_overlay", "atoll-vx");
    let by = Tunnel { from: nodes[0].tunnel, to: nodes[1].tunnel, network: client.network.get() };
    let arrives = Verdict::To(server.mac.octets());
    let both = |name, verdicts: [Verdict; 2]| {
        for (from, to) in [(client.v4(), server.v4()), (client.v6(), server.v6())] {
            let frame = packet(from, to.ip, 17, &datagram((1, 2), b"x"));
            out.hold(&nodes[0], vec![(name, frame.clone(), verdicts[0])]);
            into.hold(&nodes[1], vec![(name, Packet::from(frame).by(by), verdicts[1])]);
        }
    };
    let drop = Verdict::Drop;
    both("without a policy", [arrives, arrives]);
    scene.happens(closed("Egress", "client"));
    both("with no way out for its sender", [drop(PolicyDeniedEgress), arrives]);
    scene.happens(closed("Ingress", "server"));
    both("with no way in to its receiver", [arrives, drop(PolicyDeniedIngress)]);
    scene.happens(without_policy());
    both("without a policy again", [arrives, arrives]);
    scene.happens(Event::Pod(tenant(), PodRef::new("shop", "client"), None));
    both("of a sender of whom policy knows nothing", [drop(PolicyUnknown), arrives]);
    scene.happens(Event::Pod(tenant(), PodRef::new("shop", "server"), None));
    both(
        "to a receiver of whom it knows nothing, either",
        [drop(PolicyUnknown), drop(PolicyUnknown)],
    );
    let reasons = [out, into].iter().flat_map(|it| it.reasons.take()).collect::<Vec<_>>();
    assert!(JUDGED.iter().all(|reason| reasons.contains(reason)), "{reasons:?}");
}
