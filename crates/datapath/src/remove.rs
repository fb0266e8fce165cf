//! Uninstalling: every link and pin of ours, going on after errors and reporting all.

use crate::config::DatapathConfig;
use crate::error::{DatapathError, Remains};
use crate::netlink::Netlink;
use crate::overlay::is_ours;
use crate::pins::Pins;

/// Links go first: without its program, a link must not be there.
pub(crate) async fn remove(config: &DatapathConfig) -> Result<(), DatapathError> {
    let mut errors = remove_links().await;
    errors.extend(Pins::new(&config.bpf_root).remove());
    if errors.is_empty() { Ok(()) } else { Err(DatapathError::Remains(Remains(errors))) }
}

async fn remove_links() -> Vec<DatapathError> {
    let links = match list().await {
        Ok(links) => links,
        Err(error) => return vec![error],
    };
    let (netlink, links) = links;
    let mut errors = vec![];
    for link in links.iter().filter(|link| is_ours(link)) {
        errors.extend(netlink.remove(link).await.err());
    }
    errors
}

async fn list() -> Result<(Netlink, Vec<crate::netlink::Link>), DatapathError> {
    let netlink = Netlink::open()?;
    let links = netlink.links().await?;
    Ok((netlink, links))
}
