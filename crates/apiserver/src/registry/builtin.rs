//! The built-in kinds, one row each.

use super::{Nature, Resource, Version, openapi_types};
use crate::schema::{Definitions, Schema};
use std::sync::Arc;

/// What differs between built-in kinds.
struct Row {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
    categories: &'static [&'static str],
    namespaced: bool,
    status: bool,
    generations: bool,
    selectable: &'static [&'static str],
    package: &'static str,
}

const BASE: Row = Row {
    group: "",
    version: "v1",
    kind: "",
    plural: "",
    short: &[],
    categories: &[],
    namespaced: true,
    status: false,
    generations: false,
    selectable: &[],
    package: "io.k8s.api.core.v1",
};

const APPS: Row = Row {
    group: "apps",
    categories: &["all"],
    status: true,
    generations: true,
    package: "io.k8s.api.apps.v1",
    ..BASE
};

const ROWS: &[Row] = &[
    Row {
        kind: "Namespace",
        plural: "namespaces",
        short: &["ns"],
        namespaced: false,
        status: true,
        selectable: &["status.phase"],
        ..BASE
    },
    Row {
        kind: "Node",
        plural: "nodes",
        short: &["no"],
        namespaced: false,
        status: true,
        selectable: &["spec.unschedulable"],
        ..BASE
    },
    Row {
        kind: "Pod",
        plural: "pods",
        short: &["po"],
        categories: &["all"],
        status: true,
        generations: true,
        selectable: &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        ..BASE
    },
    Row {
        kind: "Service",
        plural: "services",
        short: &["svc"],
        categories: &["all"],
        status: true,
        selectable: &["spec.clusterIP", "spec.type"],
        ..BASE
    },
    Row { kind: "Endpoints", plural: "endpoints", short: &["ep"], ..BASE },
    Row { kind: "ConfigMap", plural: "configmaps", short: &["cm"], ..BASE },
    Row { kind: "Secret", plural: "secrets", selectable: &["type"], ..BASE },
    Row { kind: "ServiceAccount", plural: "serviceaccounts", short: &["sa"], ..BASE },
    Row {
        kind: "Event",
        plural: "events",
        short: &["ev"],
        selectable: &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ..BASE
    },
    Row {
        group: "events.k8s.io",
        kind: "Event",
        plural: "events",
        short: &["ev"],
        selectable: &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        package: "io.k8s.api.events.v1",
        ..BASE
    },
    Row {
        group: "discovery.k8s.io",
        kind: "EndpointSlice",
        plural: "endpointslices",
        generations: true,
        package: "io.k8s.api.discovery.v1",
        ..BASE
    },
    Row {
        group: "coordination.k8s.io",
        kind: "Lease",
        plural: "leases",
        package: "io.k8s.api.coordination.v1",
        ..BASE
    },
    Row {
        group: "networking.k8s.io",
        kind: "NetworkPolicy",
        plural: "networkpolicies",
        short: &["netpol"],
        generations: true,
        package: "io.k8s.api.networking.v1",
        ..BASE
    },
    Row {
        group: "rbac.authorization.k8s.io",
        kind: "ClusterRole",
        plural: "clusterroles",
        namespaced: false,
        package: "io.k8s.api.rbac.v1",
        ..BASE
    },
    Row { kind: "Deployment", plural: "deployments", short: &["deploy"], ..APPS },
    Row { kind: "ReplicaSet", plural: "replicasets", short: &["rs"], ..APPS },
    Row { kind: "StatefulSet", plural: "statefulsets", short: &["sts"], ..APPS },
    Row { kind: "DaemonSet", plural: "daemonsets", short: &["ds"], ..APPS },
    Row {
        group: "apiextensions.k8s.io",
        kind: "CustomResourceDefinition",
        plural: "customresourcedefinitions",
        short: &["crd", "crds"],
        categories: &["api-extensions"],
        namespaced: false,
        status: true,
        generations: true,
        package: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1",
        ..BASE
    },
];

/// Every built-in resource.
pub(super) fn resources() -> impl Iterator<Item = Resource> {
    let definitions = Arc::new(openapi_types::definitions());
    ROWS.iter().map(move |row| resource(row, &definitions))
}

fn resource(row: &Row, definitions: &Arc<Definitions>) -> Resource {
    Resource {
        group: row.group.to_owned(),
        plural: row.plural.to_owned(),
        singular: row.kind.to_lowercase(),
        kind: row.kind.to_owned(),
        list_kind: format!("{}List", row.kind),
        short_names: owned(row.short),
        categories: owned(row.categories),
        namespaced: row.namespaced,
        nature: Nature::Builtin,
        terminating: false,
        counts_generations: row.generations,
        collection: collection(row).into(),
        storage_version: row.version.to_owned(),
        versions: vec![version(row, definitions)],
        seed: None,
    }
}

fn version(row: &Row, definitions: &Arc<Definitions>) -> Version {
    Version {
        name: row.version.to_owned(),
        schema: Schema::reference(&format!("{}.{}", row.package, row.kind), definitions),
        status_subresource: row.status,
        scale: scale(row),
        columns: Vec::new(),
        selectable: owned(row.selectable),
        deprecation: None,
    }
}

fn scale(row: &Row) -> Option<super::ScalePaths> {
    let scales = matches!(row.plural, "deployments" | "replicasets" | "statefulsets");
    scales.then(|| super::ScalePaths {
        spec_replicas: ".spec.replicas".to_owned(),
        status_replicas: ".status.replicas".to_owned(),
        selector: None,
    })
}

/// Both event APIs keep their objects in one place.
fn collection(row: &Row) -> String {
    if row.group.is_empty() || row.plural == "events" {
        row.plural.to_owned()
    } else {
        format!("{}.{}", row.plural, row.group)
    }
}

fn owned(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}
