//! Networks: what is refused, what waits, what is said.

use atoll_api::Network;
use atoll_controller::ControllerConfig;
use kube::api::DeleteParams;
use kube::runtime::conditions::is_deleted;

use crate::subject::{Subject, make, network, pod, ready, remove, remove_pods, try_make, until};

#[tokio::test(flavor = "multi_thread")]
async fn an_overlapping_range_in_one_vpc_fails_and_names_both() {
    let subject = Subject::new("overlap").await;
    let _controller = subject.start(ControllerConfig::default());
    let acme = subject.unique("acme");
    subject.make_tenant(&acme, "10.0.0.0/16").await;
    let networks = subject.all::<Network>();
    let (first, late) = (format!("{acme}.default"), format!("{acme}.late"));
    subject.network_in_phase(&first, "Active").await;
    make(&networks, network(&late, "vpc", Some("default"), &["10.0.1.0/24"])).await;
    let failed = subject.network_in_phase(&late, "Failed").await;
    let text = format!(
        "spec.cidrs: 10.0.1.0/24 overlaps 10.0.0.0/16 of network {first}, which is in the same VPC; \
         name another range, or another vpcID"
    );
    assert_eq!(ready(&failed), ("CidrOverlap".to_owned(), text.clone()));
    assert_eq!(subject.event(&late, "CidrOverlap").await, text);

    let apart = format!("{acme}.apart");
    make(&networks, network(&apart, "vpc", None, &["10.0.0.0/16"])).await;
    subject.network_in_phase(&apart, "Active").await;
    remove(&networks, &late).await;
    remove(&networks, &apart).await;
    subject.remove_tenant(&acme).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_range_is_refused_with_its_field() {
    let subject = Subject::new("malformed").await;
    for range in ["10.0.0.0/99", "10.0.0.5/16", "ten"] {
        let manifest = network("acme.default", "vpc", None, &[range]);
        let refused = try_make(&subject.all::<Network>(), manifest).await.unwrap_err();
        let kube::Error::Api(status) = refused else { panic!("{refused:?}") };
        assert_eq!(status.code, 422, "{range}");
        assert!(status.message.contains("spec.cidrs"), "{}", status.message);
        assert!(status.message.contains("must be a CIDR like"), "{}", status.message);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_type_without_a_provider_waits() {
    let subject = Subject::new("provider").await;
    let _controller = subject.start(ControllerConfig::default());
    let acme = subject.unique("acme");
    subject.make_tenant(&acme, "10.0.0.0/16").await;
    let name = format!("{acme}.outside");
    make(&subject.all::<Network>(), network(&name, "mizar", None, &[])).await;
    let pending = subject.network_in_phase(&name, "Pending").await;
    assert_eq!(ready(&pending).0, "NoProvider");
    remove(&subject.all::<Network>(), &name).await;
    subject.remove_tenant(&acme).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_in_use_waits_with_the_names_of_its_pods() {
    let subject = Subject::new("used").await;
    let _controller = subject.start(ControllerConfig::default());
    let acme = subject.unique("acme");
    subject.make_tenant(&acme, "10.0.0.0/16").await;
    make(&subject.pods(&acme), pod("web")).await;
    subject.port_of(&acme, "web").await;
    let (networks, name) = (subject.all::<Network>(), format!("{acme}.default"));
    networks.delete(&name, &DeleteParams::default()).await.unwrap();
    let waiting = subject.network_in_phase(&name, "Terminating").await;
    assert_eq!(ready(&waiting), ("InUse".into(), format!("is used by pods {acme}/web")));
    remove_pods(&subject.pods(&acme)).await;
    until(&networks, &name, is_deleted(waiting.metadata.uid.as_deref().unwrap())).await;
    subject.remove_tenant(&acme).await;
}
