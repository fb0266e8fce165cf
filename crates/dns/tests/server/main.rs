//! The resolver as its askers see it, on loopback: the record rules, the views, the limits, and
//! what the hostile get. The address that a question comes from says who asks.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod client;
mod feed;
mod hostile;
mod outside;
mod records;
mod shop;
mod swap;
