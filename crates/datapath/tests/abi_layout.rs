//! The C side of what kernel and agent share (`bpf/abi.h`) has the same sizes, offsets and numbers
//! as the Rust side (`atoll-abi`). The C compiler is the judge: one assertion per fact.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::mem::offset_of;
use std::process::Command;

use atoll_abi::{
    Address, Affinity, AffinityKey, BACKENDS_PER_PAGE, Backend, Backends, CONNECTION_ACROSS,
    CONNECTION_DENIED, CONNECTION_LEADS_ON, CONNECTION_OPENED_BY_HIGH, CONNECTION_OUTSIDE,
    CONNECTION_TRANSLATED, Closed, ClosedKey, Connection, ConnectionKey, ConnectionState, DNS_PORT,
    DOOR_PORT, Door, DoorKey, Doors, DropCounter, DropKey, DropReason, Egress, EgressKey,
    EgressNode, EgressNodeKey, Endpoint, EndpointKey, Entrance, EntranceKey, Event, EventKind,
    Held, HeldKey, INFRA_HERE, INFRA_NOWHERE, INFRA_THERE, INTERFACE_NAME_BYTES, Infra, InfraKey,
    Interface, InterfaceKey, KIND_CONNECTION, KIND_OUTSIDE, KINDS_LOOP, MAX_CONNECTIONS,
    MAX_INTERFACES, MAX_SOURCES, NO_BANK, NO_NETWORK, NODE_MAC, NearInterface, Network, NodeFront,
    NodeFrontKey, NodePort, NodePortKey, Opening, OpeningKey, PLAIN_DROP_REASONS, PLAIN_NETWORK,
    PROBER_PORTS, Peer, PeerKey, Place, PlainKey, PlainWay, PolicyColumnKey, PolicyEndKey,
    PolicyIdentity, PolicyOutside, PolicyPort, PolicyVerdict, SECOND_BANK, SIDE_BACKENDS,
    SIDE_CLIENTS, SIDE_OUTSIDE, SLOTS_PER_PAGE, Service, ServiceDoor, ServiceDoorKey, ServiceFront,
    ServiceFrontKey, ServiceKey, ServicePage, Slots, Source, SourceKey, TIER_NETWORK_POLICY,
    TURNS_PER_PAGE, Traffic, Turns, TurnsKey,
};
use atoll_types::MacAddr;

/// Assertions that struct `$c` is like `$rust`, field by field.
macro_rules! same_layout {
    ($rust:ty, $c:literal, $($field:ident),+) => {{
        let mut facts = vec![format!("sizeof(struct {}) == {}", $c, size_of::<$rust>())];
        $(facts.push(format!(
            "__builtin_offsetof(struct {}, {}) == {}",
            $c, stringify!($field), offset_of!($rust, $field)
        ));)+
        facts
    }};
}

fn structs() -> Vec<String> {
    [
        same_layout!(InterfaceKey, "interface_key", ifindex),
        same_layout!(
            Interface,
            "interface",
            since,
            network,
            mac,
            source_count,
            serves_ipv6,
            name,
            sources,
            slot,
            table
        ),
        same_layout!(NearInterface, "near_interface", ifindex, reserved, interface),
        same_layout!(EndpointKey, "endpoint_key", network, address),
        same_layout!(Endpoint, "endpoint", since, ifindex, node, mac, slot, table, reserved),
        same_layout!(PeerKey, "peer_key", address),
        same_layout!(Peer, "peer", reserved),
        same_layout!(DoorKey, "door_key", network),
        same_layout!(Doors, "doors", ipv4, ipv6),
        same_layout!(
            ServiceDoorKey,
            "service_door_key",
            network,
            address,
            port,
            datagrams,
            reserved
        ),
        same_layout!(ServiceDoor, "service_door", listener, reserved),
        same_layout!(ServiceFrontKey, "service_front_key", network, listener, reserved),
        same_layout!(ServiceFront, "service_front", address, port, datagrams, reserved),
        same_layout!(DropKey, "drop_key", network, reason),
        same_layout!(DropCounter, "drop_counter", packets, bytes),
        vec![format!("sizeof(struct address) == {}", size_of::<Address>())],
    ]
    .concat()
}

fn structs_of_services() -> Vec<String> {
    [
        same_layout!(ServiceKey, "service_key", network, address, port, protocol, side),
        same_layout!(Service, "service", id, slots, affinity),
        same_layout!(ServicePage, "service_page", service, page),
        same_layout!(Slots, "slots", backends),
        same_layout!(Backend, "backend", network, address, port, reserved),
        same_layout!(Backends, "backends", at),
        same_layout!(AffinityKey, "affinity_key", service, client),
        same_layout!(Affinity, "affinity", seen, address, port, place, reserved),
        vec![
            format!("SLOTS_PER_PAGE == {SLOTS_PER_PAGE}"),
            format!("BACKENDS_PER_PAGE == {BACKENDS_PER_PAGE}"),
            format!("SIDE_CLIENTS == {SIDE_CLIENTS} && SIDE_BACKENDS == {SIDE_BACKENDS} && SIDE_OUTSIDE == {SIDE_OUTSIDE}"),
        ],
    ]
    .concat()
}

fn structs_of_plain_pods() -> Vec<String> {
    [
        same_layout!(
            PlainKey,
            "plain_key",
            source,
            destination,
            source_port,
            destination_port,
            protocol,
            kind,
            reserved
        ),
        same_layout!(
            PlainWay,
            "plain_way",
            seen,
            source,
            destination,
            source_port,
            destination_port,
            place,
            flags,
            reserved
        ),
        same_layout!(NodeFrontKey, "node_front_key", socket, address, port, reserved),
        same_layout!(NodeFront, "node_front", address, port, reserved),
        vec![
            format!("PLAIN_NETWORK == {PLAIN_NETWORK}"),
            format!("PLAIN_DROP_REASONS == {PLAIN_DROP_REASONS}"),
        ],
    ]
    .concat()
}

fn structs_of_the_outside() -> Vec<String> {
    [
        same_layout!(EgressKey, "egress_key", network),
        same_layout!(Egress, "egress", ipv4, ipv6, first_port, ports, table, for_all, reserved),
        same_layout!(EgressNodeKey, "egress_node_key", network, ipv6),
        same_layout!(EgressNode, "egress_node", node),
        same_layout!(HeldKey, "held_key", address),
        same_layout!(Held, "held", network),
        vec![format!("sizeof(struct source_key) == {}", 4 + size_of::<SourceKey>())],
        same_layout!(Source, "source", reserved),
        vec![format!("sizeof(struct closed_key) == {}", 4 + size_of::<ClosedKey>())],
        same_layout!(Closed, "closed", reason),
        same_layout!(NodePortKey, "node_port_key", address, port, protocol, reserved),
        same_layout!(NodePort, "node_port", network),
        same_layout!(EntranceKey, "entrance_key", network),
        same_layout!(Entrance, "entrance", table),
        vec![format!("sizeof(struct infra_key) == {}", 4 + size_of::<InfraKey>())],
        same_layout!(Infra, "infra", place, is_node),
        same_layout!(OpeningKey, "opening_key", network, address, port, protocol, reserved),
        same_layout!(Opening, "opening", is_here),
        vec![
            format!("KIND_OUTSIDE == {KIND_OUTSIDE}"),
            format!("KIND_LOOP_TO_LOW == {}", KINDS_LOOP[0]),
            format!("KIND_LOOP_TO_HIGH == {}", KINDS_LOOP[1]),
            format!("CONNECTION_OUTSIDE == {CONNECTION_OUTSIDE}"),
            format!("INFRA_NOWHERE == {INFRA_NOWHERE} && INFRA_HERE == {INFRA_HERE}"),
            format!("INFRA_THERE == {INFRA_THERE}"),
            "__builtin_offsetof(struct connection, network) == \
             __builtin_offsetof(struct connection, egress_rule)"
                .to_owned(),
        ],
    ]
    .concat()
}

fn structs_of_policy() -> Vec<String> {
    let behind_prefix = |c: &str, size: usize| vec![format!("sizeof(struct {c}) == {}", 4 + size)];
    [
        same_layout!(PolicyEndKey, "policy_end_key", network, address, bank),
        behind_prefix("policy_outside_key", size_of::<PolicyOutside>()),
        same_layout!(PolicyIdentity, "policy_identity", tenant, ingress, egress),
        same_layout!(PolicyColumnKey, "policy_column_key", set, identity),
        behind_prefix("policy_port_key", size_of::<PolicyPort>()),
        same_layout!(PolicyVerdict, "policy_verdict", rule, accept, tier, reserved),
        vec![
            format!("NO_BANK == {NO_BANK} && SECOND_BANK == {SECOND_BANK}u"),
            format!("TIER_NETWORK_POLICY == {TIER_NETWORK_POLICY}"),
        ],
    ]
    .concat()
}

fn structs_of_connections() -> Vec<String> {
    [
        same_layout!(
            ConnectionKey,
            "connection_key",
            network,
            low,
            high,
            low_port,
            high_port,
            protocol,
            kind,
            reserved
        ),
        same_layout!(
            Connection,
            "connection",
            generation,
            table,
            state,
            flags,
            low,
            high,
            last_seen,
            node,
            opened,
            egress_rule,
            ingress_rule,
            nat_address,
            nat_port,
            backend,
            turn
        ),
        same_layout!(Place, "place", ifindex, mac, slot),
        same_layout!(TurnsKey, "turns_key", table, page),
        same_layout!(Turns, "turns", at),
        same_layout!(Network, "network", generation, network, share, tenant),
        vec![format!("sizeof(struct first_fragment) == {}", size_of::<Address>())],
    ]
    .concat()
}

fn structs_of_events() -> Vec<String> {
    [
        same_layout!(
            Traffic,
            "traffic",
            sent_packets,
            sent_bytes,
            received_packets,
            received_bytes,
            dropped_packets,
            dropped_bytes
        ),
        same_layout!(
            Event,
            "event",
            at,
            network,
            ifindex,
            source,
            destination,
            source_port,
            destination_port,
            reason,
            kind,
            protocol,
            egress_rule,
            ingress_rule
        ),
    ]
    .concat()
}

fn numbers() -> Vec<String> {
    let c_name = |reason: &DropReason| reason.name().replace('-', "_").to_uppercase();
    let reasons = DropReason::ALL.iter();
    let mut facts: Vec<String> =
        reasons.map(|reason| format!("DROP_{} == {}", c_name(reason), reason.number())).collect();
    facts.push(format!("DOORS == {}", Door::RESOLVERS));
    facts.push(format!("SERVICE_DOOR == {}", Door::Service as u8));
    facts.push(format!("PROBER == {}", Door::Prober as u8));
    facts.push(format!("PROBER_PORTS == {PROBER_PORTS}"));
    facts.push(format!("DOOR_PORT == {DOOR_PORT} && DNS_PORT == {DNS_PORT}"));
    facts.push(format!("MAX_SOURCES == {MAX_SOURCES}"));
    facts.push(format!("INTERFACE_NAME_BYTES == {INTERFACE_NAME_BYTES}"));
    facts.push(format!("MAX_INTERFACES == {MAX_INTERFACES}"));
    facts.push(format!("NO_NETWORK == {NO_NETWORK}"));
    facts.push(format!("MAX_CONNECTIONS == {MAX_CONNECTIONS}"));
    facts.push(format!("TURNS_PER_PAGE == {TURNS_PER_PAGE}"));
    facts.push(format!("KIND_CONNECTION == {KIND_CONNECTION}"));
    facts.push(format!("CONNECTION_OPENED_BY_HIGH == {CONNECTION_OPENED_BY_HIGH}"));
    facts.push(format!("CONNECTION_TRANSLATED == {CONNECTION_TRANSLATED}"));
    facts.push(format!("CONNECTION_LEADS_ON == {CONNECTION_LEADS_ON}"));
    facts.push(format!("CONNECTION_DENIED == {CONNECTION_DENIED}"));
    facts.push(format!("CONNECTION_ACROSS == {CONNECTION_ACROSS}"));
    for (name, state) in
        [("NEW", ConnectionState::New), ("ESTABLISHED", ConnectionState::Established)]
    {
        facts.push(format!("LASTS_{name}_STREAM == {}", state.lasts(true)));
        facts.push(format!("LASTS_{name} == {}", state.lasts(false)));
    }
    for (name, state) in
        [("CLOSING", ConnectionState::Closing), ("CLOSED", ConnectionState::Closed)]
    {
        facts.push(format!("LASTS_{name} == {}", state.lasts(true)));
    }
    let c_name = |name: String| name.to_uppercase();
    let states = ConnectionState::ALL.into_iter();
    let kinds = EventKind::ALL.into_iter();
    facts.extend(states.map(|it| format!("STATE_{} == {}", c_name(format!("{it:?}")), it as u8)));
    facts.extend(kinds.map(|it| format!("EVENT_{} == {}", c_name(format!("{it:?}")), it as u8)));
    facts
}

fn compiles(facts: &[String]) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("facts.c");
    let assertions = facts.iter().map(|fact| format!("_Static_assert({fact}, \"\");\n"));
    let text = format!(
        "#include \"outside_abi.h\"\n#include \"plain_abi.h\"\n#include \"service_abi.h\"\n{}",
        assertions.collect::<String>()
    );
    std::fs::write(&source, text).unwrap();
    let clang = std::env::var("BPF_CLANG").unwrap_or_else(|_| "clang".into());
    let include = concat!(env!("CARGO_MANIFEST_DIR"), "/bpf");
    let architecture = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(clang)
        .args(["--target=bpf", "-fsyntax-only", "-I", include, &architecture])
        .arg(&source)
        .output()
        .expect("clang, which also built the programs");
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn both_sides_have_the_same_sizes_offsets_and_numbers() {
    let structs = [
        structs(),
        structs_of_services(),
        structs_of_plain_pods(),
        structs_of_the_outside(),
        structs_of_connections(),
        structs_of_events(),
        structs_of_policy(),
    ];
    compiles(&[structs.concat(), numbers()].concat()).unwrap();
}

#[test]
fn a_difference_would_be_found() {
    let wrong = format!("sizeof(struct endpoint) == {}", size_of::<Endpoint>() + 1);
    assert!(compiles(&[wrong]).is_err());
}

#[test]
fn both_sides_have_the_same_ethernet_addresses() {
    assert_defined("GATEWAY_MAC", MacAddr::GATEWAY.octets());
    assert_defined("NODE_MAC", NODE_MAC);
}

fn assert_defined(name: &str, mac: [u8; 6]) {
    let header = include_str!("../bpf/abi.h");
    let bytes = mac.map(|byte| format!("0x{byte:02x}")).join(", ");
    assert!(header.contains(&format!("#define {name} {{ {bytes} }}")), "{bytes}");
}

#[test]
fn the_walk_of_a_packet_lists_every_drop_reason() {
    let walk = include_str!("../../../docs/packet-walk.md");
    let listed: Vec<&str> = walk.lines().filter(|line| line.contains("| `")).collect();
    let row = |reason: &DropReason| {
        format!("| {} | `{}` | {} |", reason.number(), reason.name(), reason.meaning())
    };
    assert_eq!(listed, DropReason::ALL.iter().map(row).collect::<Vec<_>>());
}
