//! How lists of built-in types are merged, which their published JSON schemas do not say:
//! by which fields items are told apart in server-side apply, and by which one in strategic merge.

use super::{Definitions, ListType};

/// Definition, field, map keys of server-side apply, key of strategic merge patch.
type Row = (&'static str, &'static str, &'static [&'static str], &'static str);

const MAPS: &[Row] = &[
    ("io.k8s.api.core.v1.PodSpec", "containers", &["name"], "name"),
    ("io.k8s.api.core.v1.PodSpec", "initContainers", &["name"], "name"),
    ("io.k8s.api.core.v1.PodSpec", "ephemeralContainers", &["name"], "name"),
    ("io.k8s.api.core.v1.PodSpec", "volumes", &["name"], "name"),
    ("io.k8s.api.core.v1.PodSpec", "imagePullSecrets", &["name"], "name"),
    ("io.k8s.api.core.v1.PodSpec", "hostAliases", &["ip"], "ip"),
    ("io.k8s.api.core.v1.PodSpec", "schedulingGates", &["name"], "name"),
    ("io.k8s.api.core.v1.PodSpec", "resourceClaims", &["name"], "name"),
    (
        "io.k8s.api.core.v1.PodSpec",
        "topologySpreadConstraints",
        &["topologyKey", "whenUnsatisfiable"],
        "topologyKey",
    ),
    ("io.k8s.api.core.v1.PodStatus", "conditions", &["type"], "type"),
    ("io.k8s.api.core.v1.PodStatus", "podIPs", &["ip"], "ip"),
    ("io.k8s.api.core.v1.Container", "env", &["name"], "name"),
    ("io.k8s.api.core.v1.Container", "ports", &["containerPort", "protocol"], "containerPort"),
    ("io.k8s.api.core.v1.Container", "volumeMounts", &["mountPath"], "mountPath"),
    ("io.k8s.api.core.v1.Container", "volumeDevices", &["devicePath"], "devicePath"),
    ("io.k8s.api.core.v1.ServiceSpec", "ports", &["port", "protocol"], "port"),
    ("io.k8s.api.core.v1.ServiceStatus", "conditions", &["type"], "type"),
    ("io.k8s.api.core.v1.ServiceAccount", "secrets", &["name"], "name"),
    ("io.k8s.api.core.v1.NodeStatus", "conditions", &["type"], "type"),
    ("io.k8s.api.core.v1.NodeStatus", "addresses", &["type"], "type"),
    ("io.k8s.api.core.v1.NamespaceStatus", "conditions", &["type"], "type"),
    ("io.k8s.api.apps.v1.DeploymentStatus", "conditions", &["type"], "type"),
    ("io.k8s.api.apps.v1.ReplicaSetStatus", "conditions", &["type"], "type"),
    ("io.k8s.api.apps.v1.StatefulSetStatus", "conditions", &["type"], "type"),
    (
        "io.k8s.api.resource.v1.ResourceClaimStatus",
        "devices",
        &["driver", "device", "pool", "shareID"],
        "",
    ),
    ("io.k8s.api.resource.v1.ResourceClaimStatus", "reservedFor", &["uid"], "uid"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", "ownerReferences", &["uid"], "uid"),
    (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionStatus",
        "conditions",
        &["type"],
        "",
    ),
];

/// Lists that strategic merge patch merges by a key although server-side apply replaces them.
const PATCH_ONLY: &[(&str, &str, &str)] = &[("io.k8s.api.core.v1.NodeSpec", "taints", "key")];

/// Lists of plain values that are sets.
const SETS: &[(&str, &str)] = &[
    ("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", "finalizers"),
    ("io.k8s.api.core.v1.NodeSpec", "podCIDRs"),
];

/// Maps that are one value, not a set of fields.
const ATOMIC_MAPS: &[(&str, &str)] = &[
    ("io.k8s.api.core.v1.ServiceSpec", "selector"),
    ("io.k8s.api.core.v1.PodSpec", "nodeSelector"),
];

/// Definitions that are one value wherever they stand.
const ATOMIC_DEFINITIONS: &[&str] = &[
    "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector",
    "io.k8s.api.core.v1.ObjectReference",
    "io.k8s.api.core.v1.LocalObjectReference",
    "io.k8s.api.core.v1.NodeSelector",
    "io.k8s.api.core.v1.ObjectFieldSelector",
    "io.k8s.api.core.v1.SecretKeySelector",
    "io.k8s.api.core.v1.ConfigMapKeySelector",
];

/// Keys of list items that may be left out.
const KEY_DEFAULTS: &[(&str, &str, &str)] = &[
    ("io.k8s.api.core.v1.ContainerPort", "protocol", "TCP"),
    ("io.k8s.api.core.v1.ServicePort", "protocol", "TCP"),
];

/// Definitions whose JSON may be anything.
const ANYTHING: &[&str] = &[
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray",
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
    "io.k8s.apimachinery.pkg.runtime.RawExtension",
];

/// Adds what the tables above know to the definitions of built-in types.
pub(crate) fn annotate(definitions: &mut Definitions) {
    for (definition, field, keys, patch_key) in MAPS {
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        edit(definitions, definition, field, |node| {
            node.list_type = ListType::Map(keys);
            node.patch_key = (!patch_key.is_empty()).then(|| (*patch_key).to_owned());
        });
    }
    for (definition, field, key) in PATCH_ONLY {
        edit(definitions, definition, field, |node| node.patch_key = Some((*key).to_owned()));
    }
    for (definition, field) in SETS {
        edit(definitions, definition, field, |node| node.list_type = ListType::Set);
    }
    for (definition, field) in ATOMIC_MAPS {
        edit(definitions, definition, field, |node| node.atomic_map = true);
    }
    for (definition, field, default) in KEY_DEFAULTS {
        edit(definitions, definition, field, |node| node.default = Some((*default).into()));
    }
    for definition in ATOMIC_DEFINITIONS {
        if let Some(node) = definitions.get_mut(*definition) {
            node.atomic_map = true;
        }
    }
    for definition in ANYTHING {
        definitions.insert((*definition).to_owned(), super::Node::default());
    }
}

fn edit(
    definitions: &mut Definitions,
    definition: &str,
    field: &str,
    change: impl FnOnce(&mut super::Node),
) {
    if let Some(node) =
        definitions.get_mut(definition).and_then(|node| node.properties.get_mut(field))
    {
        change(node);
    }
}
