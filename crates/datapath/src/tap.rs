//! A tap inside a pod, for a virtual machine to open.
//!
//! It is wired to the pod's side of the pair, so that to the node it is a pod's interface like any
//! other: guarded, counted and found at the host side. The rule: the tap has no address and the
//! pod's own stack does not speak on it. Who is behind it is a matter of the machine inside, and of
//! the guard.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use aya::include_bytes_aligned;
use nix::errno::Errno;

use crate::error::{Attempt, DatapathError};
use crate::netlink::{Kind, Link, Netlink};
use crate::program::Loader;
use crate::quiet::silence_host_side;

static WIRE: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/wire.o"));

/// Where taps are made.
const DEVICE: &str = "/dev/net/tun";

/// Makes the tap `name` in the current thread's namespace, if it is not there, and wires it to
/// `pod_side`. Repeatable, also while a machine has the tap open.
pub(crate) async fn complete(
    netlink: &Netlink,
    name: &str,
    pod_side: &Link,
) -> Result<(), DatapathError> {
    if netlink.link(name).await?.is_none() {
        make(name).attempt(|| format!("make the tap {name} by {DEVICE}"))?;
    }
    let tap = netlink.link(name).await?.filter(|link| link.kind == Kind::Tap);
    let tap = tap
        .ok_or(io::Error::from(io::ErrorKind::AlreadyExists))
        .attempt(|| format!("use {name} as a tap: the pod has another interface of that name"))?;
    netlink.set_mtu(&tap, pod_side.mtu).await?;
    for (from, to) in [(&tap, pod_side), (pod_side, &tap)] {
        silence_host_side(&from.name)?;
        Loader::of_wire(&to.index).load("wire", WIRE)?.put_on(netlink, from).await?;
    }
    netlink.raise(&tap).await?;
    netlink.raise(pod_side).await
}

/// A tap that stays when the descriptor that made it is closed, and that any process of the pod may
/// open.
#[allow(unsafe_code, reason = "taps are made by ioctl alone")]
fn make(name: &str) -> io::Result<()> {
    let tap = open(name)?;
    // SAFETY: the descriptor is open, and the argument is a number.
    Errno::result(unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETPERSIST, 1) })?;
    Ok(())
}

/// Opens the tap `name` of the current thread's namespace, as a virtual machine does: each read and
/// each write is one frame. One that is not there is made, and goes when it is closed.
#[allow(unsafe_code, reason = "taps are opened by ioctl alone")]
pub fn open(name: &str) -> io::Result<File> {
    let device = File::options().read(true).write(true).open(DEVICE)?;
    let request = request(name)?;
    // SAFETY: the descriptor is open, and the kernel reads and writes no more than an ifreq.
    Errno::result(unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF, &raw const request) })?;
    Ok(device)
}

fn request(name: &str) -> io::Result<libc::ifreq> {
    let mut request = libc::ifreq {
        ifr_name: [0; libc::IFNAMSIZ],
        ifr_ifru: libc::__c_anonymous_ifr_ifru {
            ifru_flags: libc::IFF_TAP as i16 | libc::IFF_NO_PI as i16,
        },
    };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    Ok(request)
}
