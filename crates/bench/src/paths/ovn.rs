//! OVN from Debian with its kernel datapath: one logical switch over two hosts, a router, policies
//! that keep state and allow what is measured, and a load balancer.
//!
//! The rule: it is set up as its own documents say, does the job that Atoll does beside it, and all
//! its daemons end with the path.

use std::any::Any;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path as FilePath, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use atoll_testkit::Namespace;
use tempfile::TempDir;

use super::peers::{UNDERLAY_MTU, namespaces, pair};
use super::{Ends, Path, Place, VIP};
use crate::pinned::Ended;
use crate::traffic::PORTS;

/// What Geneve with OVN's options takes from each packet.
const GENEVE_OVERHEAD: u32 = 58;
/// Flows are computed and installed within this, also on a machine that is emulated.
const PATIENCE: Duration = Duration::from_secs(120);
/// The pods: the last number of the address, and the host.
const PODS: [(u8, usize); 3] = [(1, 0), (2, 0), (3, 1)];

/// The packages and parts of the kernel that it needs.
pub(crate) const PACKAGES: [&str; 3] = ["ovn-central", "ovn-host", "openvswitch-switch"];
pub(crate) const MODULES: [&str; 3] = ["openvswitch", "geneve", "vport-geneve"];

/// The databases, the translator and all hosts. Everything ends with this value.
struct Network {
    daemons: Vec<Ended>,
    folder: TempDir,
}

impl Drop for Network {
    fn drop(&mut self) {
        // Those that were started last talk to those that were started first.
        while let Some(daemon) = self.daemons.pop() {
            drop(daemon);
        }
    }
}

/// On one node, through a service on one node, and across nodes.
pub(super) fn paths() -> Result<Vec<Path>> {
    let [first, second, client, server, remote] = namespaces();
    pair(&first, "uplink", &second, "uplink", UNDERLAY_MTU);
    let pods = [&client, &server, &remote];
    let mut network = Network { daemons: vec![], folder: tempfile::tempdir_in("/run")? };
    network.start_centre()?;
    for (number, host) in [&first, &second].into_iter().enumerate() {
        network.start_host(number, host)?;
    }
    network.describe()?;
    for ((last, host), pod) in PODS.into_iter().zip(pods) {
        network.plug(last, (host, [&first, &second][host]), pod)?;
    }
    let keeps: Vec<Arc<dyn Any>> = vec![Arc::new(network), first, second];
    let way = |name, place, server: &Arc<Namespace>, target| -> Result<Path> {
        let ends = Ends { client: client.clone(), server: server.clone(), target };
        await_way(&ends)?;
        Ok(Path { name, place, ends: vec![ends], _keeps: keeps.clone() })
    };
    Ok(vec![
        way("OVN, stateful policy", Place::SameNode, &server, address(2))?,
        way("OVN, stateful policy, service", Place::SameNode, &server, VIP.into())?,
        way("OVN, stateful policy", Place::AcrossNodes, &remote, address(3))?,
    ])
}

fn address(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, last).into()
}

fn mac(last: u8) -> String {
    format!("02:00:00:00:00:{last:02x}")
}

impl Network {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn socket(&self, name: &str) -> String {
        format!("unix:{}", self.path(&format!("{name}.sock")).display())
    }

    fn start_centre(&mut self) -> Result<()> {
        self.start_database("nb", "/usr/share/ovn/ovn-nb.ovsschema")?;
        self.start_database("sb", "/usr/share/ovn/ovn-sb.ovsschema")?;
        let (nb, sb) = (self.socket("nb"), self.socket("sb"));
        let databases = [format!("--ovnnb-db={nb}"), format!("--ovnsb-db={sb}")];
        self.start("ovn-northd", &databases)
    }

    fn start_database(&mut self, name: &str, schema: &str) -> Result<()> {
        let file = self.path(&format!("{name}.db")).display().to_string();
        run("ovsdb-tool", &["create", &file, schema])?;
        let remote = format!("--remote=p{}", self.socket(name));
        self.start("ovsdb-server", &[remote, file])?;
        await_file(&self.path(&format!("{name}.sock")))
    }

    /// A host: its switch in its own namespace, and the controller that programs it.
    fn start_host(&mut self, number: usize, host: &Namespace) -> Result<()> {
        let (name, underlay) = (format!("host{number}"), format!("192.168.77.{}", number + 1));
        host.ip(&format!("address add {underlay}/24 dev uplink"));
        self.start_database(&name, "/usr/share/openvswitch/vswitch.ovsschema")?;
        let own = self.socket(&name);
        let switch = |arguments: &[&str]| run_switch(&own, arguments);
        switch(&["--no-wait", "init"])?;
        let remote = self.socket("sb");
        let facts = [
            format!("external-ids:system-id={name}"),
            format!("external-ids:ovn-remote=\"{remote}\""),
            "external-ids:ovn-encap-type=geneve".to_owned(),
            format!("external-ids:ovn-encap-ip={underlay}"),
        ];
        let set: Vec<&str> = ["--no-wait", "set", "open", "."]
            .into_iter()
            .chain(facts.iter().map(String::as_str))
            .collect();
        switch(&set)?;
        host.run(|| self.start("ovs-vswitchd", std::slice::from_ref(&own)))?;
        switch(&["add-br", "br-int", "--", "set", "bridge", "br-int", "fail-mode=secure"])?;
        host.run(|| self.start("ovn-controller", std::slice::from_ref(&own)))
    }

    /// Starts a daemon in the namespace of the caller.
    fn start(&mut self, program: &str, arguments: &[String]) -> Result<()> {
        let number = self.daemons.len();
        let folder = self.folder.path();
        let log = std::fs::File::create(self.path(&format!("{number}-{program}.log")))?;
        let control = self.path(&format!("{number}.ctl")).display().to_string();
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command.env("OVS_RUNDIR", folder).env("OVN_RUNDIR", folder).env("OVS_DBDIR", folder);
        // The controller of this release names its control socket by its own number.
        if program != "ovn-controller" {
            command.arg(format!("--unixctl={control}"));
        }
        let started = command.spawn();
        let daemon = started.with_context(|| format!("cannot start {program}"))?;
        self.daemons.push(Ended(daemon));
        Ok(())
    }

    fn northbound(&self, arguments: &[&str]) -> Result<()> {
        let database = format!("--db={}", self.socket("nb"));
        let all: Vec<&str> =
            [database.as_str()].into_iter().chain(arguments.iter().copied()).collect();
        run("ovn-nbctl", &all)
    }

    /// The logical switch, its router, ports, policies and service.
    fn describe(&self) -> Result<()> {
        let ports = PODS.map(|(last, _)| format!("pod{last}"));
        self.northbound(&["ls-add", "net"])?;
        for (port, (last, _)) in ports.iter().zip(PODS) {
            let addresses = format!("{} {}", mac(last), address(last));
            self.northbound(&["lsp-add", "net", port])?;
            self.northbound(&["lsp-set-addresses", port, &addresses])?;
            self.northbound(&["lsp-set-port-security", port, &addresses])?;
        }
        self.northbound(&["lr-add", "router"])?;
        let gateway = mac(254);
        self.northbound(&["lrp-add", "router", "gateway", &gateway, "10.0.0.254/24"])?;
        self.northbound(&["lsp-add", "net", "to-gateway"])?;
        self.northbound(&["lsp-set-type", "to-gateway", "router"])?;
        self.northbound(&["lsp-set-addresses", "to-gateway", "router"])?;
        self.northbound(&["lsp-set-options", "to-gateway", "router-port=gateway"])?;
        let group: Vec<&str> =
            ["pg-add", "pods"].into_iter().chain(ports.iter().map(String::as_str)).collect();
        self.northbound(&group)?;
        self.allow_what_is_measured()?;
        self.serve()
    }

    fn allow_what_is_measured(&self) -> Result<()> {
        for (direction, side) in [("to-lport", "outport"), ("from-lport", "inport")] {
            let deny = format!("{side} == @pods && ip");
            self.northbound(&["acl-add", "pods", direction, "900", &deny, "drop"])?;
            for (protocol, port) in PORTS {
                let protocol = protocol.name().to_lowercase();
                let allow =
                    format!("{side} == @pods && ip4 && {protocol} && {protocol}.dst == {port}");
                let rule = ["acl-add", "pods", direction, "1000", &allow, "allow-related"];
                self.northbound(&rule)?;
            }
        }
        Ok(())
    }

    fn serve(&self) -> Result<()> {
        for (protocol, port) in PORTS {
            let (name, protocol) = (format!("service-{port}"), protocol.name().to_lowercase());
            let (vip, backend) = (format!("{VIP}:{port}"), format!("{}:{port}", address(2)));
            self.northbound(&["lb-add", &name, &vip, &backend, &protocol])?;
            self.northbound(&["ls-lb-add", "net", &name])?;
        }
        Ok(())
    }

    /// A pod behind a veth of its host.
    fn plug(&self, last: u8, (number, host): (usize, &Namespace), pod: &Namespace) -> Result<()> {
        let (port, interface) = (format!("pod{last}"), format!("port{last}"));
        pair(host, &interface, pod, "eth0", UNDERLAY_MTU - GENEVE_OVERHEAD);
        pod.ip(&format!("link set eth0 address {}", mac(last)));
        pod.ip(&format!("address add {}/24 dev eth0", address(last)));
        pod.ip("route add default via 10.0.0.254");
        let switch = self.socket(&format!("host{number}"));
        let id = format!("external-ids:iface-id={port}");
        run_switch(
            &switch,
            &["add-port", "br-int", &interface, "--", "set", "interface", &interface, &id],
        )
    }
}

fn run_switch(database: &str, arguments: &[&str]) -> Result<()> {
    let database = format!("--db={database}");
    let all: Vec<&str> = [database.as_str()].into_iter().chain(arguments.iter().copied()).collect();
    run("ovs-vsctl", &all)
}

fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("cannot run {program}"))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {arguments:?} failed: {complaint}");
    Ok(())
}

fn await_file(path: &FilePath) -> Result<()> {
    await_until(&format!("{} is not there", path.display()), || path.exists())
}

/// A refusal by the server, which answers at none of its ports yet, has gone both ways.
fn await_way(ends: &Ends) -> Result<()> {
    let target = SocketAddr::new(ends.target, PORTS[0].1);
    let refused = || {
        let tried = ends.client.run(|| TcpStream::connect_timeout(&target, Duration::from_secs(1)));
        tried.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
    };
    await_until(&format!("OVN leads nobody to {target}"), refused)
}

fn await_until(otherwise: &str, holds: impl Fn() -> bool) -> Result<()> {
    let begun = Instant::now();
    while !holds() {
        ensure!(begun.elapsed() < PATIENCE, "{otherwise} after {} s", PATIENCE.as_secs());
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
