//! Uninstalling: every link, route, address and pin of ours, going on after errors and reporting all.

use std::collections::BTreeMap;
use std::path::Path;

use aya::programs::TcAttachType;

use crate::error::{DatapathError, Remains};
use crate::netlink::{Link, Netlink};
use crate::pins::{self, Pins};
use crate::program::remove_filter;
use crate::{held, node_link, overlay, plain_routes, plain_services};

/// Links go first: without its program, a link must not be there.
pub(crate) async fn remove(bpf_root: &Path) -> Result<(), DatapathError> {
    let mut errors = remove_links().await.unwrap_or_else(|error| vec![error]);
    let plain = plain_services::folder(bpf_root);
    errors.extend(plain.exists().then(|| pins::remove_all(&plain)).and_then(Result::err));
    errors.extend(Pins::new(bpf_root).remove());
    if errors.is_empty() { Ok(()) } else { Err(DatapathError::Remains(Remains(errors))) }
}

/// A link whose pair was removed before it is gone already.
fn is_ours(link: &Link) -> bool {
    overlay::is_ours(link) || node_link::is_ours(link)
}

/// What could not be removed, or why nothing could even be listed. Addresses of the outside go first:
/// without the program at the uplink, the node's own programs would answer there.
async fn remove_links() -> Result<Vec<DatapathError>, DatapathError> {
    let netlink = Netlink::open()?;
    let mut errors = vec![];
    for address in held::list(&netlink).await? {
        errors.extend(held::remove(&netlink, address).await.err());
    }
    for link in netlink.links().await? {
        if is_ours(&link) {
            errors.extend(netlink.remove(&link).await.err());
        } else {
            errors.extend(remove_filter("from_uplink", &link.name, TcAttachType::Ingress).err());
            errors.extend(plain_services::take_off(&link).err());
        }
    }
    errors.extend(plain_routes::set(&netlink, &BTreeMap::new()).await.err());
    Ok(errors)
}

/// The links, routes, addresses and directories of pins that [`remove`] would remove.
pub(crate) async fn traces(bpf_root: &Path) -> Result<Vec<String>, DatapathError> {
    let netlink = Netlink::open()?;
    let links = netlink.links().await?;
    let links = links.into_iter().filter(is_ours).map(|link| format!("link {}", link.name));
    let plain = Some(plain_services::folder(bpf_root)).filter(|dir| dir.exists());
    let pins = Pins::new(bpf_root).layouts()?.into_iter().chain(plain);
    let pins = pins.map(|dir| format!("pins in {}", dir.display()));
    let routes = plain_routes::list(&netlink).await?;
    let addresses = held::list(&netlink).await?;
    let routes = routes.iter().map(plain_routes::told);
    Ok(links.chain(pins).chain(routes).chain(addresses.iter().map(held::told)).collect())
}
