//! Labels and annotations that pods, namespaces and services carry for Atoll.

/// Label of a namespace: the tenant that owns it. Only cluster administrators may set it.
pub const TENANT: &str = "atoll.dev/tenant";

/// Label of a pod or a namespace: the network, by the name its tenant gives it.
pub const NETWORK: &str = "atoll.dev/network";

/// Label of a pod, honoured as [`NETWORK`] for manifests written for Arktos.
pub const ARKTOS_NETWORK: &str = "arktos.futurewei.com/network";

/// Annotation of a pod: what it asks of its interfaces, as JSON `[{subnet, ip, name, port}]`.
pub const NICS: &str = "atoll.dev/nics";

/// Annotation of a pod: the networks beside its primary one, as a JSON list of names.
pub const EXTRA_NETWORKS: &str = "atoll.dev/extra-networks";
