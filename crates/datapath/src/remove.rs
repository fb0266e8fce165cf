//! Uninstalling: every link and pin of ours, going on after errors and reporting all.

use crate::config::DatapathConfig;
use crate::error::{DatapathError, Remains};
use crate::netlink::{Link, Netlink};
use crate::pins::Pins;
use crate::{node_link, overlay};

/// Links go first: without its program, a link must not be there.
pub(crate) async fn remove(config: &DatapathConfig) -> Result<(), DatapathError> {
    let mut errors = remove_links().await.unwrap_or_else(|error| vec![error]);
    errors.extend(Pins::new(&config.bpf_root).remove());
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
