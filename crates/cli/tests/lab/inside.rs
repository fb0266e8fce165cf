//! Going inside pods and nodes, what pods wrote, and the pods that a kubelet has to say no to.

use std::io::Write;
use std::process::Stdio;

use crate::fixture::{Lab, Said, atoll, await_condition};

const PODS: &str = "
apiVersion: v1
kind: Pod
metadata: {name: steady}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  initContainers: [{name: first, image: none, command: [sh, -c, echo prepared]}]
  containers:
    - name: main
      image: none
      command: [sh, -c, 'echo $GREETING; exec sleep infinity']
      env: [{name: GREETING, value: hello from $(POD_NAME)}]
---
apiVersion: v1
kind: Pod
metadata: {name: crashing}
spec:
  hostNetwork: true
  containers: [{name: main, image: none, command: [sh, -c, echo once more; exit 3]}]
---
apiVersion: v1
kind: Pod
metadata: {name: speechless}
spec: {hostNetwork: true, containers: [{name: main, image: nginx}]}
---
apiVersion: v1
kind: Pod
metadata: {name: nowhere}
spec:
  nodeSelector: {disk: floppy}
  containers: [{name: main, image: none, command: [sleep, infinity]}]
";

fn lab_with_pods() -> Lab {
    let lab = Lab::up(1);
    lab.apply(PODS).good();
    lab.kubectl(&["wait", "--for=condition=Ready", "pod/steady", "--timeout=180s"]).good();
    lab
}

fn logs(lab: &Lab, args: &[&str]) -> Said {
    atoll(&[&["lab", "logs", "--name", &lab.name], args].concat())
}

#[test]
fn input_exit_codes_and_names_pass_through_exec_and_node() {
    let lab = lab_with_pods();
    assert_eq!(lab.exec("default/steady", &["hostname"]).good(), "steady\n");
    let code =
        |command: &[&str]| lab.exec_command("default/steady", command).status().unwrap().code();
    assert_eq!(code(&["sh", "-c", "exit 42"]), Some(42));
    assert_eq!(code(&["sh", "-c", "kill -TERM $$"]), Some(143));
    assert_eq!(code(&["no-such-program"]), Some(127));

    let mut cat = lab.exec_command("default/steady", &["cat"]);
    let mut cat = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    cat.stdin.take().unwrap().write_all(b"through the wall").unwrap();
    assert_eq!(cat.wait_with_output().unwrap().stdout, b"through the wall");

    let address = lab.node("node1", &["ip", "-br", "addr", "show", "eth0"]).good();
    assert!(address.contains("172.30.0.11/24"), "{address}");
    let inside = lab.exec("default/steady", &["ip", "-br", "addr", "show", "eth0"]).good();
    assert_eq!(inside, address, "a pod on the host's network is on its node's");
}

#[test]
fn who_cannot_be_entered_is_named() {
    let lab = lab_with_pods();
    let complaint = lab.exec("default/nobody", &["true"]).bad();
    assert!(complaint.contains("default/nobody runs on no node"), "{complaint}");
    let node = ["get", "pod", "speechless", "-o", "jsonpath={.spec.nodeName}"];
    lab.eventually(&node, |said| said == "node1");
    let complaint = lab.exec("default/speechless", &["true"]).bad();
    assert!(complaint.contains("is not running now"), "{complaint}");
    let complaint = lab.node("node9", &["true"]).bad();
    assert!(complaint.contains("has no node node9: it has node1"), "{complaint}");
}

#[test]
fn what_containers_wrote_can_be_read_also_of_the_run_before() {
    let lab = lab_with_pods();
    await_condition(|| logs(&lab, &["steady"]).good() == "hello from steady\n")
        .expect("it is ready before it has said anything");
    assert_eq!(logs(&lab, &["steady", "-c", "first"]).good(), "prepared\n");
    let complaint = logs(&lab, &["steady", "-c", "third"]).bad();
    assert!(complaint.contains("has no container third: it has first, main"), "{complaint}");
    let restarts = "jsonpath={.status.containerStatuses[0].restartCount}";
    lab.eventually(&["get", "pod", "crashing", "-o", restarts], |said| {
        said != "0" && !said.is_empty()
    });
    assert_eq!(logs(&lab, &["crashing", "--previous"]).good(), "once more\n");
}

#[test]
fn pods_that_cannot_run_say_why() {
    let lab = lab_with_pods();
    let reason = |of: &str| format!("jsonpath={{.status.containerStatuses[0].state.{of}}}");
    let waiting = reason("waiting");
    lab.eventually(&["get", "pod", "speechless", "-o", &waiting], |said| {
        said.contains("CreateContainerConfigError") && said.contains("has no command")
    });
    lab.eventually(&["get", "pod", "crashing", "-o", &waiting], |said| {
        said.contains("CrashLoopBackOff")
    });
    let scheduled = "jsonpath={.status.conditions[?(@.type=='PodScheduled')]}";
    lab.eventually(&["get", "pod", "nowhere", "-o", scheduled], |said| {
        said.contains("Unschedulable") && said.contains("0/1 nodes are available")
    });
}

#[test]
fn a_pod_deleted_by_force_is_gone_and_its_name_can_be_used_again() {
    let lab = lab_with_pods();
    let uid = ["get", "pod", "steady", "-o", "jsonpath={.metadata.uid}"];
    let before = lab.kubectl(&uid).good();
    lab.kubectl(&["delete", "pod", "steady", "--force", "--grace-period=0"]).good();
    lab.apply(PODS).good();
    lab.kubectl(&["wait", "--for=condition=Ready", "pod/steady", "--timeout=180s"]).good();
    assert_ne!(lab.kubectl(&uid).good(), before);
    assert_eq!(lab.exec("default/steady", &["hostname"]).good(), "steady\n");
}
