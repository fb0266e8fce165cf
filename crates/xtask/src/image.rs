//! The container images: one static program in an otherwise empty file system, in an archive that
//! any container runtime imports without a registry.

use std::ffi::OsStr;
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

/// What tests run in pods beside `atoll`.
const TOOLS: [&str; 15] = [
    "sh",
    "bash",
    "cat",
    "dig",
    "false",
    "getent",
    "haproxy",
    "hostname",
    "ip",
    "readlink",
    "rm",
    "seq",
    "sleep",
    "traceroute",
    "true",
];
/// The folder of a real Kubernetes, where its kubectl is.
const KUBERNETES: &str = "ATOLL_KUBERNETES";

/// Builds static programs and writes an archive for each image, and the program with which people
/// install; prints their paths.
pub(crate) fn write(root: &Path, profile: &str) -> Result<()> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let linked_whole = format!("target.{target}.rustflags=[\"-Ctarget-feature=+crt-static\"]");
    let how = ["--profile", profile, "--target", &target, "--config", &linked_whole];
    build(root, &[&["build"], &OF_IMAGES[..], &how[..]].concat())?;
    let built = root.join("target").join(&target).join(profile);
    let program = |name: &str| static_program(&built.join(name));
    let images = [("atoll", atoll(program("atoll")?)), ("pause", pause(program("pause")?))];
    write_images(&root.join(FOLDER), &images)?;
    let beside = root.join(FOLDER).join("atoll");
    fs::copy(built.join("atoll"), &beside).context("cannot write the program itself")?;
    println!("{}", beside.canonicalize()?.display());
    Ok(())
}

/// Writes an archive with tools of this machine, with this machine's program as tests build it, and
/// with the kubectl of a real Kubernetes where there is one.
pub(crate) fn write_tools(root: &Path) -> Result<()> {
    build(root, &["test", "--workspace", "--no-run", "--test=shim"])?;
    let program = root.join("target/debug/atoll");
    let mut image = atoll(libraries::stripped(&program)?);
    image.name = "atoll.dev/tools:1".into();
    image.files.extend(libraries::of(&program)?);
    image.files.extend(tools()?);
    if let Some(kubernetes) = std::env::var_os(KUBERNETES) {
        let kubectl = static_program(&Path::new(&kubernetes).join("kubectl"))?;
        image.files.push(File::program("usr/bin/kubectl", kubectl));
    }
    image.files.sort_by(|one, other| one.path.cmp(&other.path));
    image.files.dedup_by(|one, other| one.path == other.path);
    write_images(&root.join(FOLDER), &[("tools", image)])
}

/// The same with the programs that the tests `shim` and `pause` run, and the libraries that these ask
/// for. After `cargo test --workspace` there is nothing to build.
pub(crate) fn write_as_tested(root: &Path) -> Result<()> {
    build(root, &["test", "--workspace", "--no-run", "--test=shim", "--test=pause"])?;
    write_with_libraries(&root.join("target/debug"), &root.join(FOLDER))
}

/// The same with programs that are built already, beside them.
pub(crate) fn write_built(built: &Path) -> Result<()> {
    write_with_libraries(built, &built.join("images"))
}

fn write_with_libraries(built: &Path, folder: &Path) -> Result<()> {
    let image = |name: &str, image: fn(Vec<u8>) -> Image| {
        let program = built.join(name);
        ensure!(program.exists(), "{} is not built", program.display());
        let mut image = image(libraries::stripped(&program)?);
        image.files.extend(libraries::of(&program)?);
        Ok(image)
    };
    write_images(folder, &[("atoll", image("atoll", atoll)?), ("pause", image("pause", pause)?)])
}

fn write_images(folder: &Path, images: &[(&str, Image)]) -> Result<()> {
    fs::create_dir_all(folder)?;
    for (name, image) in images {
        let path = folder.join(format!("{name}.tar"));
        write_archive(&path, image)?;
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

/// What tests need in pods that they look around in, with the libraries that it asks for.
fn tools() -> Result<Vec<File>> {
    let mut files = vec![File::link("bin", "usr/bin"), File::link("usr/sbin", "bin")];
    for tool in TOOLS {
        let found = libraries::in_path(tool)?;
        let bytes = fs::read(&found).with_context(|| format!("cannot read {}", found.display()))?;
        files.push(File::program(&format!("usr/bin/{tool}"), bytes));
        files.extend(libraries::of(&found)?);
    }
    Ok(files)
}

/// Runs cargo as it is run by hand. What the cargo that runs us has told us of ourselves would make it
/// build anew what was built without those words.
fn build(root: &Path, how: &[&str]) -> Result<()> {
    let mut cargo = Command::new(env!("CARGO"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_ourselves(name)) {
        cargo.env_remove(name);
    }
    let status = cargo.current_dir(root).args(how).status().context("cannot run cargo")?;
    ensure!(status.success(), "the programs could not be built");
    Ok(())
}

fn is_of_ourselves(variable: &OsStr) -> bool {
    let name = variable.to_string_lossy();
    ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| name.starts_with(prefix))
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
    fn what_cargo_tells_of_this_program_is_not_passed_on_and_what_people_say_is() {
        assert!(is_of_ourselves(OsStr::new("CARGO_PKG_NAME")));
        assert!(is_of_ourselves(OsStr::new("CARGO_MANIFEST_DIR")));
        assert!(!is_of_ourselves(OsStr::new("CARGO_HOME")));
        assert!(!is_of_ourselves(OsStr::new("CARGO_TARGET_DIR")));
    }

    #[test]
    fn the_tools_of_pods_have_their_libraries_beside_them() {
        let files = tools().unwrap();
        let has = |path: &str| files.iter().any(|file| file.path == path);
        TOOLS.iter().for_each(|tool| assert!(has(&format!("usr/bin/{tool}")), "{tool}"));
        assert!(files.iter().any(|file| file.path.ends_with("/libc.so.6")));
        assert!(!has("usr/bin/cargo"));
    }

    #[test]
    fn a_program_that_is_not_built_is_named_and_no_image_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let said = write_built(folder.path()).unwrap_err().to_string();
        assert!(said.ends_with("atoll is not built"), "{said}");
        assert!(!folder.path().join("images").exists());
    }

    #[test]
    fn what_is_no_program_is_refused() {
        assert!(asks_for_libraries(b""));
        assert!(asks_for_libraries(b"#!/bin/sh"));
        assert!(asks_for_libraries(b"\x7fELF"));
    }
}
