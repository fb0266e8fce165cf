//! What an attacker in a pod tries, row by row, with raw frames: nothing of it reaches anybody, and
//! each is counted under its name. Beside each stands what an honest pod does, which arrives.

use atoll_testkit::threats::{Cast, Row};

use crate::fabric::{Fabric, OVERLAY_PORT, Pod, network};

struct Scene {
    fabric: Fabric,
    attacker: Pod,
    near: Pod,
    far: Pod,
    foreign: Pod,
}

fn scene() -> Scene {
    let fabric = Fabric::of(2);
    let pod = |at, number, ip| fabric.pod(at, network(number), ip);
    let (attacker, near) = (pod(0, 100, "10.0.0.1"), pod(0, 100, "10.0.0.2"));
    let (far, foreign) = (pod(1, 100, "10.0.0.3"), pod(0, 200, "10.0.0.4"));
    Scene { fabric, attacker, near, far, foreign }
}

impl Scene {
    fn cast(&self) -> Cast {
        Cast {
            attacker: (&self.attacker).into(),
            near: (&self.near).into(),
            far: (&self.far).into(),
            foreign: (&self.foreign).into(),
            foreign_network: 200,
            nodes: self.fabric.nodes.iter().map(|node| node.underlay.into()).collect(),
            services: ["10.96.0.1", "fd96::1"].map(|ip| ip.parse().unwrap()).into(),
            tunnel_port: OVERLAY_PORT,
        }
    }

    fn holds(&self, row: &Row, victim: &Pod) {
        let others = [&self.near, &self.far, &self.foreign].into_iter();
        let others: Vec<&Pod> = others.filter(|pod| pod.addrs() != victim.addrs()).collect();
        let heard = || [victim].into_iter().chain(others.iter().copied()).map(Pod::packets);
        let own = Some(self.attacker.network);
        row.holds(
            &self.attacker.packets(),
            || heard().collect(),
            |reason| self.fabric.nodes[0].dropped(own, reason),
        );
    }

    fn all_hold(&self) {
        let cast = self.cast();
        for victim in [&self.near, &self.far] {
            for (own, other) in cast.encounters(&victim.into()) {
                cast.rows(own, other).iter().for_each(|row| self.holds(row, victim));
            }
        }
    }
}

#[test]
fn every_row_of_the_threats_holds() {
    scene().all_hold();
}

#[test]
fn every_row_of_the_threats_holds_with_offloads_off() {
    let scene = scene();
    for pod in [&scene.attacker, &scene.near, &scene.far, &scene.foreign] {
        pod.namespace.switch_offloads_off("eth0");
    }
    for node in &scene.fabric.nodes {
        ["uplink", "atoll-vx"].iter().for_each(|link| node.namespace.switch_offloads_off(link));
    }
    scene.all_hold();
}
