//! The plugin as a program: environment and standard input in, JSON and an exit code out.

use std::io::Read;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::wire::{AgentReply, AgentRequest, ask};
use crate::{Action, Attached, CniError, CniResult, ErrorCode, Invocation, SUPPORTED_VERSIONS};

/// The version that errors are written in when the runtime's own is not known.
const FALLBACK_VERSION: &str = "1.1.0";

/// Serves one call of the container runtime.
pub fn run() -> ExitCode {
    let env = |name: &str| std::env::var(name).ok();
    let (version, outcome) = match env("CNI_COMMAND").as_deref() {
        Some("VERSION") => (FALLBACK_VERSION.to_owned(), Ok(Some(versions()))),
        command => read_and_serve(command.unwrap_or_default(), &env),
    };
    match outcome {
        Ok(answer) => {
            answer.iter().for_each(|answer| println!("{answer}"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("{}", error.to_json(&version));
            ExitCode::FAILURE
        }
    }
}

fn versions() -> Value {
    json!({"cniVersion": FALLBACK_VERSION, "supportedVersions": SUPPORTED_VERSIONS})
}

/// What to print, together with the version to print an error in.
type Outcome = (String, Result<Option<Value>, CniError>);

fn read_and_serve(command: &str, env: &dyn Fn(&str) -> Option<String>) -> Outcome {
    match read_input().and_then(|input| Invocation::parse(command, env, &input)) {
        Ok(invocation) => (invocation.version.clone(), serve(&invocation)),
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

fn serve(invocation: &Invocation) -> Result<Option<Value>, CniError> {
    match ask(&invocation.agent_socket, &request(&invocation.action))? {
        AgentReply::Failed(error) => Err(status_error(&invocation.action, error)),
        AgentReply::Attached(attached) => Ok(added(invocation, &attached)),
        AgentReply::Done | AgentReply::Drops(_) => Ok(None),
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
    let result = CniResult { attached, sandbox: &request.sandbox };
    Some(result.to_json(&invocation.version))
}
