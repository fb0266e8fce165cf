//! Whether a resolver answers, asked by one question.
//!
//! The rule: the question is one that every resolver of ours answers by itself, so that what is
//! said is about this resolver and not about those that it asks.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// The name of 127.0.0.1: of private addresses nobody outside is asked.
const QUESTION: &[u8] = b"\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\
    \x011\x010\x010\x03127\x07in-addr\x04arpa\x00\x00\x0c\x00\x01";

/// Asks a resolver over UDP, and waits for its answer.
pub fn check(resolver: SocketAddr, patience: Duration) -> io::Result<()> {
    let any = match resolver {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(resolver)?;
    let mut id = [0; 2];
    getrandom::fill(&mut id).map_err(io::Error::other)?;
    socket.send(&[&id, QUESTION].concat())?;
    let deadline = Instant::now() + patience;
    let mut answer = [0; 512];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        socket.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        let len = socket.recv(&mut answer)?;
        if len >= 12 && answer[..2] == id && answer[2] & 0x80 != 0 {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use atoll_zones::{DomainName, Settings, ZoneSet};

    use super::*;
    use crate::{Asker, Config, NetworkKey, PodId, Server, TenantId};

    const SOON: Duration = Duration::from_millis(300);

    fn local() -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
    }

    #[test]
    fn a_resolver_that_answers_is_content_and_one_that_is_silent_or_away_is_not() {
        let asker = Asker { network: NetworkKey(1), pod: PodId(1), tenant: TenantId(1) };
        let config = Config { listen: vec![local()], ..Config::default() };
        let tries = (0..20).map(|_| Server::new(config.clone(), move |_| Some(asker)));
        let server = tries.flatten().next().unwrap();
        let zone = DomainName::parse("cluster.local").unwrap();
        let settings = Settings { zone, cidrs: vec![], resolver: vec![], ttl: 5 };
        server.swap(NetworkKey(1), Arc::new(ZoneSet::new(settings)));
        let address = server.addresses()[0];
        check(address, Duration::from_secs(30)).unwrap();
        drop(server);
        check(address, SOON).unwrap_err();

        let silent = UdpSocket::bind(local()).unwrap();
        check(silent.local_addr().unwrap(), SOON).unwrap_err();
    }

    #[test]
    fn words_that_are_no_answer_to_the_question_are_passed_over() {
        let other = UdpSocket::bind(local()).unwrap();
        let address = other.local_addr().unwrap();
        let asking = std::thread::spawn(move || check(address, SOON));
        let mut question = [0; 512];
        let (len, from) = other.recv_from(&mut question).unwrap();
        let answer = |change: fn(&mut [u8])| {
            let mut answer = question[..len].to_vec();
            answer[2] |= 0x80;
            change(&mut answer);
            answer
        };
        let right = answer(|_| {});
        let other_id = answer(|it| it[1] = !it[1]);
        let no_answer = answer(|it| it[2] &= 0x7f);
        for wrong in [&other_id[..], &no_answer, &right[..2]] {
            other.send_to(wrong, from).unwrap();
        }
        asking.join().unwrap().unwrap_err();
    }
}
