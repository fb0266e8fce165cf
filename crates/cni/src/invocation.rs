//! What the runtime asks, parsed once from its environment variables and standard input.

use std::path::{Path, PathBuf};

use atoll_types::PodRef;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::{AttachmentId, AttachmentRequest, Chain, CniError, Door, ErrorCode};

/// The configuration versions that are answered in their own shape.
pub const SUPPORTED_VERSIONS: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// One call of the plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// The version that the answer is written in.
    pub version: String,
    /// Where the agent listens.
    pub agent_socket: PathBuf,
    /// What is to be done.
    pub action: Action,
    /// The plugins for pods of no tenant, where there are any.
    pub door: Option<Chain>,
    /// Whether the agent is told of the links that those plugins make.
    pub tells_links: bool,
    /// What the plugins before this one have made.
    pub previous: Option<Value>,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make an interface.
    Add(AttachmentRequest),
    /// See that an interface is as it was made.
    Check(AttachmentId),
    /// Remove an interface.
    Del(AttachmentId),
    /// Remove every interface that is not among these.
    Gc(Vec<AttachmentId>),
    /// Say whether containers can be taken.
    Status,
}

/// The plugin's configuration: what `/etc/cni/net.d` holds.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Config {
    cni_version: Option<String>,
    name: Option<String>,
    agent_socket: Option<PathBuf>,
    #[serde(default, rename = "cni.dev/valid-attachments", deserialize_with = "said")]
    valid_attachments: Option<Vec<AttachmentId>>,
    prev_result: Option<Value>,
    delegate: Option<Door>,
    #[serde(default)]
    plain_services: bool,
    networks: Option<PathBuf>,
}

/// A list that was said. Runtimes say `null` when they mean an empty one; saying nothing at all is
/// something else.
fn said<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Vec<AttachmentId>>, D::Error> {
    Ok(Some(Option::deserialize(input)?.unwrap_or_default()))
}

/// Where the agent listens unless the configuration says otherwise.
const DEFAULT_SOCKET: &str = "/run/atoll/agent.sock";

/// Where the node's other networks are written unless the configuration says otherwise.
const DEFAULT_NETWORKS: &str = "/etc/cni/net.d";

/// Looks up an environment variable.
type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Invocation {
    /// Checks everything that the runtime said.
    pub fn parse(command: &str, env: Env<'_>, input: &str) -> Result<Self, CniError> {
        let config: Config = serde_json::from_str(input).map_err(|error| {
            CniError::new(ErrorCode::Decode, "the configuration on standard input is no CNI JSON")
                .because(error)
        })?;
        let version = supported_version(&config)?;
        network_name(&config)?;
        Ok(Invocation {
            action: action(command, &version, env, &config)?,
            door: door(env, &config, input)?,
            tells_links: config.plain_services,
            previous: config.prev_result,
            agent_socket: config.agent_socket.unwrap_or_else(|| DEFAULT_SOCKET.into()),
            version,
        })
    }
}

fn supported_version(config: &Config) -> Result<String, CniError> {
    let version = config.cni_version.clone().unwrap_or_else(|| "0.1.0".to_owned());
    if SUPPORTED_VERSIONS.contains(&version.as_str()) {
        return Ok(version);
    }
    Err(CniError::new(
        ErrorCode::IncompatibleVersion,
        format!(
            "cniVersion {version} is not supported; use one of {}",
            SUPPORTED_VERSIONS.join(", ")
        ),
    ))
}

fn network_name(config: &Config) -> Result<(), CniError> {
    match &config.name {
        Some(name) if is_identifier(name) => Ok(()),
        Some(name) => Err(invalid_config(format!("{name:?} is not a network name"))),
        None => Err(invalid_config("the configuration has no name".to_owned())),
    }
}

/// What is behind the door, looked for at every call so that a mistake shows at once.
fn door(env: Env<'_>, config: &Config, input: &str) -> Result<Option<Chain>, CniError> {
    let Some(door) = &config.delegate else { return Ok(None) };
    let call = serde_json::from_str(input).unwrap_or_default();
    let folder = config.networks.as_deref().unwrap_or(Path::new(DEFAULT_NETWORKS));
    door.open(&call, folder, &env("CNI_PATH").unwrap_or_default()).map(Some)
}

fn invalid_config(message: String) -> CniError {
    CniError::new(ErrorCode::InvalidConfig, message)
}

fn action(command: &str, version: &str, env: Env<'_>, config: &Config) -> Result<Action, CniError> {
    match command {
        "ADD" => Ok(Action::Add(attachment(env)?)),
        "DEL" => Ok(Action::Del(attachment_id(env)?)),
        "CHECK" => since("0.4.0", command, version).and_then(|()| {
            sandbox(env)?;
            Ok(Action::Check(attachment_id(env)?))
        }),
        "STATUS" => since("1.1.0", command, version).map(|()| Action::Status),
        "GC" => since("1.1.0", command, version).and_then(|()| {
            let valid = config.valid_attachments.clone();
            valid.map(Action::Gc).ok_or_else(|| {
                invalid_config(
                    "GC needs cni.dev/valid-attachments; without it all would go".to_owned(),
                )
            })
        }),
        other => Err(invalid_environment("CNI_COMMAND", &format!("{other:?} is no CNI command"))),
    }
}

/// The place of a version among the supported ones, which are in order, so that places compare as versions do.
/// One that is not supported comes before all.
pub(crate) fn place(version: &str) -> Option<usize> {
    SUPPORTED_VERSIONS.iter().position(|known| *known == version)
}

fn since(first: &str, command: &str, version: &str) -> Result<(), CniError> {
    if place(version) >= place(first) {
        return Ok(());
    }
    let message = format!("{command} needs cniVersion {first} or newer, not {version}");
    Err(CniError::new(ErrorCode::IncompatibleVersion, message))
}

fn attachment_id(env: Env<'_>) -> Result<AttachmentId, CniError> {
    let container_id = required(env, "CNI_CONTAINERID")?;
    if !is_identifier(&container_id) {
        return Err(invalid_environment("CNI_CONTAINERID", &format!("{container_id:?} is no id")));
    }
    let interface = required(env, "CNI_IFNAME")?;
    if !is_interface_name(&interface) {
        let why = format!("{interface:?} is no interface name");
        return Err(invalid_environment("CNI_IFNAME", &why));
    }
    Ok(AttachmentId { container_id, interface })
}

fn attachment(env: Env<'_>) -> Result<AttachmentRequest, CniError> {
    let id = attachment_id(env)?;
    let sandbox = sandbox(env)?;
    let args = env("CNI_ARGS").unwrap_or_default();
    let pod = PodRef::new(argument(&args, "K8S_POD_NAMESPACE")?, argument(&args, "K8S_POD_NAME")?);
    Ok(AttachmentRequest { id, sandbox, pod, pod_uid: argument(&args, "K8S_POD_UID").ok() })
}

fn sandbox(env: Env<'_>) -> Result<PathBuf, CniError> {
    let sandbox = PathBuf::from(required(env, "CNI_NETNS")?);
    if sandbox.is_absolute() {
        return Ok(sandbox);
    }
    Err(invalid_environment("CNI_NETNS", "the path must be absolute"))
}

fn required(env: Env<'_>, name: &str) -> Result<String, CniError> {
    let value = env(name).filter(|value| !value.is_empty());
    value.ok_or_else(|| invalid_environment(name, "it is not set"))
}

fn invalid_environment(name: &str, why: &str) -> CniError {
    CniError::new(ErrorCode::InvalidEnvironment, format!("environment variable {name}: {why}"))
}

/// One value out of `CNI_ARGS`, which reads `KEY=value;KEY=value`.
fn argument(args: &str, key: &str) -> Result<String, CniError> {
    args.split(';')
        .filter_map(|pair| pair.split_once('='))
        .find(|(name, value)| *name == key && !value.is_empty())
        .map(|(_, value)| value.to_owned())
        .ok_or_else(|| {
            invalid_environment("CNI_ARGS", &format!("{key} is missing; is this a pod?"))
        })
}

/// What the specification allows as container id and network name. It keeps `/` and `..` out of
/// every path that is built from one.
fn is_identifier(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
        && text.bytes().all(inner)
}

fn is_interface_name(text: &str) -> bool {
    let forbidden = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
    (1..=15).contains(&text.len()) && text != "." && text != ".." && !text.contains(forbidden)
}
