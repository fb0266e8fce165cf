//! The plugin as a program: environment and standard input in, JSON and an exit code out.

use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::wire::{AgentReply, AgentRequest, Made, ask, tell_made};
use crate::{
    Action, Answer, Attached, Chain, CniError, CniResult, ErrorCode, Invocation, SUPPORTED_VERSIONS,
};

/// The version that errors are written in when the runtime's own is not known.
const FALLBACK_VERSION: &str = "1.1.0";

/// Serves one call of the container runtime.
pub fn run() -> ExitCode {
    let env = |name: &str| std::env::var(name).ok();
    let (version, outcome) = match env("CNI_COMMAND").as_deref() {
        Some("VERSION") => (FALLBACK_VERSION.to_owned(), Ok(ours(Some(&versions())))),
        command => read_and_serve(command.unwrap_or_default(), &env),
    };
    let answer = outcome.unwrap_or_else(|error| Answer {
        output: format!("{}\n", error.to_json(&version)).into_bytes(),
        succeeded: false,
    });
    let said = std::io::stdout().write_all(&answer.output);
    if answer.succeeded && said.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn versions() -> Value {
    json!({"cniVersion": FALLBACK_VERSION, "supportedVersions": SUPPORTED_VERSIONS})
}

/// A success of this plugin, with what there is to say.
fn ours(value: Option<&Value>) -> Answer {
    let output = value.map(|value| format!("{value}\n")).unwrap_or_default().into_bytes();
    Answer { output, succeeded: true }
}

/// What to print, together with the version to print an error in.
type Outcome = (String, Result<Answer, CniError>);

fn read_and_serve(command: &str, env: &dyn Fn(&str) -> Option<String>) -> Outcome {
    match read_input().and_then(|input| Invocation::parse(command, env, &input)) {
        Ok(invocation) => (invocation.version.clone(), serve(command, invocation)),
        Err(error) => (FALLBACK_VERSION.to_owned(), Err(error)),
    }
}

fn read_input() -> Result<String, CniError> {
    let mut input = String::new();
    std::io::stdin().read_to_string(&mut input).map_err(|error| {
        CniError::new(ErrorCode::Io, "cannot read the configuration from standard input")
            .because(error)
    })?;
    Ok(input)
}

fn serve(command: &str, invocation: Invocation) -> Result<Answer, CniError> {
    let asked = ask(&invocation.agent_socket, &request(&invocation.action));
    let asked = asked.unwrap_or_else(AgentReply::Failed);
    if let Action::Gc(_) = invocation.action {
        return collected(asked, invocation.door);
    }
    match asked {
        AgentReply::Failed(error) => Err(status_error(&invocation.action, error)),
        AgentReply::Attached(attached) => Ok(ours(added(&invocation, &attached).as_ref())),
        AgentReply::NotOurs => not_ours(command, invocation),
        AgentReply::Done | AgentReply::Drops(_) | AgentReply::Traffic(_) | AgentReply::Name(_) => {
            done(command, invocation)
        }
    }
}

/// Those behind the door collect theirs whatever became of ours, and every failure is told.
fn collected(own: AgentReply, door: Option<Chain>) -> Result<Answer, CniError> {
    let own = if let AgentReply::Failed(error) = own { Some(error) } else { None };
    let others = door.and_then(|door| door.call("GC").err());
    CniError::of_all(&own.into_iter().chain(others).collect::<Vec<_>>())?;
    Ok(ours(None))
}

/// Whether containers can be taken is a question to those behind the door, too.
fn done(command: &str, invocation: Invocation) -> Result<Answer, CniError> {
    match (&invocation.action, invocation.door) {
        (Action::Status, Some(door)) => door.call(command),
        _ => Ok(ours(None)),
    }
}

/// Through the door; without one, nothing to remove is fine and everything else is not.
fn not_ours(command: &str, invocation: Invocation) -> Result<Answer, CniError> {
    if let Some(door) = invocation.door {
        let answer = door.call(command)?;
        let is_told = invocation.tells_links && answer.succeeded;
        return match &invocation.action {
            Action::Add(_) if is_told => tell_links(&invocation.agent_socket, answer),
            _ => Ok(answer),
        };
    }
    match &invocation.action {
        Action::Add(request) => Err(CniError::new(
            ErrorCode::InvalidConfig,
            format!(
                "pod {} is in no tenant's namespace, and this plugin's configuration has no \
                 delegate for such pods; label the namespace with atoll.dev/tenant or add one",
                request.pod
            ),
        )),
        Action::Check(id) => Err(CniError::new(
            ErrorCode::CheckFailed,
            format!("container {} has no interface {} of ours", id.container_id, id.interface),
        )),
        Action::Del(_) | Action::Gc(_) | Action::Status => Ok(ours(None)),
    }
}

/// Tells the agent of the links that were made, and answers the runtime once pods behind them are
/// served.
fn tell_links(socket: &Path, answer: Answer) -> Result<Answer, CniError> {
    let plain_links = serde_json::from_slice(&answer.output).map(|it| links_of_node(&it));
    let plain_links = plain_links.ok().filter(|links| !links.is_empty()).ok_or_else(|| {
        let said = "the plugin of plain pods named no link of the node, so that the pod's services \
                    cannot be led; it must be ptp, or another that makes one for each pod";
        CniError::new(ErrorCode::Decode, said)
    })?;
    match tell_made(socket, &Made { plain_links })? {
        AgentReply::Failed(error) => Err(error),
        _ => Ok(answer),
    }
}

/// The interfaces of a result that are in no pod.
fn links_of_node(result: &Value) -> Vec<String> {
    let interfaces = result.get("interfaces").and_then(Value::as_array).into_iter().flatten();
    let is_of_node = |interface: &&Value| {
        interface.get("sandbox").and_then(Value::as_str).unwrap_or_default().is_empty()
    };
    let names = interfaces.filter(is_of_node).filter_map(|interface| interface.get("name"));
    names.filter_map(Value::as_str).map(ToOwned::to_owned).collect()
}

fn request(action: &Action) -> AgentRequest {
    match action {
        Action::Add(attachment) => AgentRequest::Add(attachment.clone()),
        Action::Check(id) => AgentRequest::Check(id.clone()),
        Action::Del(id) => AgentRequest::Del(id.clone()),
        Action::Gc(valid) => AgentRequest::Gc(valid.clone()),
        Action::Status => AgentRequest::Status,
    }
}

/// STATUS has an error number of its own for "not now".
fn status_error(action: &Action, error: CniError) -> CniError {
    match action {
        Action::Status => CniError { code: ErrorCode::NotAvailable, ..error },
        Action::Add(_) | Action::Check(_) | Action::Del(_) | Action::Gc(_) => error,
    }
}

fn added(invocation: &Invocation, attached: &Attached) -> Option<Value> {
    let Action::Add(request) = &invocation.action else { return None };
    let previous = invocation.previous.as_ref();
    let result = CniResult { attached, sandbox: &request.sandbox, previous };
    Some(result.to_json(&invocation.version))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::Door;

    #[test]
    fn those_behind_the_door_collect_although_ours_failed_and_both_are_told() {
        let door: Door = serde_json::from_value(json!({"name": "cbr0", "type": "absent"})).unwrap();
        let call = serde_json::from_value(json!({"cniVersion": "1.1.0"})).unwrap();
        let door = || Some(door.open(&call, Path::new("/nowhere"), "/nowhere").unwrap());
        let refusal = CniError::new(ErrorCode::TryAgainLater, "not now");
        let told = collected(AgentReply::Failed(refusal.clone()), door()).unwrap_err();
        assert_eq!(told.code, ErrorCode::TryAgainLater);
        assert!(told.msg.contains("not now") && told.msg.contains("absent"), "{}", told.msg);
        assert_eq!(collected(AgentReply::Failed(refusal.clone()), None).unwrap_err(), refusal);
        assert!(collected(AgentReply::Done, door()).is_err());
        assert!(collected(AgentReply::Done, None).unwrap().succeeded);
    }

    #[test]
    fn of_a_result_the_links_of_the_node_are_those_without_a_sandbox() {
        assert_eq!(links_of_node(&result()), ["veth1", "veth2"]);
        assert!(links_of_node(&Value::Null).is_empty());
    }

    fn result() -> Value {
        let interfaces = json!([
            {"name": "veth1", "mac": "02:00:00:00:00:01"}, {"name": "veth2", "sandbox": ""},
            {"name": "eth0", "sandbox": "/run/netns/pod"},
        ]);
        json!({"cniVersion": "1.0.0", "interfaces": interfaces})
    }

    #[test]
    fn a_result_that_names_no_link_of_the_node_is_refused_with_what_would_be_right() {
        let nowhere = Path::new("/nowhere/agent.sock");
        let in_pod = json!({"interfaces": [{"name": "eth0", "sandbox": "/run/netns/pod"}]});
        for output in [in_pod.to_string(), "{}".into(), "no JSON".into()] {
            let answer = Answer { output: output.into_bytes(), succeeded: true };
            let refused = tell_links(nowhere, answer).unwrap_err();
            assert!(refused.msg.contains("named no link of the node"), "{refused:?}");
        }
    }

    /// What the runtime hears when an agent says this of the links, and what the agent heard.
    fn told(reply: &AgentReply) -> (Result<Answer, CniError>, String) {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("agent.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        std::thread::scope(|scope| {
            let agent = scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut heard = String::new();
                BufReader::new(&stream).read_line(&mut heard).unwrap();
                writeln!(stream, "{}", serde_json::to_string(reply).unwrap()).unwrap();
                heard
            });
            let answer = Answer { output: result().to_string().into_bytes(), succeeded: true };
            (tell_links(&socket, answer), agent.join().unwrap())
        })
    }

    #[test]
    fn the_runtime_gets_the_other_plugins_result_once_the_agent_serves_its_links() {
        let (answer, heard) = told(&AgentReply::Done);
        assert_eq!(heard.trim(), r#"{"plainLinks":["veth1","veth2"]}"#);
        assert_eq!(answer.unwrap().output, result().to_string().into_bytes());
        let refusal = CniError::new(ErrorCode::TryAgainLater, "not now");
        let (answer, _) = told(&AgentReply::Failed(refusal.clone()));
        assert_eq!(answer.unwrap_err(), refusal);
    }
}
