//! Row 20 of the threats: what somebody in a pod, who is root of nothing but the pod, makes of the agents,
//! their files and the words by which pods ask for interfaces.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use atoll_cni::wire::{AgentReply, AgentRequest, ask};
use atoll_cni::{AttachmentId, AttachmentRequest};
use atoll_testkit::eventually;
use atoll_testkit::forge::{self, packet};
use atoll_types::PodRef;
use serde_json::{Value, json};

use crate::documents::{pod, yaml};
use crate::fixture::state_dir;
use crate::threats::{Player, Stage};

const NODES: [&str; 3] = ["node1", "node2", "node3"];
const TRUTH: &[u8] = b"I am myself";
const LIE: &[u8] = b"I am my neighbour";

/// What would make the attacker its neighbour, cut everybody off, or tell of others' packets.
fn requests(stage: &Stage) -> Vec<AgentRequest> {
    let id = AttachmentId { container_id: "c0ffee".into(), interface: "eth1".into() };
    let sandbox = stage.attacker.namespace.path();
    let pod = PodRef::new("acme", "near");
    let as_neighbour = AttachmentRequest { id: id.clone(), sandbox, pod, pod_uid: None };
    vec![
        AgentRequest::Add(as_neighbour),
        AgentRequest::Check(id.clone()),
        AgentRequest::Del(id),
        AgentRequest::Gc(vec![]),
        AgentRequest::Status,
        AgentRequest::Drops,
        AgentRequest::Traffic,
    ]
}

/// Lets everybody walk to the nodes' folders: what is asked is what the agents' own files refuse.
fn open_the_way(stage: &Stage) {
    let home = state_dir(&stage.lab.name);
    let nodes = NODES.map(|node| home.join("nodes").join(node));
    for folder in [home.clone(), home.join("nodes")].into_iter().chain(nodes) {
        fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
    }
}

/// Every folder of attachments below a node's.
fn attachments(stage: &Stage, node: &str) -> PathBuf {
    let folder = state_dir(&stage.lab.name).join("nodes").join(node);
    let mut below = vec![folder];
    while let Some(folder) = below.pop() {
        if folder.ends_with("attachments") {
            return folder;
        }
        let inside = fs::read_dir(&folder).into_iter().flatten().flatten();
        below.extend(inside.map(|entry| entry.path()).filter(|path| path.is_dir()));
    }
    panic!("{node} remembers no attachments");
}

/// The attacker as its neighbour, and as itself.
fn speaks_only_as_itself(stage: &Stage) {
    let [own, near, far] = [&stage.attacker, &stage.near, &stage.far].map(|it| it.face);
    let say = |from: forge::Origin, word| {
        let frame = packet(from, far.ip.into(), 17, &forge::datagram((4000, 4001), word));
        stage.attacker.packets().send(&frame).unwrap();
    };
    let heard = stage.far.packets();
    say(own.v4(), TRUTH);
    assert!(forge::arrived_of(&heard, [8, 0]).ends_with(TRUTH));
    let heard = stage.victims().map(Player::packets);
    let dropped = || stage.dropped("node1", Some("acme.default"), "spoofed-address");
    let before = dropped();
    say(forge::Origin { face: own, ip: near.ip.into() }, LIE);
    eventually("it was dropped", || (dropped() > before).then_some(()));
    for heard in heard {
        assert!(!heard.received().unwrap().iter().any(|frame| frame.ends_with(LIE)));
    }
}

/// Nobody in the attacker's pod gets anything out of a node's agent, and nothing of it is lost.
fn keeps_to_itself(stage: &Stage, node: &str) {
    let (socket, folder) = (stage.socket(node), attachments(stage, node));
    let nobody = &stage.attacker.namespace;
    for request in requests(stage) {
        let refused = nobody.run_as_nobody(|| ask(&socket, &request)).unwrap_err();
        assert!(refused.details.contains("ermission denied"), "{request:?}: {refused:?}");
    }
    let read = || fs::read_dir(&folder).map(drop).map_err(|error| error.kind());
    assert_eq!(nobody.run_as_nobody(read), Err(ErrorKind::PermissionDenied));
    assert!(matches!(ask(&socket, &AgentRequest::Status), Ok(AgentReply::Done)), "{node}");
    assert!(fs::read_dir(&folder).unwrap().count() > 0, "it is all still there");
}

/// Pods whose words would lead elsewhere: out of a folder, to another's port, address or network.
fn tricks(stage: &Stage) -> Vec<(&'static str, Value)> {
    let mark = |mark: &str, value: Value| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        json!({ mark: text })
    };
    let nics = |nic: Value| mark("atoll.dev/nics", json!([nic]));
    vec![
        ("walks", nics(json!({ "name": "../../eth0" }))),
        ("hides", nics(json!({ "name": "eth0;reboot" }))),
        ("reaches", nics(json!({ "port": "../globex/double.eth0" }))),
        ("doubles", nics(json!({ "ip": stage.near.face.ip }))),
        ("crosses", mark("atoll.dev/extra-networks", json!("globex.default"))),
    ]
}

/// Pods with such words get no interface, and people hear of it.
fn tricks_lead_nowhere(stage: &Stage) {
    let tricks = tricks(stage);
    let pods =
        tricks.iter().map(|(name, marks)| pod(&format!("acme/{name}"), "node1", &json!({}), marks));
    stage.lab.apply(&yaml(&pods.collect::<Vec<_>>())).good();
    for (name, _) in &tricks {
        let events = ["get", "events", "-n", "acme", "-o", "json"];
        stage.lab.eventually(&events, |said| said.contains(&format!("\"name\": \"{name}\"")));
        let phase = ["get", "pod", "-n", "acme", name, "-o", "jsonpath={.status.phase}"];
        assert_eq!(stage.lab.kubectl(&phase).good(), "Pending", "{name}");
    }
    let ports = ["get", "ports", "-n", "acme", "-o", "jsonpath={.items[*].metadata.name}"];
    let ports = stage.lab.kubectl(&ports).good();
    assert!(ports.contains("attacker.eth0"), "{ports}");
    assert!(tricks.iter().all(|(name, _)| !ports.contains(name)), "{ports}");
}

#[test]
fn nobody_in_a_pod_asks_an_agent_or_leads_it_elsewhere_by_words_also_with_offloads_off() {
    let stage = Stage::set();
    open_the_way(&stage);
    NODES.iter().for_each(|node| keeps_to_itself(&stage, node));
    tricks_lead_nowhere(&stage);
    speaks_only_as_itself(&stage);
    stage.switch_offloads_off();
    NODES.iter().for_each(|node| keeps_to_itself(&stage, node));
    speaks_only_as_itself(&stage);
}
