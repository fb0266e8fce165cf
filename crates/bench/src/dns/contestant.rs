//! The servers that are measured: each with the same names, one answering thread, on one CPU.

use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use atoll_testkit::{Namespace, Worker};

use super::objects;
use super::zone::NAMES as RECORDS;
use crate::api::Server;
use crate::pinned::{Ended, cpu_of, tied};

/// The resolver of this house.
pub(crate) const OURS: &str = "**Atoll**";
/// All of them; the first is the limit.
pub(crate) const NAMES: [&str; 7] =
    ["echo loop", OURS, "knot", "nsd", "unbound", COREDNS, COREDNS_KUBERNETES];
/// The resolver of most clusters, with zone files.
pub(crate) const COREDNS: &str = "CoreDNS, file";
/// The same with the services of a cluster.
pub(crate) const COREDNS_KUBERNETES: &str = "CoreDNS, kubernetes";
const READY_WITHIN: Duration = Duration::from_secs(30);

/// Whether it takes long until it can be asked: its names are objects of a cluster.
pub(crate) fn is_slow(name: &str) -> bool {
    name == COREDNS_KUBERNETES
}

/// A server that runs.
pub(crate) struct Contestant {
    pub(crate) name: &'static str,
    pub(crate) port: u16,
    process: Ended,
}

/// Every server, and the cluster that one of them watches.
pub(crate) struct Field {
    pub(crate) contestants: Vec<Contestant>,
    _cluster: Option<Server>,
    /// The servers end with it.
    _starter: Starter,
}

/// The thread that starts servers, in their namespace.
type Starter = Worker<()>;

/// Starts these servers.
pub(crate) fn all(
    names: &[&'static str],
    serve: &Path,
    space: &Namespace,
    folder: &Path,
) -> Result<Field> {
    let watched = names.iter().any(|name| is_slow(name));
    let cluster = watched.then(|| space.run(filled_cluster)).transpose()?;
    let kubeconfig = cluster.as_ref().map(|cluster| cluster.kubeconfig.as_path());
    let there = Places { serve, folder, kubeconfig };
    let ports = names.iter().copied().zip(5301..);
    let starter = Starter::start(space, || ());
    let contestants = ports.map(|(name, port)| {
        let contestant = start(name, port, &there, &starter)?;
        space.run(|| contestant.wait())?;
        Ok(contestant)
    });
    let contestants = contestants.collect::<Result<_>>()?;
    Ok(Field { contestants, _cluster: cluster, _starter: starter })
}

/// A cluster whose services have the names.
fn filled_cluster() -> Result<Server> {
    let cluster = Server::embedded()?;
    objects::fill(&cluster.kubeconfig)?;
    Ok(cluster)
}

/// What is where.
struct Places<'a> {
    serve: &'a Path,
    folder: &'a Path,
    kubeconfig: Option<&'a Path>,
}

fn start(
    name: &'static str,
    port: u16,
    there: &Places<'_>,
    starter: &Starter,
) -> Result<Contestant> {
    let (program, arguments) = command(name, port, there)?;
    Ok(Contestant { name, port, process: started(starter, program, arguments)? })
}

/// A server on its CPU; it ends with the thread that starts it.
fn started(starter: &Starter, program: String, arguments: Vec<String>) -> Result<Ended> {
    let process = starter.run(move |()| {
        let server = tied("taskset")
            .args(["-c", "0"])
            .arg(&program)
            .args(&arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        server.with_context(|| format!("cannot start {program} {arguments:?}"))
    });
    process.map(Ended)
}

/// What starts a server, after its configuration was written.
fn command(name: &str, port: u16, there: &Places<'_>) -> Result<(String, Vec<String>)> {
    let (address, serve) = (format!("127.0.0.1:{port}"), there.serve.display().to_string());
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect();
    let path = there.folder.display().to_string();
    let (program, flags, text) = match name {
        "echo loop" => return Ok((serve, words(&["echo", &address]))),
        OURS => return Ok((serve, words(&["names", &address, "1", &RECORDS.to_string()]))),
        "knot" => ("knotd".into(), "-c", knot(port, &path)),
        "nsd" => ("nsd".into(), "-dc", nsd(port, &path)),
        "unbound" => ("unbound".into(), "-dc", unbound(port, &path)),
        COREDNS => (built()?, "-conf", coredns(port, &path)),
        COREDNS_KUBERNETES => {
            let kubeconfig = there.kubeconfig.context("there is no cluster to watch")?;
            (built()?, "-conf", coredns_kubernetes(port, kubeconfig))
        }
        other => bail!("nobody knows how {other} is started"),
    };
    let file = there.folder.join(format!("{name}.conf"));
    std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    Ok((program, words(&[flags, &file.display().to_string()])))
}

/// The CoreDNS that is pinned, built where it is not yet.
fn built() -> Result<String> {
    let built = Command::new("real/coredns/build").stderr(Stdio::inherit()).output();
    let built = built.context("cannot run real/coredns/build; run this in the clone's folder")?;
    ensure!(built.status.success(), "real/coredns/build failed; its words are above");
    Ok(format!("{}/coredns", String::from_utf8_lossy(&built.stdout).trim()))
}

fn coredns(port: u16, path: &str) -> String {
    let zone = |name: &str, file: &str| {
        format!("{name}:{port} {{\n  bind 127.0.0.1\n  file {path}/{file}\n}}\n")
    };
    zone("cluster.local", "forward.zone") + &zone("10.in-addr.arpa", "reverse.zone")
}

fn coredns_kubernetes(port: u16, kubeconfig: &Path) -> String {
    let zones = ["cluster.local", "10.in-addr.arpa"];
    format!(
        "{} {{
  bind 127.0.0.1
  kubernetes {} {{
    kubeconfig {}
    ttl 5
  }}
}}
",
        zones.map(|zone| format!("{zone}:{port}")).join(" "),
        zones.join(" "),
        kubeconfig.display()
    )
}

fn knot(port: u16, path: &str) -> String {
    format!(
        "server:
  rundir: {path}
  listen: 127.0.0.1@{port}
  udp-workers: 1
  tcp-workers: 1
  background-workers: 1
database:
  storage: {path}
zone:
  - domain: cluster.local
    file: {path}/forward.zone
  - domain: 10.in-addr.arpa
    file: {path}/reverse.zone
"
    )
}

fn nsd(port: u16, path: &str) -> String {
    format!(
        "server:
  ip-address: 127.0.0.1
  port: {port}
  server-count: 1
  username: \"\"
  zonesdir: \"{path}\"
  pidfile: \"{path}/nsd.pid\"
  xfrdfile: \"\"
  xfrdir: \"{path}\"
  zonelistfile: \"{path}/nsd.list\"
  database: \"\"
  rrl-ratelimit: 0
remote-control:
  control-enable: no
zone:
  name: cluster.local
  zonefile: forward.zone
zone:
  name: 10.in-addr.arpa
  zonefile: reverse.zone
"
    )
}

fn unbound(port: u16, path: &str) -> String {
    format!(
        "server:
  interface: 127.0.0.1
  port: {port}
  num-threads: 1
  do-daemonize: no
  chroot: \"\"
  username: \"\"
  use-syslog: no
  pidfile: \"\"
  directory: \"{path}\"
  local-zone: \"cluster.local.\" static
  local-zone: \"10.in-addr.arpa.\" static
  include: {path}/local.conf
remote-control:
  control-enable: no
"
    )
}

impl Contestant {
    /// Whether it answers nothing and only turns packets round.
    pub(crate) fn echoes(&self) -> bool {
        self.name == NAMES[0]
    }

    /// Waits for the first answer that has the last name.
    fn wait(&self) -> Result<()> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        let mut question = vec![7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        let last = RECORDS - 1;
        let name = format!("h{last}.ns{}.svc.cluster.local", last % 100);
        for label in name.split('.') {
            question.push(label.len() as u8);
            question.extend(label.as_bytes());
        }
        question.extend([0, 0, 1, 0, 1]);
        let start = Instant::now();
        while start.elapsed() < READY_WITHIN {
            let sent = socket.send_to(&question, ("127.0.0.1", self.port));
            let mut answer = [0; 512];
            let heard = sent.and_then(|_| socket.recv(&mut answer));
            if heard.is_ok() && (self.echoes() || answer[7] == 1) {
                return Ok(());
            }
        }
        bail!("{} did not answer at port {} within {READY_WITHIN:?}", self.name, self.port)
    }

    /// Nanoseconds of CPU that its threads and processes have had.
    pub(crate) fn cpu(&self) -> Result<u64> {
        cpu_of(self.process.0.id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_ends_with_the_thread_that_started_it_and_not_before() {
        let starter = Starter::start(&Namespace::new(), || ());
        let mut server = started(&starter, "sleep".into(), vec!["infinity".into()]).unwrap();
        let name = format!("/proc/{}/comm", server.0.id());
        let begun = Instant::now();
        let has_passed = |what: &str| {
            assert!(begun.elapsed() < READY_WITHIN, "{what}");
            std::thread::sleep(Duration::from_millis(10));
        };
        while std::fs::read_to_string(&name).unwrap().trim() != "sleep" {
            has_passed("it was not started");
        }
        assert_eq!(server.0.try_wait().unwrap(), None, "it runs while the thread does");
        drop(starter);
        while server.0.try_wait().unwrap().is_none() {
            has_passed("it goes on without the thread");
        }
    }

    #[test]
    fn coredns_has_both_zones_at_the_port_where_it_is_asked() {
        let text = coredns(5306, "/zones");
        for part in ["cluster.local:5306 {", "10.in-addr.arpa:5306 {", "file /zones/reverse.zone"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn coredns_watches_the_cluster_for_both_zones() {
        let text = coredns_kubernetes(5307, Path::new("/cluster/kubeconfig"));
        assert!(text.starts_with("cluster.local:5307 10.in-addr.arpa:5307 {"), "{text}");
        for part in ["kubernetes cluster.local 10.in-addr.arpa {", "kubeconfig /cluster/kubeconfig"]
        {
            assert!(text.contains(part), "{text}");
        }
    }
}
