//! The answering end of all kinds: one process, a thread for each kind, one caller at a time; only a
//! crowd has a thread for each of its streams.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread;

use anyhow::{Context, Result};

use super::{
    BLOCK, BLOCK_PORT, COUNT_PORT, CROWD_PORT, ECHO_PORT, SINK_PORT, SMALLEST_PAYLOAD, WINDOW,
};
use crate::pinned;

/// Answers until standard input ends, which it does with the process that started this one.
pub(crate) fn answer() -> Result<()> {
    pinned::stay_on(pinned::shared_cpu())?;
    serve(ECHO_PORT, echo)?;
    serve(SINK_PORT, sink)?;
    serve(BLOCK_PORT, confirm)?;
    serve(CROWD_PORT, sink_apart)?;
    count()?;
    println!("ready");
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}

/// Serves callers one after the other, without a thread for each that would cost time.
fn serve(port: u16, converse: fn(TcpStream) -> std::io::Result<()>) -> Result<()> {
    let listener = TcpListener::bind(("0.0.0.0", port))
        .with_context(|| format!("cannot listen on port {port}"))?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A caller that has gone is no concern of the next.
            let _ = converse(stream);
        }
    });
    Ok(())
}

/// Answers every byte with itself.
fn echo(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut byte = [0];
    loop {
        stream.read_exact(&mut byte)?;
        stream.write_all(&byte)?;
    }
}

/// Takes everything, then says how much it was.
fn sink(mut stream: TcpStream) -> std::io::Result<()> {
    let mut block = vec![0; 128 << 10];
    let mut received: u64 = 0;
    loop {
        match stream.read(&mut block)? {
            0 => return stream.write_all(&received.to_be_bytes()),
            some => received += some as u64,
        }
    }
}

/// The same, while others are served.
fn sink_apart(stream: TcpStream) -> std::io::Result<()> {
    thread::Builder::new().spawn(move || sink(stream)).map(drop)
}

/// Confirms every block with a byte.
fn confirm(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut block = vec![0; BLOCK];
    loop {
        stream.read_exact(&mut block)?;
        stream.write_all(&[0])?;
    }
}

/// Answers every window of packets with one packet.
fn count() -> Result<()> {
    let socket = UdpSocket::bind(("0.0.0.0", COUNT_PORT)).context("cannot count packets")?;
    thread::spawn(move || {
        let (mut packet, mut received) = ([0; SMALLEST_PAYLOAD], 0);
        while let Ok((_, from)) = socket.recv_from(&mut packet) {
            received += 1;
            if received % WINDOW == 0 {
                // The asker gives up on a window whose answer cannot be sent.
                let _ = socket.send_to(&[0], from);
            }
        }
    });
    Ok(())
}
