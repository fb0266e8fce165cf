//! Labels and annotations that pods, namespaces and services carry for Atoll.

/// Label of a namespace: the tenant that owns it. Only cluster administrators may set it.
pub const TENANT: &str = "atoll.dev/tenant";

/// Label of a pod or a namespace: the network, by the name its tenant gives it.
pub const NETWORK: &str = "atoll.dev/network";

/// Label of a pod, honoured as [`NETWORK`] for manifests written for Arktos.
pub const ARKTOS_NETWORK: &str = "arktos.futurewei.com/network";

/// Annotation of a pod: what it asks of its interfaces, as JSON
/// `[{subnet, ip, ips, mac, name, port}]`. The first is the primary one; all are in its network.
pub const NICS: &str = "atoll.dev/nics";

/// Annotation of a pod: the networks beside its primary one, one more interface each. A list like
/// `net-b,net-c@data`, or JSON `["net-b", {network, subnet, ip, ips, mac, name, port}]`.
pub const EXTRA_NETWORKS: &str = "atoll.dev/extra-networks";

/// Annotation of a pod: `"true"` keeps its addresses for the next pod of its name.
pub const PERSISTENT: &str = "atoll.dev/persistent";

/// Label of a service in a namespace of no tenant: pods of tenants may call it, `all` of them or
/// those `listed` in [`EXPORT_TO`]. Only cluster administrators may set it.
pub const EXPORT: &str = "atoll.dev/export";

/// Annotation of an exported service: the tenants whose pods may call it, with commas between.
pub const EXPORT_TO: &str = "atoll.dev/export-to";

/// Label of a service of a tenant, of type NodePort or LoadBalancer: pods of other networks may come in by
/// its doors to the outside, of `all` networks or of those `listed` in [`OPEN_TO`].
pub const OPEN: &str = "atoll.dev/open";

/// Annotation of such a service: the tenants, and the networks by their object names, whose pods may, with
/// commas between.
pub const OPEN_TO: &str = "atoll.dev/open-to";

/// Annotation of a pod that the controller writes at admission: what the agent of its node probes,
/// as JSON.
pub const PROBES: &str = "atoll.dev/probes";

/// Annotation of a service of a tenant: its addresses from the tenant's service ranges, one of each
/// family, with a comma between. The controller writes it; whoever writes it first asks for these.
pub const VIP: &str = "atoll.dev/vip";

/// What a service of type LoadBalancer may name as its class to get an address of an `AddressPool`.
/// One that names no class gets one, too; one that names another is left to others.
pub const LOAD_BALANCER_CLASS: &str = "atoll.dev/pool";

/// Annotation of a policy: the networks whose interfaces it is about, as a JSON list of the names
/// that the tenant gives them. Without it, a policy is about the whole pod.
pub const POLICY_NETWORKS: &str = "atoll.dev/policy-networks";

/// Annotation of a pod that the controller writes: its interfaces, as the Network Plumbing Working
/// Group writes them.
pub const NETWORK_STATUS: &str = "k8s.v1.cni.cncf.io/network-status";

/// Label of a definition that is not of our group: whose it is. A cluster may have it of somebody
/// else.
pub const PART_OF: &str = "app.kubernetes.io/part-of";

/// The value of [`PART_OF`] on what Atoll brought.
pub const ATOLL: &str = "atoll";

/// On what the controller makes for the DNS pods of a network. Label: the network's number.
/// Annotation: its name, which may be longer than a label.
pub const DNS_OF: &str = "atoll.dev/dns-of";

/// Reason of an event of a policy that has no room on a node, or of a node whose tables of policy
/// cannot be written. What was in force stays in force.
pub const POLICY_HELD: &str = "PolicyHeld";

/// Reason of an event that says that this is over.
pub const POLICY_ENFORCED: &str = "PolicyEnforced";

/// Reason of an event of a network that stays apart from infra because its addresses are infra's, too.
pub const INFRA_CONFLICT: &str = "InfraConflict";
