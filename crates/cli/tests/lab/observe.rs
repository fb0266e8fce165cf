//! Drops and connections as they happen, told with names, for as long as somebody listens.

use std::io::{BufRead, BufReader, Lines, Read};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::fixture::{Lab, atoll, atoll_command};

/// `atoll observe` at work; it ends with the value.
struct Observer {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
    complaints: BufReader<ChildStderr>,
}

impl Observer {
    /// Starts it and waits until every node tells.
    fn start(lab: &Lab, args: &[&str]) -> Observer {
        let mut command = atoll_command(&[&["observe", "--lab", &lab.name], args].concat());
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut complaints = BufReader::new(process.stderr.take().unwrap());
        let mut first = String::new();
        complaints.read_line(&mut first).unwrap();
        assert_eq!(first, "observing; Ctrl-C ends it\n");
        Observer { process, lines, complaints }
    }

    fn line(&mut self) -> String {
        self.lines.next().expect("it goes on").unwrap()
    }

    /// The first event of which this holds.
    fn find(&mut self, is_it: impl Fn(&Value) -> bool) -> Value {
        loop {
            let event = serde_json::from_str(&self.line()).unwrap();
            if is_it(&event) {
                return event;
            }
        }
    }

    fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    /// Its exit code and what it complained about.
    fn end(mut self) -> (Option<i32>, String) {
        let code = self.process.wait().unwrap().code();
        let mut complaint = String::new();
        self.complaints.read_to_string(&mut complaint).unwrap();
        (code, complaint)
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        let _ended_already = self.process.kill();
        let _status = self.process.wait();
    }
}

#[test]
fn drops_and_connections_are_told_with_the_names_of_pods_and_networks() {
    let lab = Lab::with_two_tenants();
    let mut observer = Observer::start(&lab, &["-o", "json", "--pod", "acme/web"]);
    lab.reach("globex/web", "tcp", "10.0.0.6:8080").good();
    lab.reach("acme/web", "tcp", "10.0.0.6:8080").good();
    let is_ours = |event: &Value| event["network"] == "acme.default";
    let opened = observer.find(|event| event["kind"] == "opened" && is_ours(event));
    assert_eq!(opened["protocol"], "tcp");
    assert_eq!(opened["destination"]["port"], 8080);
    assert_eq!(opened["destination"]["pod"]["name"], "db");
    let closed = observer.find(|event| event["kind"] == "closed");
    assert!(is_ours(&closed), "nothing of the pod with the same address: {closed}");

    lab.exec("acme/web", &["ip", "addr", "add", "10.0.0.7/32", "dev", "eth0"]).good();
    let send = "ip route replace default via 169.254.1.1 src 10.0.0.7; echo >/dev/udp/10.0.0.6/9";
    lab.exec("acme/web", &["bash", "-c", send]).good();
    let lie = observer.find(|event| event["reason"] == "spoofed-address");
    assert_eq!(lie["sender"]["name"], "web", "who lied: {lie}");
    assert_eq!(lie["source"]["pod"]["name"], "cache", "about whom: {lie}");
    assert_eq!(lie["node"], "node1");
}

#[test]
fn an_observer_hears_what_it_asked_for_and_ends_without_a_complaint() {
    let lab = Lab::with_two_tenants();
    let filter = ["--network", "globex.default", "--kind", "dropped", "--reason", "no-endpoint"];
    let mut observer = Observer::start(&lab, &filter);
    for tenant in ["acme", "globex"] {
        lab.connect(&format!("{tenant}/web"), "udp", "10.0.0.99:9").bad();
    }
    let line = observer.line();
    assert!(line.contains("dropped globex.default globex/web udp 10.0.0.5:"), "{line}");
    assert!(line.contains("> 10.0.0.99:9 no-endpoint: "), "{line}");
    observer.signal("-INT");
    assert_eq!(observer.end(), (Some(0), String::new()));

    let wrong = atoll(&["observe", "--lab", &lab.name, "--reason", "bad-luck"]).bad();
    assert!(wrong.contains("no-endpoint"), "{wrong}");
    let wrong = atoll(&["observe", "--socket", "/nowhere/agent.sock"]).bad();
    assert!(wrong.contains("/nowhere/agent.sock; is the agent running?"), "{wrong}");
}

#[test]
fn output_that_nobody_reads_any_more_ends_every_command_silently() {
    let lab = Lab::up(1);
    let status = ["lab", "status", "--name", &lab.name];
    for args in
        [&status[..], &["drops", "--lab", &lab.name], &["lab", "kubeconfig", "--name", &lab.name]]
    {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = atoll_command(args).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&ended.stderr), "", "{args:?}");
        assert_eq!(ended.status.code(), Some(141), "{args:?}");
    }
}
