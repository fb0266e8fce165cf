//! The contract: what our controller, agent and kubectl rely on in a Kubernetes API, each case
//! named by a sentence. Runs against the embedded API, or against the server of the kubeconfig
//! named by `CONTRACT_KUBECONFIG`.

#![allow(clippy::unwrap_used, reason = "a case that meets the unexpected is to stop")]

mod server;

mod apply;
mod controllers;
mod crud;
mod custom;
mod kubectl;
mod lifecycle;
mod refusals;
mod services;
mod slices;
mod watching;
mod workloads;

pub(crate) use server::Subject;
