//! Calls of pods, with addresses of the loopback in place of aliases: the last byte is the
//! interface.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use atoll_model::export::Audience;
use atoll_types::PodRef;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::limits::PER_POD;
use super::turn_away::TurnAway;
use super::*;

const SERVICE: [u8; 4] = [10, 96, 0, 1];

/// The agent's side: its own address on the loopback, so that tests do not meet.
pub(super) fn infra(behind: [u8; 4]) -> Infra {
    let behind = [behind.into(), IpAddr::V6(std::net::Ipv6Addr::LOCALHOST)];
    let mut infra = Infra::behind(behind, 4 * PER_POD);
    infra.exchange.interface_of = |ip| match ip {
        IpAddr::V4(v4) => Some(v4.octets()[3].into()),
        IpAddr::V6(_) => None,
    };
    let pods = [(5, "acme", "web"), (6, "globex", "web"), (7, "acme", "db")];
    let occupants = pods.map(|(_, tenant, pod)| (name(tenant, pod), occupant(tenant, pod)));
    let interfaces = pods.map(|(index, tenant, pod)| (index, name(tenant, pod)));
    infra.know(&interfaces.into(), &occupants.into());
    infra
}

fn name(tenant: &str, pod: &str) -> HostInterface {
    HostInterface::for_attachment(&format!("{tenant}-{pod}"), "eth0")
}

fn occupant(tenant: &str, pod: &str) -> Occupant {
    Occupant {
        network_name: format!("{tenant}.default"),
        pod: PodRef::new(tenant, pod),
        pod_uid: format!("{tenant}-{pod}"),
    }
}

fn slice(at: SocketAddr) -> TargetSlice {
    let slice: EndpointSlice = serde_json::from_value(json!({
        "metadata": {}, "addressType": "IPv4",
        "ports": [{"name": "https", "port": at.port()},
                  {"name": "https", "port": at.port(), "protocol": "UDP"}],
        "endpoints": [{"addresses": ["192.0.2.1"]}],
    }))
    .unwrap();
    TargetSlice::read(&slice)
}

fn export(to: Audience) -> Export {
    let port = |datagrams| ExportPort { name: "https".into(), datagrams, port: 443 };
    let ports = vec![port(false), port(true)];
    Export { to, addresses: vec![SERVICE.into()], ports }
}

/// Offers one service with these behind it; slices name no loopback, so targets are given here.
fn offer(infra: &mut Infra, to: Audience, targets: Vec<SocketAddr>) -> Option<u16> {
    let place = Place { ip: SERVICE.into(), port: 443, datagrams: false };
    let offers = [(place, Offer { to, targets })].into();
    infra.fronts.match_offers(offers, &infra.exchange);
    infra.fronts().first().map(|front| front.listener)
}

async fn call(infra: &Infra, from: [u8; 4], listener: u16) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((from, 0))).unwrap();
    let at = SocketAddr::new(infra.fronts.address_of_ipv4(), listener);
    socket.connect(at).await.unwrap()
}

/// Whether the call is answered by who says `word` to everybody.
async fn hears(mut stream: TcpStream, word: &str) -> bool {
    let mut heard = String::new();
    let _turned_away = stream.read_to_string(&mut heard).await;
    heard == word
}

/// Says `word` to everybody.
async fn server(word: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            stream.write_all(word.as_bytes()).await.unwrap();
        }
    });
    at
}

#[tokio::test]
async fn a_call_is_passed_on_to_those_behind_the_service_and_a_stranger_is_turned_away() {
    let mut infra = infra([127, 77, 0, 1]);
    let listener = offer(&mut infra, Audience::All, vec![server("api").await]).unwrap();
    for pod in [5, 6] {
        assert!(hears(call(&infra, [127, 0, 0, pod], listener).await, "api").await);
    }
    assert!(!hears(call(&infra, [127, 0, 0, 99], listener).await, "api").await);
    let counters = &infra.exchange.counters;
    assert_eq!(counters.all_passed_on(), 2);
    assert_eq!(counters.all_turned_away(TurnAway::UnknownCaller), 1);
}

#[tokio::test]
async fn a_service_for_listed_tenants_turns_others_away() {
    let mut infra = infra([127, 77, 0, 2]);
    let acme = Audience::Listed(["acme".to_owned()].into());
    let listener = offer(&mut infra, acme, vec![server("registry").await]).unwrap();
    assert!(hears(call(&infra, [127, 0, 0, 5], listener).await, "registry").await);
    assert!(!hears(call(&infra, [127, 0, 0, 6], listener).await, "registry").await);
    assert_eq!(infra.exchange.counters.all_turned_away(TurnAway::NotExported), 1);
    let listener = offer(&mut infra, Audience::All, vec![server("registry").await]).unwrap();
    assert!(hears(call(&infra, [127, 0, 0, 6], listener).await, "registry").await);
}

#[tokio::test]
async fn one_behind_the_service_that_does_not_answer_is_followed_by_the_next() {
    let mut infra = infra([127, 77, 0, 3]);
    // A port that is taken and at which nobody listens.
    let taken = TcpSocket::new_v4().unwrap();
    taken.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let dead = taken.local_addr().unwrap();
    let targets = vec![dead, server("alive").await];
    let listener = offer(&mut infra, Audience::All, targets).unwrap();
    for _ in 0..4 {
        assert!(hears(call(&infra, [127, 0, 0, 5], listener).await, "alive").await);
    }
    let listener = offer(&mut infra, Audience::All, vec![dead]).unwrap();
    assert!(!hears(call(&infra, [127, 0, 0, 5], listener).await, "alive").await);
    assert_eq!(infra.exchange.counters.all_turned_away(TurnAway::NoTarget), 1);
}

#[tokio::test]
async fn a_pod_with_as_many_calls_as_it_may_have_is_turned_away_and_its_neighbour_is_not() {
    let mut infra = infra([127, 77, 0, 4]);
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = silent.local_addr().unwrap();
    let listener = offer(&mut infra, Audience::All, vec![at]).unwrap();
    let mut held = Vec::new();
    for _ in 0..PER_POD {
        let ours = call(&infra, [127, 0, 0, 5], listener).await;
        held.push((ours, silent.accept().await.unwrap().0));
    }
    let refused = call(&infra, [127, 0, 0, 5], listener).await;
    assert!(!hears(refused, "never").await);
    assert_eq!(infra.exchange.counters.all_turned_away(TurnAway::PodLimit), 1);
    let _neighbour = call(&infra, [127, 0, 0, 7], listener).await;
    silent.accept().await.unwrap();
}

#[tokio::test]
async fn each_address_and_port_has_a_listener_of_its_own_which_goes_with_it() {
    let mut infra = infra([127, 77, 0, 5]);
    let slice = slice("192.0.2.1:6443".parse().unwrap());
    let mut export = export(Audience::All);
    export.addresses.push([10, 96, 0, 2].into());
    let service = ("default".to_owned(), "kubernetes".to_owned());
    let backed = Backed { export: &export, slices: vec![&slice] };
    infra.offer(&[(service, backed)].into());
    let fronts = infra.fronts();
    let listeners: BTreeSet<u16> = fronts.iter().map(|front| front.listener).collect();
    assert_eq!((fronts.len(), listeners.len()), (4, 4), "by TCP and by UDP at each address");
    let (targets, at) = (infra.fronts.targets(), "192.0.2.1:6443".parse().unwrap());
    assert!(targets.iter().all(|it| *it == [at]), "{targets:?}");
    infra.offer(&BTreeMap::new());
    assert!(infra.fronts().is_empty());
}

/// An index that no link has.
const ELSEWHERE: u32 = 0x7fff_fff0;

#[tokio::test]
async fn calls_come_by_the_one_link_and_those_that_were_taken_go_on_when_it_is_another() {
    let mut infra = infra([127, 77, 0, 9]);
    let here = nix::net::if_::if_nametoindex("lo").unwrap();
    let echo = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let behind = vec![echo.local_addr().unwrap()];
    infra.hear(here).unwrap();
    let listener = offer(&mut infra, Audience::All, behind).unwrap();
    let mut taken = call(&infra, [127, 0, 0, 5], listener).await;
    let (mut target, _) = echo.accept().await.unwrap();
    infra.hear(ELSEWHERE).unwrap();
    let brief = std::time::Duration::from_millis(200);
    let unheard = tokio::time::timeout(brief, call(&infra, [127, 0, 0, 6], listener)).await;
    assert!(unheard.is_err(), "nobody is heard");
    taken.write_all(b"still here").await.unwrap();
    target.read_exact(&mut [0; 10]).await.unwrap();
    infra.hear(here).unwrap();
    drop(call(&infra, [127, 0, 0, 6], listener).await);
}
