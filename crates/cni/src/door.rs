//! The door: pods of no tenant go on to the plugins that served the node before.
//!
//! The rule of this file: it adds nothing and hides nothing. The other plugins get what the runtime
//! said, under their own network's name and in its version, and what they answer is passed on byte for
//! byte; but where all of them are asked whatever became of the others, every failure is told.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::invocation::place;
use crate::{CniError, ErrorCode, result};

type Object = Map<String, Value>;

/// What the runtime adds to a configuration for one call, and each plugin of a list must get.
const OF_THE_CALL: [&str; 4] =
    ["prevResult", "args", "cni.dev/valid-attachments", "cni.dev/attachments"];

/// The version that GC and STATUS came with.
const NODE_COMMANDS: &str = "1.1.0";

/// How often and after how long a program that is busy is started again.
const TRIES: u32 = 50;
const MOMENT: Duration = Duration::from_millis(20);

/// Where the door leads: a plugin, a list of plugins, or the name of a list on this node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Door {
    /// The name of another network of the node.
    Named(String),
    /// A list of plugins, or one plugin.
    Written(Object),
}

/// The plugins behind the door, as the runtime would call them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    plugins: Vec<Object>,
    search: Vec<PathBuf>,
    /// Whether they know the commands that concern a whole node.
    serves_nodes: bool,
}

/// What plugins answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// What goes to standard output.
    pub output: Vec<u8>,
    /// Whether it is a success.
    pub succeeded: bool,
}

impl Door {
    /// Finds the plugins, with what the runtime said in `call`. `folder` has the node's networks,
    /// `search` (`CNI_PATH`) the plugins' programs.
    pub fn open(&self, call: &Object, folder: &Path, search: &str) -> Result<Chain, CniError> {
        let network = match self {
            Door::Named(name) => named(name, folder)?,
            Door::Written(network) => network.clone(),
        };
        let version = version(&network, call);
        let complete = |plugin| complete(plugin, &network, version, call);
        Ok(Chain {
            plugins: plugins(&network).into_iter().map(complete).collect(),
            search: std::env::split_paths(search).collect(),
            serves_nodes: version.is_some_and(|version| place(version) >= place(NODE_COMMANDS)),
        })
    }
}

/// The networks written in a node's folder, in the order in which a runtime would take them. What
/// cannot be read is passed over, as runtimes do.
pub fn networks(folder: &Path) -> io::Result<Vec<Object>> {
    let is_network = |path: &PathBuf| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        matches!(extension, Some("conf" | "conflist" | "json"))
    };
    let entries = fs::read_dir(folder)?.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let mut files: Vec<_> = entries.filter(is_network).collect();
    files.sort();
    let read = |path: &PathBuf| serde_json::from_slice(&fs::read(path).ok()?).ok();
    Ok(files.iter().filter_map(read).collect())
}

/// The network called `name` among the node's.
fn named(name: &str, folder: &Path) -> Result<Object, CniError> {
    let networks = networks(folder)
        .map_err(|error| misled(format!("cannot read {}", folder.display())).because(error))?;
    let mut wanted =
        networks.into_iter().filter(|network| network.get("name") == Some(&name.into()));
    wanted.next().ok_or_else(|| {
        misled(format!("no network in {} is called {name:?}; correct delegate", folder.display()))
    })
}

/// The plugins of a network: those of its list, or itself.
fn plugins(network: &Object) -> Vec<Object> {
    match network.get("plugins").and_then(Value::as_array) {
        Some(list) => list.iter().filter_map(Value::as_object).cloned().collect(),
        None => vec![network.clone()],
    }
}

/// What the plugins of a network want to be told by the runtime.
pub fn capabilities(network: &Object) -> Object {
    let declared = |plugin: &Object| plugin.get("capabilities").and_then(Value::as_object).cloned();
    plugins(network).iter().filter_map(declared).flatten().collect()
}

/// The version in which the plugins of a network are spoken to, as a runtime chooses it: of those that the
/// network names the newest that is known here, else the caller's.
fn version<'a>(network: &'a Object, call: &'a Object) -> Option<&'a str> {
    let more = network.get("cniVersions").and_then(Value::as_array).into_iter().flatten();
    let named = network.get("cniVersion").into_iter().chain(more).filter_map(Value::as_str);
    let newest = named.max_by_key(|version| place(version));
    newest.or_else(|| call.get("cniVersion").and_then(Value::as_str))
}

/// A plugin's configuration as a runtime completes it: name and version are its network's, and of
/// what the runtime offers it gets what it has declared to understand.
fn complete(mut plugin: Object, network: &Object, version: Option<&str>, call: &Object) -> Object {
    let name = network.get("name").or_else(|| call.get("name"));
    plugin.extend(name.map(|name| ("name".to_owned(), name.clone())));
    plugin.extend(version.map(|version| ("cniVersion".to_owned(), version.into())));
    for key in OF_THE_CALL {
        plugin.extend(call.get(key).map(|value| (key.to_owned(), value.clone())));
    }
    if let (Some(previous), Some(version)) = (plugin.get_mut("prevResult"), version) {
        result::rewrite(previous, version);
    }
    let offered = call.get("runtimeConfig").and_then(Value::as_object);
    let understood = offered.into_iter().flatten().filter(|(name, _)| understands(&plugin, name));
    let understood: Object =
        understood.map(|(name, value)| (name.clone(), value.clone())).collect();
    if !understood.is_empty() {
        plugin.insert("runtimeConfig".to_owned(), understood.into());
    }
    plugin
}

fn understands(plugin: &Object, capability: &str) -> bool {
    plugin.get("capabilities").and_then(|all| all.get(capability)) == Some(&Value::Bool(true))
}

impl Chain {
    /// Has every plugin do `command`. What concerns a whole node is asked of those alone who know it, as a
    /// runtime would.
    pub fn call(self, command: &str) -> Result<Answer, CniError> {
        match command {
            "GC" | "STATUS" if !self.serves_nodes => {
                Ok(Answer { succeeded: true, ..Answer::default() })
            }
            "GC" => self.collect(),
            _ => self.one_by_one(command),
        }
    }

    /// In the order that the specification says, up to the first that fails.
    fn one_by_one(mut self, command: &str) -> Result<Answer, CniError> {
        if command == "DEL" {
            self.plugins.reverse();
        }
        let mut answer = Answer { succeeded: true, ..Answer::default() };
        for mut plugin in self.plugins {
            if command == "ADD" && !answer.output.is_empty() {
                let previous = serde_json::from_slice(&answer.output).unwrap_or(Value::Null);
                plugin.insert("prevResult".to_owned(), previous);
            }
            answer = run(&find(&plugin, &self.search)?, &plugin)?;
            if !answer.succeeded {
                break;
            }
        }
        Ok(answer)
    }

    /// Each, whatever became of those before; and every failure is told.
    fn collect(self) -> Result<Answer, CniError> {
        let collect = |plugin: &Object| run(&find(plugin, &self.search)?, plugin);
        let failure = |plugin: &Object| match collect(plugin) {
            Ok(answer) if answer.succeeded => None,
            Ok(answer) => Some(told_by(plugin, &answer)),
            Err(error) => Some(error),
        };
        CniError::of_all(&self.plugins.iter().filter_map(failure).collect::<Vec<_>>())?;
        Ok(Answer { succeeded: true, ..Answer::default() })
    }
}

/// What a plugin that failed has said, with its name.
fn told_by(plugin: &Object, answer: &Answer) -> CniError {
    let said: Value = serde_json::from_slice(&answer.output).unwrap_or_default();
    let text = |field: &str| said.get(field).and_then(Value::as_str).unwrap_or_default();
    let code = said.get("code").and_then(Value::as_u64).and_then(|code| u32::try_from(code).ok());
    let code = code.and_then(|code| ErrorCode::try_from(code).ok());
    let kind = plugin.get("type").and_then(Value::as_str).unwrap_or_default();
    let message = format!("plugin {kind}: {}", text("msg"));
    CniError::new(code.unwrap_or(ErrorCode::AttachFailed), message).because(text("details"))
}

/// The plugin's program. Its type is a name and no path, so that a configuration can start nothing
/// but plugins.
fn find(plugin: &Object, search: &[PathBuf]) -> Result<PathBuf, CniError> {
    let kind = plugin.get("type").and_then(Value::as_str).unwrap_or_default();
    if kind.is_empty() || kind.contains('/') || kind == "." || kind == ".." {
        return Err(misled(format!("delegate: {kind:?} is no plugin type")));
    }
    let mut places = search.iter().map(|folder| folder.join(kind));
    places.find(|program| program.is_file()).ok_or_else(|| {
        misled(format!("delegate: plugin {kind} is in no folder of CNI_PATH; install it"))
    })
}

/// Starts the program in this one's environment, which is the runtime's.
fn run(program: &Path, configuration: &Object) -> Result<Answer, CniError> {
    let attempt = || -> io::Result<Answer> {
        let mut plugin = start(program)?;
        if let Some(mut input) = plugin.stdin.take() {
            // One that does not read its input says itself what is wrong.
            let _ = input.write_all(&serde_json::to_vec(configuration)?);
        }
        let done = plugin.wait_with_output()?;
        Ok(Answer { output: done.stdout, succeeded: done.status.success() })
    };
    attempt().map_err(|error| {
        let message = format!("cannot run the plugin {}", program.display());
        CniError::new(ErrorCode::Io, message).because(error)
    })
}

/// A program that is just being installed is busy for a moment.
fn start(program: &Path) -> io::Result<Child> {
    let mut command = Command::new(program);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    for _ in 0..TRIES {
        match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => sleep(MOMENT),
            started => return started,
        }
    }
    command.spawn()
}

fn misled(message: String) -> CniError {
    CniError::new(ErrorCode::InvalidConfig, message)
}
