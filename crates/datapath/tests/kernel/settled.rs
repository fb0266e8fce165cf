//! An interface that is there works: from its first packet on, both ways, however busy the kernel is.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use atoll_datapath::DropReason;
use atoll_testkit::{Hears, Namespace, Stops};

use crate::fabric::{Fabric, network};
use crate::forge;
use crate::talk::udp;

const NOBODY: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 99);

/// Makes links and removes them together, as a node does that starts and ends many pods: meanwhile nobody
/// else's link changes.
fn churn(stop: &AtomicBool) {
    let elsewhere = Namespace::new();
    while !stop.load(Ordering::Relaxed) {
        for number in 0..20 {
            elsewhere.ip(&format!("link add a{number} group 7 type veth peer name b{number}"));
        }
        elsewhere.ip("link delete group 7");
    }
}

#[test]
fn a_pod_speaks_and_is_spoken_to_from_the_moment_its_interface_is_there() {
    const PODS: u8 = 20;
    let fabric = Fabric::of(1);
    let neighbour = fabric.pod(0, network(100), "10.0.0.100");
    let asks = udp(neighbour.v6(), 0);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stopped = Stops(&stop);
        scope.spawn(|| churn(&stop));
        scope.spawn(|| churn(&stop));
        let mut pods = vec![];
        for number in 1..=PODS {
            let pod = fabric.pod(0, network(100), &format!("10.0.0.{number}"));
            pod.packets().send(&forge::udp(&pod, NOBODY)).unwrap();
            let hears = udp(pod.v6(), 0);
            asks.send_to(b"?", hears.local_addr().unwrap()).unwrap();
            hears.hear(&mut [0; 1]).expect("what is sent to a new pod arrives");
            pods.push(pod);
        }
        fabric.nodes[0].await_dropped(Some(network(100)), DropReason::NoEndpoint, PODS.into());
    });
}
