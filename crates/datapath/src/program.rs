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
            .override_global("OVERLAY_PORT", &constants.overlay_port, false);
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

    /// Loads the program `name` out of `object`.
    pub(crate) fn load(
        &mut self,
        name: &'static str,
        object: &[u8],
    ) -> Result<Program, DatapathError> {
        let loaded = self.objects.load(object);
        let mut object = loaded.attempt(|| format!("load the maps of program {name}"))?;
        let program = classifier(&mut object, name)?;
        program.load().attempt(|| format!("load program {name} into the kernel"))?;
        let id = program.info().attempt(|| format!("look at program {name}"))?.id();
        let (attachment, links) = (self.attachment, self.links.clone());
        Ok(Program { name, object, id, attachment, links, hook: TcAttachType::Ingress })
    }
}

impl Program {
    /// The same for what a link sends; a filter.
    pub(crate) fn of_egress(self) -> Self {
        Program { attachment: Attachment::Clsact, hook: TcAttachType::Egress, ..self }
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
            Attachment::Clsact => filter_on(netlink, link, self.hook).await?.into_iter().collect(),
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
            Attachment::Clsact => Ok(filter_on(netlink, link, self.hook).await?.is_some()),
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
                let occupied = filter_on(netlink, link, self.hook).await?.is_some();
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
            Attachment::Clsact if filter_on(netlink, link, self.hook).await?.is_some() => {
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
            let older = SchedClassifierLink::attached(
                &link.name,
                hook,
                FILTER_PRIORITY,
                FILTER_HANDLE,
                None,
            );
            program.attach_to_link(older.attempt(attempt)?)
        } else {
            let options =
                NlOptions { priority: FILTER_PRIORITY, handle: FILTER_HANDLE, classid: None };
            program.attach_with_options(&link.name, hook, TcAttachOptions::Netlink(options))
        };
        let taken = program.take_link(put.attempt(attempt)?).attempt(attempt)?;
        mem::forget(taken);
        Ok(())
    }

    fn pin(&self, link: &Link) -> PathBuf {
        self.links.join(&link.name)
    }
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

async fn filter_on(
    netlink: &Netlink,
    link: &Link,
    hook: TcAttachType,
) -> Result<Option<u32>, DatapathError> {
    netlink.filter_program(link, hook == TcAttachType::Egress, FILTER_PRIORITY).await
}

/// Removes the filters of a program from a link; of one that has none, nothing.
pub(crate) fn remove_filter(
    program: &str,
    link: &str,
    hook: TcAttachType,
) -> Result<(), DatapathError> {
    match tc::qdisc_detach_program(link, hook, program) {
        Err(TcError::IoError(error)) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        done => done.attempt(|| format!("take program {program} off link {link}")),
    }
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
