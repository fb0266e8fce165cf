//! The container images: one static program in an otherwise empty file system, in an archive that
//! any container runtime imports without a registry.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::libraries;
use crate::oci::{Archive, File, Image};

/// Where images are written to, unless told otherwise.
const FOLDER: &str = "target/images";

/// The packages and programs that are in images.
const OF_IMAGES: [&str; 4] =
    ["--package=atoll-cli", "--package=atoll-pause", "--bin=atoll", "--bin=pause"];

/// Builds static programs and writes an archive for each image; prints their paths.
pub(crate) fn write(root: &Path, profile: &str) -> Result<()> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let linked_whole = format!("target.{target}.rustflags=[\"-Ctarget-feature=+crt-static\"]");
    let how = ["--profile", profile, "--target", &target, "--config", &linked_whole];
    build(root, &[&["build"], &OF_IMAGES[..], &how[..]].concat())?;
    let built = root.join("target").join(&target).join(profile);
    let program = |name: &str| static_program(&built.join(name));
    write_images(root, [atoll(program("atoll")?), pause(program("pause")?)])
}

/// The same with the programs that the tests `shim` and `pause` run, and the libraries that these ask
/// for. After `cargo test --workspace` there is nothing to build.
pub(crate) fn write_as_tested(root: &Path) -> Result<()> {
    build(root, &["test", "--workspace", "--no-run", "--test=shim", "--test=pause"])?;
    let built = |name: &str| root.join("target/debug").join(name);
    let image = |name: &str, image: fn(Vec<u8>) -> Image| {
        let mut image = image(libraries::stripped(&built(name))?);
        image.files.extend(libraries::of(&built(name))?);
        Ok::<_, anyhow::Error>(image)
    };
    write_images(root, [image("atoll", atoll)?, image("pause", pause)?])
}

fn write_images(root: &Path, images: [Image; 2]) -> Result<()> {
    let folder = root.join(FOLDER);
    fs::create_dir_all(&folder)?;
    for (name, image) in ["atoll", "pause"].into_iter().zip(images) {
        let path = folder.join(format!("{name}.tar"));
        write_archive(&path, &image)?;
        println!("{}", path.canonicalize()?.display());
    }
    Ok(())
}

/// Everything that Atoll runs in a cluster. The container runtime finds the plugin by its name.
fn atoll(program: Vec<u8>) -> Image {
    Image {
        name: format!("atoll.dev/atoll:{}", env!("CARGO_PKG_VERSION")),
        entrypoint: vec!["/usr/local/bin/atoll".into()],
        files: vec![
            File::program("usr/local/bin/atoll", program),
            File::link("usr/local/bin/atoll-cni", "atoll"),
        ],
    }
}

/// The process that holds a pod's namespaces.
fn pause(program: Vec<u8>) -> Image {
    Image {
        name: "atoll.dev/pause:1".into(),
        entrypoint: vec!["/pause".into()],
        files: vec![File::program("pause", program)],
    }
}

fn build(root: &Path, how: &[&str]) -> Result<()> {
    let status = Command::new(env!("CARGO"))
        .current_dir(root)
        .args(how)
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "the programs could not be built");
    Ok(())
}

/// Reads a program, and refuses one that would look for libraries in the empty file system.
fn static_program(path: &PathBuf) -> Result<Vec<u8>> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    ensure!(!asks_for_libraries(&bytes), "{} is not linked statically", path.display());
    Ok(bytes)
}

/// Whether an ELF file (64 bits, little-endian) names the loader that finds its libraries. What
/// cannot be read as one is taken to do so.
fn asks_for_libraries(elf: &[u8]) -> bool {
    const INTERPRETER: u64 = 3;
    let number = |at: usize, size: usize| -> Option<u64> {
        let bytes = elf.get(at..at + size)?;
        Some(bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    };
    let kinds = || -> Option<Vec<u64>> {
        let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        (0..count).map(|index| number(usize::try_from(table + index * size).ok()?, 4)).collect()
    };
    !elf.starts_with(b"\x7fELF") || kinds().is_none_or(|kinds| kinds.contains(&INTERPRETER))
}

fn write_archive(path: &Path, image: &Image) -> Result<()> {
    let cannot = || format!("cannot write {}", path.display());
    let file = fs::File::create(path).with_context(cannot)?;
    Archive::new(file).write(image).with_context(cannot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_needs_libraries_is_told_from_one_that_does_not() {
        let dynamic = fs::read("/bin/sh").unwrap();
        assert!(asks_for_libraries(&dynamic));
        let mut without = dynamic;
        without[56..58].fill(0);
        assert!(!asks_for_libraries(&without));
    }

    #[test]
    fn what_is_no_program_is_refused() {
        assert!(asks_for_libraries(b""));
        assert!(asks_for_libraries(b"#!/bin/sh"));
        assert!(asks_for_libraries(b"\x7fELF"));
    }
}
