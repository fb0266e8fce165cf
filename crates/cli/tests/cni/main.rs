//! The plugin as a program and a real agent with a real kernel: what container runtimes see.
//! Needs root.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod cnitool;
mod crowd;
mod node;
mod words;
