//! One change costs what it touches, however large the cluster is.

use std::time::Duration;

use atoll_model::intent::{Kind, Template};

use crate::cluster::Cluster;
use crate::controller::Controller;
use crate::networks::network;
use crate::pods::pod;
use crate::services::service;
use crate::tenants::{key, namespace, tenant};

/// A settled cluster: so many tenants, each with ten networks of one pod each.
fn cluster_of(tenants: usize) -> (Cluster, Controller) {
    let mut cluster = Cluster::default();
    for number in 0..tenants {
        let name = format!("t-{number}");
        cluster.create(tenant(&name, &[])).unwrap();
        cluster.create(namespace(&name, &name)).unwrap();
        for part in 0..10 {
            let made = network(&format!("{name}.n-{part}"), None, &["10.0.0.0/24"]);
            cluster.create(made).unwrap();
            let made = pod(&format!("{name}/web-{part}"), Some(&format!("n-{part}")), None);
            cluster.create(made).unwrap();
            cluster.create(service(&format!("{name}/svc-{part}"), "")).unwrap();
        }
    }
    let mut controller = Controller::start(&cluster, &Template::None, Duration::ZERO);
    controller.settle(&mut cluster);
    (cluster, controller)
}

/// How many objects have to be looked at when each of these changes is heard.
fn work_of_changes(tenants: usize) -> Vec<usize> {
    let (mut cluster, mut controller) = cluster_of(tenants);
    assert_eq!(cluster.of_kind(Kind::Port).len(), tenants * 10);
    let changed = [
        key(Kind::Pod, "t-1/web-3"),
        key(Kind::Port, "t-1/web-3.eth0"),
        key(Kind::Network, "t-1.n-3"),
        key(Kind::Subnet, "t-1.n-3.10-0-0-0-24"),
        key(Kind::Claim, "address.3.10.0.0.2"),
        key(Kind::Service, "t-1/svc-3"),
        key(Kind::Claim, "vip.t-1.198.18.0.3"),
    ];
    let mut work: Vec<usize> = Vec::new();
    for key in &changed {
        let heard = cluster.log.len();
        cluster.change(key, |object| object.meta_mut().labels = Some([].into()));
        work.push(controller.touched_by(&cluster.log[heard]).len());
    }
    cluster.delete(&key(Kind::Pod, "t-1/web-3"));
    work.push(controller.settle_counting(&mut cluster));
    cluster.delete(&key(Kind::Service, "t-1/svc-3"));
    work.push(controller.settle_counting(&mut cluster));
    cluster.create(service("t-1/new", "")).unwrap();
    work.push(controller.settle_counting(&mut cluster));
    cluster.create(pod("t-1/new", Some("n-3"), None)).unwrap();
    work.push(controller.settle_counting(&mut cluster));
    work
}

#[test]
fn a_change_costs_the_same_in_a_large_cluster_as_in_a_small_one() {
    assert_eq!(work_of_changes(100), work_of_changes(2));
}
