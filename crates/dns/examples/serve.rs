//! A resolver with made-up names, for measuring: `serve names ADDRESS NETWORKS NAMES` answers
//! `h<n>.ns<n % 100>.svc.cluster.local` and the name of its address, in each of so many networks,
//! to whoever asks; `serve echo ADDRESS` only turns packets round, which is the least that any
//! server costs; `serve change NAMES` prints what it costs to change one service among so many.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Instant;

use atoll_dns::{Asker, Config, Limits, NetworkKey, PodId, Rate, Server, TenantId};
use atoll_zones::{Backing, DomainName, Homes, Names, Service, ServiceKey, Settings, ZoneSet};

/// The first address, among those that services of a cluster have.
const FIRST: u32 = 0x0a60_0100;

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["echo", address] => echo(address.parse()?),
        ["names", address, networks, names] => {
            serve(address.parse()?, networks.parse()?, names.parse()?)
        }
        ["change", names] => change(names.parse()?),
        _ => Err("say: echo ADDRESS, names ADDRESS NETWORKS NAMES, or change NAMES".into()),
    }
}

fn echo(address: SocketAddr) -> Outcome {
    let socket = UdpSocket::bind(address)?;
    let mut packet = [0; 1024];
    println!("ready");
    loop {
        let (len, from) = socket.recv_from(&mut packet)?;
        packet[2] |= 0x80;
        socket.send_to(&packet[..len], from)?;
    }
}

fn serve(address: SocketAddr, networks: u32, names: u32) -> Outcome {
    let free = Rate { per_second: 1_000_000_000, burst: 1_000_000_000 };
    let limits = Limits { pod: free, tenant: free, ..Limits::default() };
    let config = Config { listen: vec![address], limits, ..Config::default() };
    let asker = Asker { network: NetworkKey(1), pod: PodId(1), tenant: TenantId(1) };
    let server = Server::new(config, move |_| Some(asker))?;
    let (before, start) = (resident(), Instant::now());
    for network in 1..=networks {
        server.swap(NetworkKey(network.into()), Arc::new(zones(names)?));
    }
    println!(
        "ready: {networks} networks, {names} names each, {} KB, {} ms",
        resident() - before,
        start.elapsed().as_millis()
    );
    loop {
        std::thread::park();
    }
}

fn change(names: u32) -> Outcome {
    let server = Server::new(Config::default(), |_| None)?;
    let mut set = zones(names)?;
    let mut times: Vec<u128> = vec![];
    for n in 0..2_000 {
        let service = service(n % names, n)?;
        let start = Instant::now();
        put(&mut set, &service);
        server.swap(NetworkKey(1), Arc::new(set.clone()));
        times.push(start.elapsed().as_nanos());
    }
    times.sort_unstable();
    println!("{names} names: a change costs {} ns (p50), {} ns (p99)", times[1000], times[1980]);
    Ok(())
}

fn zones(names: u32) -> Result<ZoneSet, Box<dyn std::error::Error>> {
    let zone = DomainName::parse("cluster.local")?;
    let mut set = ZoneSet::new(Settings { zone, cidrs: vec![], resolver: vec![], ttl: 5 });
    for n in 0..names {
        put(&mut set, &service(n, n)?);
    }
    Ok(set)
}

fn put(set: &mut ZoneSet, service: &Service) {
    let names = Names::compile(service, &[], &Homes::default(), set.settings());
    set.put_service(&service.key, names);
}

fn service(n: u32, address: u32) -> Result<Service, Box<dyn std::error::Error>> {
    let ip: IpAddr = Ipv4Addr::from_bits(FIRST + address).into();
    let namespace = format!("ns{}", n % 100).parse()?;
    let key = ServiceKey { namespace, name: format!("h{n}").parse()? };
    Ok(Service { key, backing: Backing::Vip { addresses: vec![ip], ports: vec![] } })
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kb| kb.parse().ok()).unwrap_or(0)
}
