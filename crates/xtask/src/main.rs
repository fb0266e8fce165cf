//! Chores of the house: writing generated files, and checking that they are fresh.

mod chart;
mod crds;
mod image;
mod libraries;
mod oci;
mod promises;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Chores of the house.
#[derive(Parser)]
#[command(name = "xtask")]
struct Xtask {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Write the custom resource definitions to `deploy/crds/`.
    Crds {
        /// Write nothing; fail where a file is not what would be written.
        #[arg(long)]
        check: bool,
    },
    /// Write the chart in `deploy/chart/` from the manifests of `deploy/`.
    Chart {
        /// Write nothing; fail where a file is not what would be written.
        #[arg(long)]
        check: bool,
    },
    /// Check that every test named in SPECIFICATION.md exists.
    Promises,
    /// Build static programs and write them as OCI archives to `target/images/`.
    Image {
        /// The build profile: `release` for clusters, `quick` for tests.
        #[arg(long, default_value = "release")]
        profile: String,
        /// Take the programs as tests build them, with the libraries of this machine beside them:
        /// there is nothing more to build, and they run on nodes of this machine only.
        #[arg(long, conflicts_with = "profile")]
        as_tested: bool,
        /// Take the programs of this folder, where cargo has built them, in the same way; the images
        /// are written to `images` in it.
        #[arg(long, value_name = "FOLDER", conflicts_with_all = ["profile", "as_tested"])]
        from: Option<PathBuf>,
    },
    /// Write an image for tests to `target/images/`: tools of this machine, and the program as tests
    /// build it.
    Tools,
}

fn main() -> Result<()> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    match Xtask::parse().chore {
        Chore::Crds { check: false } => crds::write(&root),
        Chore::Crds { check: true } => crds::check(&root),
        Chore::Chart { check: false } => chart::write(&root),
        Chore::Chart { check: true } => chart::check(&root),
        Chore::Promises => promises::check(&root),
        Chore::Image { as_tested: true, .. } => image::write_as_tested(&root),
        Chore::Image { from: Some(built), .. } => image::write_built(&built),
        Chore::Image { profile, .. } => image::write(&root, &profile),
        Chore::Tools => image::write_tools(&root),
    }
}
