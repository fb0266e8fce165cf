//! Restarts and upgrades under ten thousand packets a second: nothing is lost, nothing leaks.

use atoll_datapath::DropReason;
use atoll_testkit::load::{Load, Party};

use crate::fabric::{Fabric, Pod, State, attachments, network};
use crate::upgrade::turn_back;

/// A sender and a receiver on two nodes, and a pod of another network beside the sender.
pub(crate) struct Scene {
    pub(crate) fabric: Fabric,
    pub(crate) sender: Pod,
    pub(crate) far: Pod,
    forger: Pod,
}

pub(crate) fn scene(attachment: atoll_datapath::Attachment) -> Scene {
    let fabric = Fabric::attached_by(2, attachment);
    let pod = |at, number, ip| fabric.pod(at, network(number), ip);
    let (sender, far) = (pod(0, 100, "10.0.0.1"), pod(1, 100, "10.0.0.2"));
    let forger = pod(0, 200, "10.0.0.3");
    Scene { fabric, sender, far, forger }
}

/// Every packet of one connection, the first packets of ever new ones, and what must not pass, all
/// at the same time while `disturb` is done to the nodes. Gives how many were forged.
pub(crate) fn nothing_is_lost_and_nothing_leaks(scene: &Scene, disturb: impl Fn()) -> u64 {
    let [sender, receiver, forger] = [&scene.sender, &scene.far, &scene.forger]
        .map(|pod| Party { namespace: &pod.namespace, face: pod.into() });
    Load { sender, receiver, forger }.goes_on_while(disturb).forged
}

impl Scene {
    /// At least so many of the forged packets come to be counted.
    pub(crate) fn await_counted(&self, count: u64) {
        let network = Some(self.forger.network);
        self.fabric.nodes[0].await_dropped(network, DropReason::SpoofedAddress, count);
    }
}

#[test]
fn restarts_under_ten_thousand_packets_a_second_lose_and_leak_nothing() {
    for attachment in attachments() {
        let scene = scene(attachment);
        let forged = nothing_is_lost_and_nothing_leaks(&scene, || {
            for _ in 0..3 {
                scene.fabric.nodes.iter().for_each(|node| node.run(State::open));
            }
        });
        scene.await_counted(forged);
    }
}

#[test]
fn an_upgrade_under_ten_thousand_packets_a_second_loses_and_leaks_nothing() {
    let scene = scene(attachments()[0]);
    nothing_is_lost_and_nothing_leaks(&scene, || {
        for _ in 0..3 {
            scene.fabric.nodes[0].run(|state| {
                turn_back(state);
                state.open();
            });
        }
    });
    // What the former programs count while they are replaced goes with their counters.
    scene.await_counted(1);
}
