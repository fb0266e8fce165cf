//! Word from the kernel that somebody may have touched what is ours.
//!
//! The rule: it tells that a look is worth it, never what there is to see. Who is told looks for
//! himself, and looks anyway from time to time, so that a lost word is only a late one.

use std::collections::BTreeMap;

use atoll_plan::HostInterface;
use futures::{Stream, StreamExt};
use netlink_packet_route::RouteNetlinkMessage;
use rtnetlink::MulticastGroup;
use rtnetlink::packet_core::NetlinkPayload;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::error::{Attempt, DatapathError};
use crate::netlink::{DOOMED, Link};
use crate::overlay::OVERLAY;

/// Starts to listen in the current thread's namespace, for as long as the receiver is there. Words
/// that nobody has taken yet are one.
pub(crate) fn listen() -> Result<Receiver<()>, DatapathError> {
    let (connection, _, messages) = rtnetlink::new_multicast_connection(&[MulticastGroup::Link])
        .attempt(|| "listen for changes of links".into())?;
    let (sender, receiver) = channel(1);
    tokio::spawn(async move {
        tokio::select! {
            () = connection => {}
            () = sender.closed() => {}
            () = pass_on(messages.map(|(message, _)| message.payload), &sender) => {}
        }
    });
    Ok(receiver)
}

async fn pass_on(
    messages: impl Stream<Item = NetlinkPayload<RouteNetlinkMessage>>,
    sender: &Sender<()>,
) {
    let mut sizes = BTreeMap::new();
    let mut messages = std::pin::pin!(messages);
    while let Some(message) = messages.next().await {
        if Event::of(message).is_some_and(|event| event.matters(&mut sizes)) {
            // A word that waits already is as good.
            let _ = sender.try_send(());
        }
    }
}

/// Something that happened to a link.
enum Event {
    Changed(Link),
    Gone(Link),
}

impl Event {
    fn of(message: NetlinkPayload<RouteNetlinkMessage>) -> Option<Self> {
        match message {
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => {
                Some(Event::Changed(link.into()))
            }
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(link)) => {
                Some(Event::Gone(link.into()))
            }
            _ => None,
        }
    }

    /// Pods' links come and change by our own hand, and most go by it. What others do to them shows
    /// when they go otherwise; the tunnel's device matters always, and of all others, one of which is the uplink, the size.
    fn matters(self, sizes: &mut BTreeMap<u32, u32>) -> bool {
        match self {
            Event::Gone(link) => {
                sizes.remove(&link.index);
                link.name == OVERLAY || (is_pods(&link) && link.group != DOOMED)
            }
            Event::Changed(link) if is_pods(&link) => false,
            Event::Changed(link) => {
                sizes.insert(link.index, link.mtu) != Some(link.mtu) || link.name == OVERLAY
            }
        }
    }
}

fn is_pods(link: &Link) -> bool {
    link.name.parse::<HostInterface>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::Kind;

    fn link(name: &str, mtu: u32) -> Link {
        let name = name.to_owned();
        Link {
            index: 3,
            name,
            up: true,
            mtu,
            kind: Kind::Other,
            mac: vec![],
            group: 0,
            peer: None,
            peer_namespace: None,
            sends: true,
        }
    }

    #[test]
    fn what_we_do_to_pods_links_is_no_news_and_their_end_by_others_is() {
        let pods = || link("atl0123456789ab", 1450);
        assert!(!Event::Changed(pods()).matters(&mut BTreeMap::new()));
        assert!(Event::Gone(pods()).matters(&mut BTreeMap::new()));
        let by_our_hand = Link { group: DOOMED, ..pods() };
        assert!(!Event::Gone(by_our_hand).matters(&mut BTreeMap::new()));
    }

    #[test]
    fn the_tunnels_device_always_matters_and_of_others_the_size() {
        let mut sizes = BTreeMap::new();
        assert!(Event::Changed(link("eth0", 1500)).matters(&mut sizes), "not known before");
        assert!(!Event::Changed(link("eth0", 1500)).matters(&mut sizes));
        assert!(Event::Changed(link("eth0", 9000)).matters(&mut sizes));
        assert!(!Event::Gone(link("eth0", 9000)).matters(&mut sizes));
        for _ in 0..2 {
            assert!(Event::Changed(link(OVERLAY, 1450)).matters(&mut sizes));
        }
        assert!(Event::Gone(link(OVERLAY, 1450)).matters(&mut sizes));
    }
}
