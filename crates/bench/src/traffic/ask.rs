//! The asking ends. Each gives one number, microseconds, Gbit/s, or thousands of packets a second,
//! and how many units it was measured by.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use socket2::SockRef;

use super::{
    Answer, BLOCK, BLOCK_PORT, COUNT_PORT, CROWD_PORT, ECHO_PORT, SINK_PORT, SMALLEST_PAYLOAD,
    STREAMS, WINDOW,
};
use crate::sample::Sample;

/// Nothing on these paths takes as long.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a lost packet may hold up a window.
const WINDOW_PATIENCE: Duration = Duration::from_millis(50);
/// What is streamed is counted by as much as one frame may hold.
const UNIT: f64 = 65_536.0;
/// With more windows lost than this, the path is broken.
const MOST_LOST: u32 = 3;

fn open(target: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&target, PATIENCE)
        .with_context(|| format!("cannot connect to {target}"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn there_and_back(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut byte = [7];
    stream.write_all(&byte)?;
    stream.read_exact(&mut byte)
}

/// The middle time of `once`, repeated for `duration`, in microseconds, and how often it was.
fn middle_time(duration: Duration, mut once: impl FnMut() -> Result<()>) -> Result<Answer> {
    let (start, mut times) = (Instant::now(), vec![]);
    while start.elapsed() < duration {
        let before = Instant::now();
        once()?;
        times.push(before.elapsed().as_secs_f64() * 1e6);
    }
    let units = times.len() as f64;
    Ok(Answer { value: Sample::new(times).median(), units, turns: 0.0 })
}

/// One byte there and back over an open connection.
pub(super) fn round_trip(target: IpAddr, duration: Duration) -> Result<Answer> {
    let mut stream = open((target, ECHO_PORT).into())?;
    middle_time(duration, || Ok(there_and_back(&mut stream)?))
}

/// A connection for each byte, closed by a reset so that none of them waits afterwards.
pub(super) fn connect(target: IpAddr, duration: Duration) -> Result<Answer> {
    middle_time(duration, || {
        let mut stream = open((target, ECHO_PORT).into())?;
        SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
        Ok(there_and_back(&mut stream)?)
    })
}

/// Blocks, each confirmed by a byte; the rate is that of the middle block.
pub(super) fn blocks(target: IpAddr, duration: Duration) -> Result<Answer> {
    let mut stream = open((target, BLOCK_PORT).into())?;
    let block = vec![0; BLOCK];
    let Answer { value: microseconds, units: blocks, .. } = middle_time(duration, || {
        stream.write_all(&block)?;
        Ok(stream.read_exact(&mut [0])?)
    })?;
    let value = gigabits(BLOCK as f64, Duration::from_secs_f64(microseconds / 1e6));
    Ok(Answer { value, units: blocks * BLOCK as f64 / UNIT, turns: 0.0 })
}

fn gigabits(bytes: f64, time: Duration) -> f64 {
    bytes * 8.0 / time.as_secs_f64() / 1e9
}

/// One stream; the time ends when the other end says how much it has.
pub(super) fn stream(target: IpAddr, duration: Duration) -> Result<Answer> {
    let stream = open((target, SINK_PORT).into())?;
    let start = Instant::now();
    let received = pour(stream, start, duration)? as f64;
    Ok(Answer { value: gigabits(received, start.elapsed()), units: received / UNIT, turns: 0.0 })
}

/// Many streams at once, all of them open before the first byte; the time ends with the last.
pub(super) fn streams(target: IpAddr, duration: Duration) -> Result<Answer> {
    let opened = (0..STREAMS).map(|_| open((target, CROWD_PORT).into()));
    let opened = opened.collect::<Result<Vec<_>>>()?;
    let start = Instant::now();
    let received = thread::scope(|scope| -> Result<u64> {
        let pouring = |stream| scope.spawn(move || pour(stream, start, duration));
        let pouring: Vec<_> = opened.into_iter().map(pouring).collect();
        pouring.into_iter().map(|one| one.join().expect("a stream")).sum()
    })? as f64;
    Ok(Answer { value: gigabits(received, start.elapsed()), units: received / UNIT, turns: 0.0 })
}

/// Sends until the time is over; gives how much the other end says that it has.
fn pour(mut stream: TcpStream, start: Instant, duration: Duration) -> Result<u64> {
    let block = vec![0; 128 << 10];
    while start.elapsed() < duration {
        stream.write_all(&block)?;
    }
    stream.shutdown(Shutdown::Write)?;
    let mut received = [0; 8];
    stream.read_exact(&mut received)?;
    Ok(u64::from_be_bytes(received))
}

/// Windows of small packets, each answered by one packet once the other end has it whole; the rate
/// is that of the middle window.
pub(super) fn packets(target: IpAddr, duration: Duration) -> Result<Answer> {
    let socket = UdpSocket::bind(("0.0.0.0", 0))?;
    socket.connect((target, COUNT_PORT))?;
    socket.set_read_timeout(Some(WINDOW_PATIENCE))?;
    let mut lost = 0;
    let Answer { value: microseconds, units: windows, .. } = middle_time(duration, || {
        lost += u32::from(!window(&socket)?);
        Ok(())
    })?;
    ensure!(lost < MOST_LOST, "{lost} windows of packets to {target} were not answered");
    let window = f64::from(WINDOW);
    Ok(Answer { value: window / microseconds * 1e3, units: windows * window, turns: 0.0 })
}

/// Whether the window was answered; it is not when packets were lost.
fn window(socket: &UdpSocket) -> Result<bool> {
    for _ in 0..WINDOW {
        socket.send(&[0; SMALLEST_PAYLOAD])?;
    }
    match socket.recv(&mut [0; SMALLEST_PAYLOAD]) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error.into()),
    }
}
