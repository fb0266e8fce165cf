//! What goes into the life of a pod and what comes out of it: facts, and actions.

use std::net::IpAddr;
use std::time::Duration;

/// What the API says about the pod that can change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    /// Changes when labels, annotations or spec do.
    pub(crate) fingerprint: u64,
    /// The time to end in, once the pod is deleted.
    pub(crate) deleted_with_grace: Option<Duration>,
}

/// A fact for the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fact {
    /// The API object looks like this now.
    Changed(Wish),
    /// The API object is gone.
    Vanished,
    SandboxMade(Vec<IpAddr>),
    SandboxFailed(String),
    SandboxRemoved,
    SandboxStuck(String),
    Started(String),
    Refused(String, String),
    /// A container ended with this code, or could not even start.
    Exited {
        name: String,
        code: i32,
        start_error: Option<String>,
    },
    /// Whether a container that says how to check it is ready.
    Checked(String, bool),
    /// Time has passed.
    Clock,
}

/// Something to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    MakeSandbox,
    RemoveSandbox,
    Start {
        name: String,
        attempt: u32,
    },
    /// Ask the container to end.
    Stop(String),
    Kill(String),
    Tell(Notice),
    /// Delete the API object for good.
    DeleteObject,
    /// Nothing is left to do, ever.
    Finish,
}

/// Something that users of `kubectl describe` should read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    SandboxFailed(String),
    SandboxStuck(String),
    Started(String),
    Stopping(String),
    BackingOff(String),
    CannotStart(String, String),
}
