//! Sockets that hear one link alone.
//!
//! A node takes what is sent to one of its addresses by whichever link it comes in. Who knows askers by
//! the addresses that their questions come from must hear them only by the link where nobody else can
//! have those addresses. The rule: what comes in by another link is not heard, and is told nothing.
//!
//! A filter and not a binding: it can be exchanged for another link by whoever has the socket, without
//! further rights, and no question that waits is lost with that.

use std::io;
use std::os::fd::AsFd;

use socket2::{SockFilter, SockRef};

/// Instructions of the kernel's filters: load a word, jump where it equals, return.
const LOAD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
/// Where the index of the link that a packet came in by is found.
const LINK: u32 = 0xffff_f008;
/// How much of a packet is kept.
const ALL: u32 = u32::MAX;
const NOTHING: u32 = 0;

/// From now on the socket hears what comes in by the link with this index, and nothing else; and so do
/// connections that it accepts.
pub fn hear_only(socket: &impl AsFd, link: u32) -> io::Result<()> {
    SockRef::from(socket).attach_filter(&[
        SockFilter::new(LOAD, 0, 0, LINK),
        SockFilter::new(JUMP_IF_EQUAL, 0, 1, link),
        SockFilter::new(RETURN, 0, 0, ALL),
        SockFilter::new(RETURN, 0, 0, NOTHING),
    ])
}

/// From now on the socket hears every link.
pub fn hear_all(socket: &impl AsFd) -> io::Result<()> {
    match SockRef::from(socket).detach_filter() {
        // It heard every link already.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
    use std::time::Duration;

    use atoll_testkit::Hears;
    use nix::net::if_::if_nametoindex;

    use super::*;

    /// How long an answer may take. Generous: the machine may be busy.
    const LIMIT: Duration = Duration::from_secs(30);
    const BRIEF: Duration = Duration::from_millis(200);

    fn here() -> u32 {
        if_nametoindex("lo").unwrap()
    }

    /// An index that no link has.
    const ELSEWHERE: u32 = 0x7fff_fff0;

    fn own() -> [SocketAddr; 2] {
        [(Ipv4Addr::LOCALHOST, 0).into(), (Ipv6Addr::LOCALHOST, 0).into()]
    }

    #[test]
    fn datagrams_are_heard_by_the_one_link_and_by_no_other() {
        for own in own() {
            let [ear, mouth] = [(); 2].map(|()| UdpSocket::bind(own).unwrap());
            ear.set_read_timeout(Some(LIMIT)).unwrap();
            mouth.connect(ear.local_addr().unwrap()).unwrap();
            let mut heard = [0; 16];
            for (link, word) in [(here(), &b"one"[..]), (ELSEWHERE, b"two"), (here(), b"three")] {
                hear_only(&ear, link).unwrap();
                mouth.send(word).unwrap();
                if link == here() {
                    let length = ear.hear(&mut heard).unwrap();
                    assert_eq!(&heard[..length], word);
                }
            }
            hear_only(&ear, ELSEWHERE).unwrap();
            hear_all(&ear).unwrap();
            hear_all(&ear).unwrap();
            mouth.send(b"four").unwrap();
            let length = ear.hear(&mut heard).unwrap();
            assert_eq!(&heard[..length], b"four");
        }
    }

    #[test]
    fn connections_are_taken_from_the_one_link_and_hear_what_they_are_told_to() {
        for own in own() {
            let listener = TcpListener::bind(own).unwrap();
            let at = listener.local_addr().unwrap();
            hear_only(&listener, ELSEWHERE).unwrap();
            assert!(TcpStream::connect_timeout(&at, BRIEF).is_err(), "{at} by another link");
            hear_only(&listener, here()).unwrap();
            let mut caller = TcpStream::connect_timeout(&at, LIMIT).unwrap();
            let (mut taken, _) = listener.accept().unwrap();
            hear_only(&taken, ELSEWHERE).unwrap();
            caller.write_all(b"hello").unwrap();
            taken.set_read_timeout(Some(BRIEF)).unwrap();
            assert!(taken.read(&mut [0; 8]).is_err(), "it hears another link alone");
            hear_all(&taken).unwrap();
            taken.set_read_timeout(Some(LIMIT)).unwrap();
            taken.read_exact(&mut [0; 5]).unwrap();
        }
    }
}
