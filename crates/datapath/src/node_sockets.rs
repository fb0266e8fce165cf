//! Services of namespaces of no tenant for the node's own processes, and for pods that use its network:
//! programs of the topmost control group, which change whom a socket speaks with.
//!
//! The rules: they touch sockets of the current network namespace alone, so that nodes which share a
//! kernel do not meddle with each other. Their links are pinned, so that services go on while the agent is
//! away, and a newer program takes the older one's place in one step.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use aya::programs::links::FdLink;
use aya::programs::{CgroupAttachMode, CgroupSockAddr};
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};
use nix::errno::Errno;

use crate::error::{Attempt, DatapathError};
use crate::pins::unpin;
use crate::program::load_patiently;
use crate::{control_group, pinned_link};

static PROGRAMS: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/plain_node.o"));

/// What tells of services first: what comes back is understood before anything is sent.
const HOOKS: [&str; 8] = [
    "recvmsg4",
    "recvmsg6",
    "getpeername4",
    "getpeername6",
    "sendmsg4",
    "sendmsg6",
    "connect4",
    "connect6",
];

/// Where the links are pinned, each by the name of its program, beside the maps.
fn folder(maps: &Path) -> PathBuf {
    maps.join("links")
}

/// Leads the processes of the current network namespace by the maps that are pinned in `maps`. Repeatable.
pub(crate) fn lead(maps: &Path) -> Result<(), DatapathError> {
    let group = control_group::topmost()?;
    let namespace = number_of_namespace()?;
    let links = folder(maps);
    let make = fs::create_dir_all(&links);
    make.attempt(|| format!("make the directory {}", links.display()))?;
    let mut objects = EbpfLoader::new();
    objects.default_map_pin_directory(maps).override_global("NODE_NAMESPACE", &namespace, true);
    let loaded = objects.load(PROGRAMS);
    let mut object = loaded.attempt(|| "load the maps of the node's own processes".into())?;
    HOOKS.into_iter().try_for_each(|name| put(&mut object, name, &group, &links.join(name)))
}

/// Puts one program to the group, in the place of an older one if there is one.
fn put(
    object: &mut Ebpf,
    name: &'static str,
    group: &File,
    pin: &Path,
) -> Result<(), DatapathError> {
    let program = program(object, name)?;
    load_patiently(|| program.load()).attempt(|| format!("load program {name} into the kernel"))?;
    if takes_place(program, name, pin)? {
        return Ok(());
    }
    unpin(pin)?;
    let attempt = || format!("attach program {name} to the topmost control group");
    // By a link: beside those of others, whatever the mode says.
    let attached = program.attach(group, CgroupAttachMode::Single).attempt(attempt)?;
    let link: FdLink = program.take_link(attached).attempt(attempt)?.try_into().attempt(attempt)?;
    link.pin(pin).attempt(|| format!("pin the program link {}", pin.display()))?;
    Ok(())
}

/// Whether there was an older one in force, whose place the program has now.
fn takes_place(program: &CgroupSockAddr, name: &str, pin: &Path) -> Result<bool, DatapathError> {
    if !pin.exists() {
        return Ok(false);
    }
    let attempt = || format!("replace program {name} of the topmost control group");
    let link = pinned_link::open(pin).attempt(attempt)?;
    pinned_link::exchange(&link, program.fd().attempt(attempt)?).attempt(attempt)
}

fn program<'a>(
    object: &'a mut Ebpf,
    name: &'static str,
) -> Result<&'a mut CgroupSockAddr, DatapathError> {
    let found = object.program_mut(name).ok_or(io::Error::from(io::ErrorKind::NotFound));
    let found = found.attempt(|| format!("find program {name}"))?;
    found.try_into().attempt(|| format!("use program {name} for addresses of sockets"))
}

/// The kernel's number of the current network namespace. No other one ever has it.
fn number_of_namespace() -> Result<u64, DatapathError> {
    let asked = UnixDatagram::unbound().and_then(|any_socket| cookie(&any_socket));
    asked.attempt(|| "ask for the number of this network namespace".into())
}

#[allow(unsafe_code, reason = "no library has this option of sockets")]
fn cookie(socket: &impl AsRawFd) -> io::Result<u64> {
    let mut number = 0_u64;
    let mut size = libc::socklen_t::try_from(size_of::<u64>()).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open, and the kernel writes no more than `size` bytes to `number`.
    Errno::result(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut number).cast(),
            &raw mut size,
        )
    })?;
    Ok(number)
}

#[cfg(test)]
mod tests {
    use atoll_testkit::Namespace;

    use super::*;

    #[test]
    fn a_namespace_has_one_number_and_no_other_has_it() {
        let (one, other) = (Namespace::new(), Namespace::new());
        let number = |namespace: &Namespace| namespace.run(|| number_of_namespace().unwrap());
        assert_eq!(number(&one), number(&one));
        assert_ne!(number(&one), number(&other));
        assert_ne!(number(&one), 0);
    }
}
