//! A steady flow of numbered packets to an echo server: proof that nothing is lost, or of how much.

use std::cell::Cell;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Serialize;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;

use crate::FlowArgs;
use crate::answer::Answer;
use crate::connect::unspecified;
use crate::serve::end_of;
use crate::target::{Protocol, Target};

/// How long an answer may take where only so many packets may be under way. What is under way for longer is lost, and holds nothing up.
const LATE: Duration = Duration::from_secs(2);

/// What came back of the numbers that were sent.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Tally {
    sent: u64,
    received: u64,
    lost: u64,
    duplicated: u64,
    reordered: u64,
    longest_gap_ms: u128,
    #[serde(skip)]
    seen: Vec<bool>,
    #[serde(skip)]
    highest: Option<u64>,
    #[serde(skip)]
    last_arrival: Option<Instant>,
}

impl Tally {
    fn arrived(&mut self, number: u64, now: Instant) {
        let slot = number as usize;
        if self.seen.len() <= slot {
            self.seen.resize(slot + 1, false);
        }
        if std::mem::replace(&mut self.seen[slot], true) {
            self.duplicated += 1;
            return;
        }
        self.received += 1;
        self.reordered += u64::from(self.highest.is_some_and(|highest| number < highest));
        self.highest = self.highest.max(Some(number));
        let gap = self.last_arrival.map_or(Duration::ZERO, |last| now - last);
        self.longest_gap_ms = self.longest_gap_ms.max(gap.as_millis());
        self.last_arrival = Some(now);
    }

    fn finished(mut self, sent: u64) -> Self {
        self.sent = sent;
        self.lost = sent.saturating_sub(self.received);
        self
    }
}

/// `flow`: exit 0 when every packet came back once, 1 when not; the numbers as JSON either way.
pub(crate) async fn run(args: &FlowArgs) -> anyhow::Result<ExitCode> {
    let tally = match (&args.udp, &args.tcp) {
        (Some(server), _) => udp(Target::new(Protocol::Udp, server)?, args).await?,
        (None, Some(server)) => tcp(Target::new(Protocol::Tcp, server)?, args).await?,
        (None, None) => anyhow::bail!("say where to: --udp ADDR or --tcp ADDR"),
    };
    println!("{}", serde_json::to_string(&tally)?);
    let whole = tally.lost == 0 && tally.duplicated == 0;
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn udp(server: Target, args: &FlowArgs) -> anyhow::Result<Tally> {
    let socket = UdpSocket::bind((unspecified(server.address.ip()), 0)).await?;
    socket.connect(server.address).await.with_context(|| format!("cannot reach {server}"))?;
    let mut tally = Tally::default();
    let mut packet = [0; 4096];
    // An ICMP error (no server yet, no route yet) is a lost packet, not the end of the flow.
    let send = async |number: u64| drop(socket.send(number.to_string().as_bytes()).await);
    let receive = async || match socket.recv(&mut packet).await {
        Ok(length) => Some(echoed(&packet[..length])),
        Err(_) => Some(None),
    };
    let sent = pump(args, told_to_end(args), send, receive, &mut tally).await;
    Ok(tally.finished(sent))
}

async fn tcp(server: Target, args: &FlowArgs) -> anyhow::Result<Tally> {
    let connected = TcpStream::connect(server.address).await;
    let stream = connected.with_context(|| format!("cannot reach {server}"))?;
    stream.set_nodelay(true)?;
    let (reader, mut writer): (OwnedReadHalf, OwnedWriteHalf) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let mut tally = Tally::default();
    // A broken connection shows as lines that never come back.
    let send = async |number: u64| drop(writer.write_all(format!("{number}\n").as_bytes()).await);
    let receive = async || {
        let mut line = String::new();
        let length = reader.read_line(&mut line).await.unwrap_or(0);
        (length > 0).then(|| echoed(line.as_bytes()))
    };
    let sent = pump(args, told_to_end(args), send, receive, &mut tally).await;
    Ok(tally.finished(sent))
}

/// The number that an answer echoes.
fn echoed(line: &[u8]) -> Option<u64> {
    serde_json::from_slice::<Answer>(line).ok()?.echo?.parse().ok()
}

/// At once where its time alone ends a flow, else with the input.
async fn told_to_end(args: &FlowArgs) {
    if args.until_eof {
        // An input that cannot be read has ended, too.
        let _ = tokio::task::spawn_blocking(|| end_of(std::io::stdin().lock())).await;
    }
}

/// Sends at the rate for as long as asked, and until it is told to end, receiving all the while and a
/// little after. `receive` gives `None` when nothing can come any more. Returns how many were sent.
async fn pump(
    args: &FlowArgs,
    told: impl Future<Output = ()>,
    mut send: impl AsyncFnMut(u64),
    mut receive: impl AsyncFnMut() -> Option<Option<u64>>,
    tally: &mut Tally,
) -> u64 {
    let least = u64::from(args.rate) * u64::from(args.seconds);
    let (sent, is_told, is_over) = (Cell::new(0), Cell::new(false), Cell::new(false));
    let window = Window::of(args.under_way);
    let sending = async {
        let mut clock = tokio::time::interval(Duration::from_secs(1) / args.rate);
        if args.under_way.is_some() {
            clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        while sent.get() < least || !is_told.get() {
            clock.tick().await;
            window.wait(sent.get()).await;
            send(sent.get()).await;
            sent.set(sent.get() + 1);
        }
        is_over.set(true);
        tokio::time::sleep(args.linger).await;
    };
    let listening = async {
        told.await;
        is_told.set(true);
        std::future::pending::<()>().await;
    };
    let receiving = async {
        while !(is_over.get() && tally.received >= sent.get())
            && let Some(number) = receive().await
        {
            if let Some(number) = number.filter(|number| *number <= sent.get()) {
                tally.arrived(number, Instant::now());
                window.answered(tally.received);
            }
        }
    };
    tokio::select! {
        () = sending => {}
        () = receiving => {}
        () = listening => {}
    }
    // What breaks a connection has lost what would have been sent, or the next at least.
    if is_over.get() { sent.get() } else { least.max(sent.get() + 1) }
}

/// How far sending may be ahead of answers.
struct Window {
    most: u64,
    answered: Cell<u64>,
    given_up: Cell<u64>,
    news: Notify,
}

impl Window {
    /// Of so many packets, or without an end.
    fn of(most: Option<u64>) -> Self {
        let most = most.unwrap_or(u64::MAX);
        Window { most, answered: Cell::new(0), given_up: Cell::new(0), news: Notify::new() }
    }

    fn answered(&self, in_all: u64) {
        self.answered.set(in_all);
        self.news.notify_one();
    }

    fn under_way(&self, sent: u64) -> u64 {
        sent.saturating_sub(self.answered.get() + self.given_up.get())
    }

    /// Until there is room for one more after so many; what is late makes room.
    async fn wait(&self, sent: u64) {
        while self.under_way(sent) >= self.most {
            if tokio::time::timeout(LATE, self.news.notified()).await.is_err() {
                self.given_up.set(sent.saturating_sub(self.answered.get()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::serve_for_test;

    fn tally_of(numbers: &[u64], sent: u64) -> Tally {
        let now = Instant::now();
        let mut tally = Tally::default();
        numbers.iter().for_each(|number| tally.arrived(*number, now));
        tally.finished(sent)
    }

    #[test]
    fn what_never_arrives_is_lost_and_what_arrives_twice_is_doubled() {
        let tally = tally_of(&[0, 1, 1, 4], 5);
        assert_eq!((tally.received, tally.lost, tally.duplicated, tally.reordered), (3, 2, 1, 0));
    }

    #[test]
    fn a_number_behind_a_higher_one_is_out_of_order() {
        let tally = tally_of(&[0, 2, 1, 3], 4);
        assert_eq!((tally.received, tally.lost, tally.reordered), (4, 0, 1));
    }

    #[test]
    fn the_longest_silence_between_two_arrivals_is_remembered() {
        let start = Instant::now();
        let mut tally = Tally::default();
        for (number, at) in [(0, 0), (1, 10), (2, 250), (3, 260)] {
            tally.arrived(number, start + Duration::from_millis(at));
        }
        assert_eq!(tally.finished(4).longest_gap_ms, 240);
    }

    #[tokio::test]
    async fn no_more_is_under_way_than_was_said_and_what_is_lost_holds_nothing_up() {
        let window = Window::of(Some(64));
        window.wait(63).await;
        let (waits, answers) = (window.wait(64), async { window.answered(1) });
        tokio::join!(waits, answers);
        assert_eq!(window.given_up.get(), 0, "the answer made room");
        window.wait(65).await;
        assert_eq!(window.given_up.get(), 64, "none came, and all were given up");
        window.wait(128).await;
    }

    #[tokio::test]
    async fn where_nothing_was_said_silence_holds_nothing_up() {
        Window::of(None).wait(1_000_000).await;
    }

    fn short_flow(port: u16) -> FlowArgs {
        let server = Some(format!("127.0.0.1:{port}"));
        let linger = Duration::from_secs(5);
        FlowArgs {
            udp: server.clone(),
            tcp: server,
            rate: 500,
            seconds: 1,
            until_eof: false,
            linger,
            under_way: None,
        }
    }

    #[tokio::test]
    async fn a_whole_path_loses_nothing() {
        let args = short_flow(serve_for_test().await);
        let server = args.udp.clone().unwrap();
        let over_udp = udp(Target::new(Protocol::Udp, &server).unwrap(), &args).await.unwrap();
        let over_tcp = tcp(Target::new(Protocol::Tcp, &server).unwrap(), &args).await.unwrap();
        for tally in [over_udp, over_tcp] {
            assert_eq!((tally.sent, tally.lost, tally.duplicated), (500, 0, 0));
        }
    }

    #[tokio::test]
    async fn a_flow_goes_on_after_its_time_until_it_is_told_to_end() {
        let args = FlowArgs { rate: 5000, seconds: 0, linger: Duration::ZERO, ..short_flow(1) };
        let (told, sent) = (Notify::new(), Cell::new(0));
        let send = async |number| {
            sent.set(number + 1);
            if number == 99 {
                told.notify_one();
            }
        };
        let receive = async || std::future::pending().await;
        let count = pump(&args, told.notified(), send, receive, &mut Tally::default()).await;
        assert_eq!(count, sent.get());
        assert!(count >= 100, "it ended after {count}");
    }

    #[tokio::test]
    async fn what_could_not_be_sent_any_more_is_lost() {
        let receive = async || None;
        for (seconds, lost) in [(0, 1), (2, 1000)] {
            let args = FlowArgs { seconds, ..short_flow(1) };
            let told = std::future::pending();
            let mut tally = Tally::default();
            let count = pump(&args, told, async |_| {}, receive, &mut tally).await;
            assert!(count >= lost, "{count}");
        }
    }

    #[tokio::test]
    async fn a_silent_server_is_counted_as_loss() {
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = silent.local_addr().unwrap().port();
        let args = FlowArgs { linger: Duration::ZERO, ..short_flow(port) };
        let server = args.udp.clone().unwrap();
        let tally = udp(Target::new(Protocol::Udp, &server).unwrap(), &args).await.unwrap();
        assert_eq!((tally.received, tally.lost), (0, 500));
    }
}
