//! Links that go away.
//!
//! The kernel closes a link and takes its name away at once, and then takes its time to free it:
//! twenty milliseconds and more, in which it holds up nobody but who asked. So a thread of its own
//! asks, and the link counts as gone when its name is. Whatever happens to the agent meanwhile, a
//! removal that was begun is finished by the kernel.

use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::error::{Attempt, DatapathError};
use crate::netlink::{Link, Netlink};

/// How long the kernel usually takes to take a name away.
const MOMENT: Duration = Duration::from_millis(1);

/// Removes links together; they are closed and their names are free when this returns.
pub(crate) async fn remove_together(
    netlink: &Netlink,
    links: Vec<Link>,
) -> Result<(), DatapathError> {
    if links.is_empty() {
        return Ok(());
    }
    let mut freed = start(links.clone())?;
    loop {
        tokio::select! {
            done = &mut freed => return done.attempt(|| "wait for links to go".into())?,
            () = tokio::time::sleep(MOMENT) => {
                if are_gone(netlink, &links).await? {
                    return Ok(());
                }
            }
        }
    }
}

/// Has the links removed by a thread that ends when the kernel has freed them.
fn start(links: Vec<Link>) -> Result<oneshot::Receiver<Result<(), DatapathError>>, DatapathError> {
    let (freed, receiver) = oneshot::channel();
    let work = move || {
        // Nobody waits any more once the names are gone.
        let _ = freed.send(remove(&links));
    };
    let name = "leaving-links".to_owned();
    thread::Builder::new().name(name).spawn(work).attempt(|| "start a thread".into())?;
    Ok(receiver)
}

fn remove(links: &[Link]) -> Result<(), DatapathError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .attempt(|| "start a runtime that removes links".into())?;
    runtime.block_on(async { Netlink::open()?.remove_all(links).await })
}

async fn are_gone(netlink: &Netlink, links: &[Link]) -> Result<bool, DatapathError> {
    if let [link] = links {
        let found = netlink.link(&link.name).await?;
        return Ok(found.is_none_or(|found| found.index != link.index));
    }
    let there = netlink.links().await?;
    Ok(!there.iter().any(|there| links.iter().any(|link| link.index == there.index)))
}
