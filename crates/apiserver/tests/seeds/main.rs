//! The manifests of the designs that Atoll grew from, applied with kubectl as they are.
//! They are kept with the converter; here stands what the API makes of them.

#![allow(clippy::unwrap_used, reason = "a case that meets the unexpected is to stop")]

mod cluster;

mod applied;
mod networks;
