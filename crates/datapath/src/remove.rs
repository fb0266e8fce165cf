//! Uninstalling: every link and pin of ours, going on after errors and reporting all.

use std::path::Path;

use crate::error::{DatapathError, Remains};
use crate::netlink::{Link, Netlink};
use crate::pins::Pins;
use crate::{node_link, overlay};

/// Links go first: without its program, a link must not be there.
pub(crate) async fn remove(bpf_root: &Path) -> Result<(), DatapathError> {
    let mut errors = remove_links().await.unwrap_or_else(|error| vec![error]);
    errors.extend(Pins::new(bpf_root).remove());
    if errors.is_empty() { Ok(()) } else { Err(DatapathError::Remains(Remains(errors))) }
}

/// A link whose pair was removed before it is gone already.
fn is_ours(link: &Link) -> bool {
    overlay::is_ours(link) || node_link::is_ours(link)
}

/// What could not be removed, or why nothing could even be listed.
async fn remove_links() -> Result<Vec<DatapathError>, DatapathError> {
    let netlink = Netlink::open()?;
    let mut errors = vec![];
    for link in netlink.links().await?.iter().filter(|link| is_ours(link)) {
        errors.extend(netlink.remove(link).await.err());
    }
    Ok(errors)
}

/// The names of the links and the directory of pins that [`remove`] would remove.
pub(crate) async fn traces(bpf_root: &Path) -> Result<Vec<String>, DatapathError> {
    let links = Netlink::open()?.links().await?;
    let links = links.into_iter().filter(is_ours).map(|link| format!("link {}", link.name));
    let pins = Pins::new(bpf_root).layouts()?.into_iter();
    Ok(links.chain(pins.map(|dir| format!("pins in {}", dir.display()))).collect())
}
