//! Uninstalling: every link and pin of ours, going on after errors and reporting all.

use crate::config::DatapathConfig;
use crate::error::{DatapathError, Remains};
use crate::netlink::Netlink;
use crate::overlay::is_ours;
use crate::pins::Pins;

/// Links go first: without its program, a link must not be there.
pub(crate) async fn remove(config: &DatapathConfig) -> Result<(), DatapathError> {
    let mut errors = remove_links().await.unwrap_or_else(|error| vec![error]);
    errors.extend(Pins::new(&config.bpf_root).remove());
    if errors.is_empty() { Ok(()) } else { Err(DatapathError::Remains(Remains(errors))) }
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
