//! The plugin as a program: environment and standard input in, JSON and an exit code out.

use std::io::{Read, Write};
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::wire::{AgentReply, AgentRequest, ask};
use crate::{
    Action, Answer, Attached, CniError, CniResult, ErrorCode, Invocation, SUPPORTED_VERSIONS,
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
    match asked.unwrap_or_else(AgentReply::Failed) {
        AgentReply::Failed(error) => Err(status_error(&invocation.action, error)),
        AgentReply::Attached(attached) => Ok(ours(added(&invocation, &attached).as_ref())),
        AgentReply::NotOurs => not_ours(command, invocation),
        AgentReply::Done | AgentReply::Drops(_) | AgentReply::Name(_) => done(command, invocation),
    }
}

/// What concerns the whole node concerns those behind the door, too.
fn done(command: &str, invocation: Invocation) -> Result<Answer, CniError> {
    match (&invocation.action, invocation.door) {
        (Action::Gc(_) | Action::Status, Some(door)) => door.call(command),
        _ => Ok(ours(None)),
    }
}

/// Through the door; without one, nothing to remove is fine and everything else is not.
fn not_ours(command: &str, invocation: Invocation) -> Result<Answer, CniError> {
    if let Some(door) = invocation.door {
        return door.call(command);
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
