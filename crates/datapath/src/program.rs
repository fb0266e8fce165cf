//! One kernel program: loaded once, attached to many links.
//!
//! The rule: a link that has a program never loses it for a moment. A newer program takes the
//! older one's place in one step; nothing is detached in order to be replaced.

use std::fmt;
use std::mem;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::tc::{
    self, NlOptions, SchedClassifierLink, SchedClassifierLinkId, TcAttachOptions,
};
use aya::programs::{
    LinkOrder, ProgramError, ProgramInfo, SchedClassifier, TcAttachType, TcError, TcHandle,
};
use aya::{Ebpf, EbpfLoader};
use nix::errno::Errno;

use crate::config::Attachment;
use crate::error::{Attempt, DatapathError};
use crate::netlink::{Link, Netlink};
use crate::pins::{Pins, unpin};

/// The place of our filter among those of a link. It is fixed, so that it is found again.
const FILTER_PRIORITY: u16 = 1;
/// The place of one that comes after ours on the same link, where others may have theirs, too.
const LATER_PRIORITY: u16 = 0xa701;
const FILTER_HANDLE: TcHandle = TcHandle::new(0, 1);

/// What the programs are told at load time; each lives in a constant of that name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Constants {
    pub(crate) overlay_ifindex: u32,
    pub(crate) underlay_ipv4: u32,
    pub(crate) underlay_ipv6: [u32; 4],
    pub(crate) pod_mtu: u32,
    pub(crate) node_ifindex: u32,
    pub(crate) uplink_ifindex: u32,
    pub(crate) overlay_port: u32,
    pub(crate) question_nanos: u64,
}

/// What the programs of node ports are told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodePortConstants {
    pub(crate) ipv4: u32,
    pub(crate) ipv6: [u32; 4],
    pub(crate) first_face: u32,
    pub(crate) faces: u32,
    pub(crate) face_secret: u32,
    pub(crate) tunnel_port: u32,
}

/// Loads programs that share maps and constants.
pub(crate) struct Loader<'a> {
    objects: EbpfLoader<'a>,
    attachment: Attachment,
    links: PathBuf,
}

/// A loaded program.
pub(crate) struct Program {
    name: &'static str,
    object: Ebpf,
    id: u32,
    attachment: Attachment,
    links: PathBuf,
    /// Whether it sees what a link receives or what it sends.
    hook: TcAttachType,
    /// Its place, where it is a filter.
    priority: u16,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Program({} {} by {:?})", self.name, self.id, self.attachment)
    }
}

impl<'a> Loader<'a> {
    /// Programs loaded by this use the maps pinned in `pins`, made there when they are missing.
    pub(crate) fn new(constants: &'a Constants, attachment: Attachment, pins: &Pins) -> Self {
        let mut objects = EbpfLoader::new();
        objects
            .default_map_pin_directory(pins.maps())
            .override_global("OVERLAY_IFINDEX", &constants.overlay_ifindex, false)
            .override_global("UNDERLAY_IPV4", &constants.underlay_ipv4, false)
            .override_global("UNDERLAY_IPV6", &constants.underlay_ipv6, false)
            .override_global("POD_MTU", &constants.pod_mtu, false)
            .override_global("NODE_IFINDEX", &constants.node_ifindex, false)
            .override_global("UPLINK_IFINDEX", &constants.uplink_ifindex, false)
            .override_global("OVERLAY_PORT", &constants.overlay_port, false)
            .override_global("QUESTION_NANOS", &constants.question_nanos, false);
        Loader { objects, attachment, links: pins.links() }
    }

    /// Programs loaded by this have no maps and know one link of their namespace.
    pub(crate) fn of_wire(other_side: &'a u32) -> Self {
        let mut objects = EbpfLoader::new();
        objects.override_global("OTHER_SIDE", other_side, true);
        Loader { objects, attachment: Attachment::Clsact, links: PathBuf::new() }
    }

    /// Programs loaded by this have maps pinned in `maps` and are filters.
    pub(crate) fn of_plain_pods(maps: &Path) -> Self {
        let mut objects = EbpfLoader::new();
        objects.default_map_pin_directory(maps);
        Loader { objects, attachment: Attachment::Clsact, links: PathBuf::new() }
    }

    /// The same, told where nodes hear each other.
    pub(crate) fn beside_tunnel(maps: &Path, tunnel_port: &'a u32) -> Self {
        let mut loader = Loader::of_plain_pods(maps);
        loader.objects.override_global("TUNNEL_PORT", tunnel_port, true);
        loader
    }

    /// The same, told of the node's side of the outside.
    pub(crate) fn of_node_ports(maps: &Path, at: &'a NodePortConstants) -> Self {
        let mut loader = Loader::of_plain_pods(maps);
        loader
            .objects
            .override_global("NODE_IPV4", &at.ipv4, true)
            .override_global("NODE_IPV6", &at.ipv6, true)
            .override_global("FIRST_FACE", &at.first_face, true)
            .override_global("FACES", &at.faces, true)
            .override_global("FACE_SECRET", &at.face_secret, true)
            .override_global("TUNNEL_PORT", &at.tunnel_port, true);
        loader
    }

    /// Loads the program `name` out of `object`.
    pub(crate) fn load(
        &mut self,
        name: &'static str,
        object: &[u8],
    ) -> Result<Program, DatapathError> {
        let loaded = self.objects.load(object);
        let mut object = loaded.attempt(|| format!("load the maps of program {name}"))?;
        let program = classifier(&mut object, name)?;
        load_patiently(|| program.load())
            .attempt(|| format!("load program {name} into the kernel"))?;
        let id = program.info().attempt(|| format!("look at program {name}"))?.id();
        let (attachment, links) = (self.attachment, self.links.clone());
        let (hook, priority) = (TcAttachType::Ingress, FILTER_PRIORITY);
        Ok(Program { name, object, id, attachment, links, hook, priority })
    }
}

impl Program {
    /// The same for what a link sends; a filter.
    pub(crate) fn of_egress(self) -> Self {
        Program { attachment: Attachment::Clsact, hook: TcAttachType::Egress, ..self }
    }

    /// The same after another of our filters, which lets pass what is not its own.
    pub(crate) fn after_others(self) -> Self {
        Program { priority: LATER_PRIORITY, ..self }
    }

    /// Whether exactly this program is on the link.
    pub(crate) async fn is_on(
        &self,
        netlink: &Netlink,
        link: &Link,
    ) -> Result<bool, DatapathError> {
        let found = match self.attachment {
            Attachment::Tcx if !self.pin(link).exists() => return Ok(false),
            Attachment::Tcx => tcx_programs(link)?,
            Attachment::Clsact => self.filter_on(netlink, link).await?.into_iter().collect(),
        };
        Ok(found.contains(&self.id))
    }

    /// Whether a program of ours, this or an older one, was put on the link.
    pub(crate) async fn was_on(
        &self,
        netlink: &Netlink,
        link: &Link,
    ) -> Result<bool, DatapathError> {
        match self.attachment {
            Attachment::Tcx => Ok(self.pin(link).exists()),
            Attachment::Clsact => Ok(self.filter_on(netlink, link).await?.is_some()),
        }
    }

    /// Puts the program on the link, in the place of an older one if there is one.
    pub(crate) async fn put_on(
        &mut self,
        netlink: &Netlink,
        link: &Link,
    ) -> Result<(), DatapathError> {
        match self.attachment {
            Attachment::Tcx => self.put_tcx(link).await,
            Attachment::Clsact => {
                let occupied = self.filter_on(netlink, link).await?.is_some();
                self.put_filter(link, occupied)
            }
        }
    }

    /// Takes the program, this or an older one, off the link; where there is none, that is as good.
    pub(crate) async fn take_off(
        &self,
        netlink: &Netlink,
        link: &Link,
    ) -> Result<(), DatapathError> {
        match self.attachment {
            Attachment::Tcx => unpin(&self.pin(link)),
            Attachment::Clsact if self.filter_on(netlink, link).await?.is_some() => {
                remove_filter(self.name, &link.name, self.hook)
            }
            Attachment::Clsact => Ok(()),
        }
    }

    async fn put_tcx(&mut self, link: &Link) -> Result<(), DatapathError> {
        let pin = self.pin(link);
        if let Some(older) = pinned_on(&pin, link)? {
            return self.replace(older, link);
        }
        unpin(&pin)?;
        let attempt = || format!("attach program {} to link {}", self.name, link.name);
        let program = classifier(&mut self.object, self.name)?;
        let attached = attach_first(program, link).await.attempt(attempt)?;
        let fd = take_fd(program, attached)?;
        fd.pin(&pin).attempt(|| format!("pin the program link {}", pin.display()))?;
        Ok(())
    }

    fn replace(&mut self, older: FdLink, link: &Link) -> Result<(), DatapathError> {
        let attempt = || format!("replace program {} on link {}", self.name, link.name);
        let older: SchedClassifierLink = older.try_into().attempt(attempt)?;
        let program = classifier(&mut self.object, self.name)?;
        let replaced = program.attach_to_link(older).attempt(attempt)?;
        take_fd(program, replaced)?;
        Ok(())
    }

    /// A filter lives as long as its link, so aya's handle to it, which would detach it, is given
    /// up.
    fn put_filter(&mut self, link: &Link, occupied: bool) -> Result<(), DatapathError> {
        let attempt = || format!("attach program {} to link {}", self.name, link.name);
        make_room_for_filters(link)?;
        let program = classifier(&mut self.object, self.name)?;
        let hook = self.hook;
        let put = if occupied {
            let older =
                SchedClassifierLink::attached(&link.name, hook, self.priority, FILTER_HANDLE, None);
            program.attach_to_link(older.attempt(attempt)?)
        } else {
            let options =
                NlOptions { priority: self.priority, handle: FILTER_HANDLE, classid: None };
            program.attach_with_options(&link.name, hook, TcAttachOptions::Netlink(options))
        };
        let taken = program.take_link(put.attempt(attempt)?).attempt(attempt)?;
        mem::forget(taken);
        Ok(())
    }

    fn pin(&self, link: &Link) -> PathBuf {
        self.links.join(&link.name)
    }

    /// The program of a filter of ours at this one's place.
    async fn filter_on(
        &self,
        netlink: &Netlink,
        link: &Link,
    ) -> Result<Option<u32>, DatapathError> {
        let at_egress = self.hook == TcAttachType::Egress;
        netlink.filter_program(link, at_egress, self.priority).await
    }
}

/// How often a program is loaded before the kernel's answer counts.
const LOAD_TRIES: usize = 50;

/// Loads a program. The kernel stops looking at one when a signal waits for the one who loads it, and says
/// "again": so it is asked again.
pub(crate) fn load_patiently(
    mut load: impl FnMut() -> Result<(), ProgramError>,
) -> Result<(), ProgramError> {
    for _ in 1..LOAD_TRIES {
        match load() {
            Err(error) if was_interrupted(&error) => {}
            done => return done,
        }
    }
    load()
}

fn was_interrupted(error: &ProgramError) -> bool {
    let ProgramError::LoadError { io_error, .. } = error else { return false };
    io_error.raw_os_error() == Some(Errno::EAGAIN as i32)
}

/// How long a program whose pin was removed may take to leave its link. The kernel lets it go when
/// all its CPUs have looked up, and until then says that it is there already.
const LEAVE_TAKING: Duration = Duration::from_secs(2);
const MOMENT: Duration = Duration::from_millis(5);

/// Attaches in the first place, so that no other program lets pass what ours would drop.
async fn attach_first(
    program: &mut SchedClassifier,
    link: &Link,
) -> Result<SchedClassifierLinkId, ProgramError> {
    let deadline = Instant::now() + LEAVE_TAKING;
    loop {
        let options = TcAttachOptions::TcxOrder(LinkOrder::first());
        match program.attach_with_options(&link.name, TcAttachType::Ingress, options) {
            Err(error) if is_there_already(&error) && Instant::now() < deadline => {
                tokio::time::sleep(MOMENT).await;
            }
            outcome => return outcome,
        }
    }
}

fn is_there_already(error: &ProgramError) -> bool {
    let ProgramError::SyscallError(error) = error else { return false };
    error.io_error.kind() == std::io::ErrorKind::AlreadyExists
}

fn classifier<'a>(
    object: &'a mut Ebpf,
    name: &'static str,
) -> Result<&'a mut SchedClassifier, DatapathError> {
    let program = object.program_mut(name).ok_or(std::io::ErrorKind::NotFound);
    let program =
        program.map_err(std::io::Error::from).attempt(|| format!("find program {name}"))?;
    program.try_into().attempt(|| format!("use program {name} as a classifier"))
}

/// The pinned program link, if it is one that is in force on `link`: the pin outlives a link that
/// is removed, and a new link may have the same name.
fn pinned_on(pin: &Path, link: &Link) -> Result<Option<FdLink>, DatapathError> {
    if !pin.exists() {
        return Ok(None);
    }
    let attempt = || format!("open the program link {}", pin.display());
    let pinned = FdLink::from(PinnedLink::from_pin(pin).attempt(attempt)?);
    let program = pinned.info().attempt(attempt)?.program_id();
    Ok(tcx_programs(link)?.contains(&program).then_some(pinned))
}

fn tcx_programs(link: &Link) -> Result<Vec<u32>, DatapathError> {
    let (_, programs) = SchedClassifier::query_tcx(&link.name, TcAttachType::Ingress)
        .attempt(|| format!("list the programs of link {}", link.name))?;
    Ok(programs.iter().map(ProgramInfo::id).collect())
}

/// Removes the filters of a program from a link; of one that has none or is gone, nothing.
pub(crate) fn remove_filter(
    program: &str,
    link: &str,
    hook: TcAttachType,
) -> Result<(), DatapathError> {
    match tc::qdisc_detach_program(link, hook, program) {
        Err(TcError::IoError(error)) if is_gone(&error) => Ok(()),
        Err(TcError::NetlinkError(error)) if error.raw_os_error() == Some(ENODEV) => Ok(()),
        done => done.attempt(|| format!("take program {program} off link {link}")),
    }
}

/// What the kernel says of a link that is gone.
const ENODEV: i32 = Errno::ENODEV as i32;

/// Whether there is nothing to remove: no such filter, or no such link any more.
fn is_gone(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::NotFound || error.raw_os_error() == Some(ENODEV)
}

fn take_fd(
    program: &mut SchedClassifier,
    id: SchedClassifierLinkId,
) -> Result<FdLink, DatapathError> {
    let attempt = || "take over a program link".to_owned();
    program.take_link(id).attempt(attempt)?.try_into().attempt(attempt)
}

fn make_room_for_filters(link: &Link) -> Result<(), DatapathError> {
    match tc::qdisc_add_clsact(&link.name) {
        Err(TcError::NetlinkError(error)) if error.raw_os_error() == Some(Errno::EEXIST as i32) => {
            Ok(())
        }
        done => done.attempt(|| format!("add clsact to link {}", link.name)),
    }
}

#[cfg(test)]
mod tests {
    use aya_obj::VerifierLog;

    use super::*;

    fn refused(by: Errno) -> Result<(), ProgramError> {
        let io_error = std::io::Error::from(by);
        Err(ProgramError::LoadError { io_error, verifier_log: VerifierLog::new(String::new()) })
    }

    #[test]
    fn a_load_that_was_interrupted_is_tried_again_and_one_that_was_refused_is_not() {
        let mut tries = 0;
        let loaded = load_patiently(|| {
            tries += 1;
            if tries < 3 { refused(Errno::EAGAIN) } else { Ok(()) }
        });
        assert!(loaded.is_ok() && tries == 3, "{loaded:?} after {tries}");
        let mut tries = 0;
        let loaded = load_patiently(|| {
            tries += 1;
            refused(Errno::EACCES)
        });
        assert!(loaded.is_err() && tries == 1, "{loaded:?} after {tries}");
    }
}
