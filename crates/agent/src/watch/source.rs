//! Each kind of object that a node watches: which of them, and what is heard of each.

use std::net::IpAddr;

use atoll_api::{AddressPool, Claim, Network, Port, marks};
use atoll_model::compile::{EndpointGroup, Outlet};
use atoll_model::export::{Export, ServiceName, TargetSlice};
use atoll_model::outside::Held;
use atoll_types::{Label, NetworkId};
use atoll_zones::Slice;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use tokio::sync::mpsc::Sender;

use super::Watch;
use super::follow::{at_hand, follow, follow_twofold};
use super::objects::{
    exported, front, joined, key, named, network_dns, placed, probed, read_ranges, seen_namespace,
    seen_node, service_name, sibling,
};
use crate::policy::{Ward, watch as policy};
use crate::seen::{Change, Exposed, Exposure, Quarter};

/// The label by which a slice names its service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Where watches begin, and where what they see goes.
pub(super) struct Source {
    client: Client,
    reporter: policy::Reporter,
    changes: Sender<Change>,
}

impl Source {
    pub(super) fn new(client: &Client, node: &str, changes: Sender<Change>) -> Self {
        let reporter = policy::Reporter::start(client.clone(), node);
        Source { client: client.clone(), reporter, changes }
    }

    pub(super) fn nodes(&self, underlay: Option<IpAddr>) -> Watch {
        Watch::start(follow_twofold::<Node, _, _, _>(
            Api::all(self.client.clone()),
            at_hand(),
            move |node| seen_node(node, underlay),
            Node::name_any,
            (self.changes.clone(), Change::Nodes, Change::Zones),
        ))
    }

    pub(super) fn own_ports(&self, node: &str) -> Watch {
        Watch::start(follow::<Port, _, _>(
            Api::all(self.client.clone()),
            at_hand().fields(&format!("spec.node={node}")),
            |port| Some((key(port), joined(port)?)),
            key,
            (self.changes.clone(), Change::OwnPorts),
        ))
    }

    pub(super) fn namespaces(&self) -> Watch {
        Watch::start(follow::<PartialObjectMeta<Namespace>, _, _>(
            Api::all(self.client.clone()),
            watcher::Config::default(),
            |namespace| Some((namespace.name_any(), seen_namespace(namespace))),
            ResourceExt::name_any,
            (self.changes.clone(), Change::Namespaces),
        ))
    }

    pub(super) fn ports(&self, network: NetworkId) -> Watch {
        Watch::start(follow::<Port, _, _>(
            Api::all(self.client.clone()),
            at_hand().fields(&format!("spec.networkID={network}")),
            |port| Some((key(port), placed(port)?)),
            key,
            (self.changes.clone(), move |delta| Change::NetworkPorts(network, delta)),
        ))
    }

    pub(super) fn siblings(&self, tenant: &Label) -> Watch {
        let of = tenant.clone();
        Watch::start(follow::<Network, _, _>(
            Api::all(self.client.clone()),
            at_hand().fields(&format!("spec.tenant={tenant}")),
            |network| Some((network.name_any(), sibling(network)?)),
            Network::name_any,
            (self.changes.clone(), move |delta| Change::Siblings(of.clone(), delta)),
        ))
    }

    pub(super) fn cluster_policies(&self) -> Watch {
        let (client, reporter) = (self.client.clone(), self.reporter.clone());
        Watch::start(policy::cluster_policies(client, reporter, self.changes.clone()))
    }

    pub(super) fn pods(&self, ward: &Ward) -> Watch {
        Watch::start(policy::pods(self.client.clone(), ward.clone(), self.changes.clone()))
    }

    pub(super) fn policies(&self, ward: &Ward) -> Watch {
        let (client, reporter) = (self.client.clone(), self.reporter.clone());
        Watch::start(policy::policies(client, reporter, ward.clone(), self.changes.clone()))
    }

    pub(super) fn dns(&self, network: &str) -> Watch {
        let (names, outside) = (network.to_owned(), network.to_owned());
        Watch::start(follow_twofold::<Network, _, _, _>(
            Api::all(self.client.clone()),
            at_hand().fields(&format!("metadata.name={network}")),
            |network| (Some(network_dns(network)), Some(Outlet::read(network))),
            Network::name_any,
            (
                self.changes.clone(),
                move |delta| Change::Network(names.clone(), delta),
                move |delta| Change::Outlet(outside.clone(), delta),
            ),
        ))
    }

    pub(super) fn held(&self, network: &str) -> Watch {
        let name = network.to_owned();
        Watch::start(follow::<Claim, _, _>(
            Api::all(self.client.clone()),
            at_hand().fields(&format!("spec.network={network}")),
            |claim| Some((claim.name_any(), Held::read(claim)?)),
            Claim::name_any,
            (self.changes.clone(), move |delta| Change::Held(name.clone(), delta)),
        ))
    }

    /// The services of a type that every node leads the outside to, or says something of, or that are open to
    /// others: where they are, and whom they are open to.
    pub(super) fn exposed(&self, exposure: Exposure) -> Watch {
        let of_type = format!("spec.type={}", exposure.type_of_service());
        Watch::start(follow::<Service, _, _>(
            Api::all(self.client.clone()),
            at_hand().fields(&of_type),
            |service| Some((service_name(service), Exposed::read(service)?)),
            service_name,
            (self.changes.clone(), move |delta| Change::Exposed(exposure, delta)),
        ))
    }

    /// The addresses of the outside that this node answers for.
    pub(super) fn answered(&self, node: &str) -> Watch {
        let own = node.to_owned();
        Watch::start(follow::<Claim, _, _>(
            Api::all(self.client.clone()),
            at_hand().fields(&format!("spec.node={node}")),
            move |claim| {
                let held = Held::read(claim).filter(|held| held.node == own)?;
                Some((claim.name_any(), held))
            },
            Claim::name_any,
            (self.changes.clone(), Change::Answered),
        ))
    }

    pub(super) fn services(&self, quarter: &Quarter) -> Watch {
        let (names, fronts) = (quarter.clone(), quarter.clone());
        Watch::start(follow_twofold::<Service, _, _, _>(
            Api::namespaced(self.client.clone(), &quarter.1),
            at_hand(),
            |service| (named(service), front(service)),
            Service::name_any,
            (
                self.changes.clone(),
                move |delta| Change::Services(names.clone(), delta),
                move |delta| Change::Fronts(fronts.clone(), delta),
            ),
        ))
    }

    /// The one service of every cluster that leads to its API.
    pub(super) fn api(&self) -> Watch {
        Watch::start(follow::<Service, _, _>(
            Api::namespaced(self.client.clone(), "default"),
            at_hand().fields("metadata.name=kubernetes"),
            |service| exported(service, Export::api(service)),
            service_name,
            (self.changes.clone(), Change::Api),
        ))
    }

    pub(super) fn exports(&self) -> Watch {
        Watch::start(follow::<Service, _, _>(
            Api::all(self.client.clone()),
            at_hand().labels(marks::EXPORT),
            |service| exported(service, Export::labelled(service)),
            service_name,
            (self.changes.clone(), Change::Exports),
        ))
    }

    pub(super) fn pools(&self) -> Watch {
        Watch::start(follow::<AddressPool, _, _>(
            Api::all(self.client.clone()),
            at_hand(),
            |pool| Some((pool.name_any(), read_ranges(&pool.spec.cidrs))),
            ResourceExt::name_any,
            (self.changes.clone(), Change::Pools),
        ))
    }

    /// Of the pods of this node only what is written on them: their specs are the kubelet's matter.
    pub(super) fn probed(&self, node: &str) -> Watch {
        Watch::start(follow::<PartialObjectMeta<Pod>, _, _>(
            Api::all(self.client.clone()),
            at_hand().fields(&format!("spec.nodeName={node}")),
            probed,
            |pod| (pod.namespace().unwrap_or_default(), pod.name_any()),
            (self.changes.clone(), Change::Probed),
        ))
    }

    pub(super) fn targets(&self, service: &ServiceName) -> Watch {
        let service = service.clone();
        Watch::start(follow::<EndpointSlice, _, _>(
            Api::namespaced(self.client.clone(), &service.0),
            at_hand().labels(&format!("{SERVICE_NAME}={}", service.1)),
            |slice| Some((slice.name_any(), TargetSlice::read(slice))),
            EndpointSlice::name_any,
            (self.changes.clone(), move |delta| Change::Targets(service.clone(), delta)),
        ))
    }

    pub(super) fn slices(&self, quarter: &Quarter) -> Watch {
        let (names, groups) = (quarter.clone(), quarter.clone());
        Watch::start(follow_twofold::<EndpointSlice, _, _, _>(
            Api::namespaced(self.client.clone(), &quarter.1),
            at_hand(),
            |slice| (Slice::read(slice), EndpointGroup::read(slice)),
            EndpointSlice::name_any,
            (
                self.changes.clone(),
                move |delta| Change::Slices(names.clone(), delta),
                move |delta| Change::Groups(groups.clone(), delta),
            ),
        ))
    }
}
