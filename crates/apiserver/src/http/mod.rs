//! The API over HTTP: connections, routes, and the translation between requests and verbs.
//!
//! HTTP/1.1 only: kube-rs speaks it, kubectl accepts it, and one connection per watch costs a lab
//! nothing, while HTTP/2 would add flow control to get right for no gain on one machine.

mod accept;
mod answer;
mod body;
mod connection;
mod discovery;
mod handle;
mod openapi;
mod protobuf;
mod query;
mod route;

pub(crate) use connection::serve;
