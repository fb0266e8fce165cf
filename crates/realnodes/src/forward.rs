//! The way from the host's loopback to the API: a process that took a listening socket of the host
//! with it into the control plane's namespace, and copies bytes.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::control_plane::API_PORT;
use crate::fabric::{CONTROL, CONTROL_ADDRESS};
use crate::home::{Home, helper_program};
use crate::namespace;

/// Starts the forwarder; it outlives the caller and inherits `listener` as its standard input.
pub(crate) fn start(home: &Home, listener: TcpListener) -> Result<()> {
    let log = home.open_log("forwarder")?;
    let mut command = Command::new(helper_program()?);
    command.args(["forward", "--name", home.name().as_str()]).process_group(0);
    command.stdin(Stdio::from(OwnedFd::from(listener))).stdout(log.try_clone()?).stderr(log);
    namespace::within(&home.namespace(CONTROL), move || Ok(command.spawn()?))
        .context("cannot start the forwarder")?;
    Ok(())
}

/// Forwards every connection of the listener at standard input, for good.
pub fn serve() -> Result<()> {
    let listener = TcpListener::from(io::stdin().as_fd().try_clone_to_owned()?);
    loop {
        let (outside, _) = listener.accept().context("cannot accept a connection")?;
        std::thread::spawn(move || {
            if let Err(error) = forward(&outside) {
                eprintln!("a connection was not forwarded: {error}");
            }
        });
    }
}

fn forward(outside: &TcpStream) -> io::Result<()> {
    let inside = TcpStream::connect((CONTROL_ADDRESS, API_PORT))?;
    std::thread::scope(|scope| {
        scope.spawn(|| copy(outside, &inside));
        copy(&inside, outside);
    });
    Ok(())
}

/// Copies until one side has nothing more to say, and tells the other.
fn copy(mut from: &TcpStream, mut to: &TcpStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

/// A listener on the host's loopback; port 0 takes a free one.
pub(crate) fn listen(port: u16) -> Result<(TcpListener, u16)> {
    let listener = TcpListener::bind(("127.0.0.1", port)).with_context(|| {
        format!("cannot listen on 127.0.0.1:{port}: leave --port out to take a free one")
    })?;
    let port = listener.local_addr()?.port();
    Ok((listener, port))
}
