//! A pinned program link of a control group, whose program can be exchanged in one step. The library
//! that loads programs exchanges those of network links only.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use aya_obj::generated::bpf_cmd;
use nix::errno::Errno;

/// The link that is pinned at `path`.
pub(crate) fn open(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // Where the path is, and no flags.
    own(bpf(bpf_cmd::BPF_OBJ_GET, &[path.as_ptr() as u64, 0])?)
}

/// Puts `program` in the place of the link's. Says whether the link was in force: it is not, once its
/// group is gone.
pub(crate) fn exchange(link: &OwnedFd, program: impl AsFd) -> io::Result<bool> {
    let number = |descriptor: i32| u32::try_from(descriptor).map_err(io::Error::other);
    let (link, program) = (number(link.as_raw_fd())?, number(program.as_fd().as_raw_fd())?);
    // No flags: whatever program the link has now.
    match bpf(bpf_cmd::BPF_LINK_UPDATE, &[link, program, 0, 0]) {
        Err(Errno::ENOLINK) => Ok(false),
        done => Ok(done.map(|_| true)?),
    }
}

#[allow(unsafe_code, reason = "the library keeps its own calls of bpf(2) to itself")]
fn bpf<T>(command: bpf_cmd, attributes: &T) -> Result<libc::c_long, Errno> {
    // SAFETY: the kernel reads no more than the bytes of `attributes`, and what those point at lives on.
    Errno::result(unsafe {
        libc::syscall(libc::SYS_bpf, command as libc::c_int, &raw const *attributes, size_of::<T>())
    })
}

#[allow(unsafe_code, reason = "nobody else knows the descriptor")]
fn own(descriptor: libc::c_long) -> io::Result<OwnedFd> {
    let descriptor = i32::try_from(descriptor).map_err(io::Error::other)?;
    // SAFETY: the kernel gave it to this call alone.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}
