//! The shared libraries that a program asks for, and the program without what only debuggers read.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::oci::File;

/// Where a program of this machine is.
pub(crate) fn in_path(program: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|folder| folder.join(program));
    places.find(|place| place.exists()).with_context(|| format!("{program} is not installed"))
}

/// The program without its debugging information.
pub(crate) fn stripped(program: &Path) -> Result<Vec<u8>> {
    let small = program.with_extension("stripped");
    run(Command::new("strip").arg("--strip-debug").arg("-o").arg(&small).arg(program))?;
    let bytes = fs::read(&small).with_context(|| format!("cannot read {}", small.display()))?;
    fs::remove_file(small)?;
    Ok(bytes)
}

/// Every library it asks for, and the loader that finds them, at the paths where they are here.
pub(crate) fn of(program: &Path) -> Result<Vec<File>> {
    let listed = run(Command::new("ldd").arg(program))?;
    let library = |path: &str| {
        let bytes = fs::read(path).with_context(|| format!("cannot read {path}"))?;
        Ok(File::program(path.trim_start_matches('/'), bytes))
    };
    paths(&listed).map(library).collect()
}

/// The paths in what `ldd` says: `libc.so.6 => /lib/libc.so.6 (0x…)`, or only `/lib/ld.so (0x…)`.
fn paths(listed: &str) -> impl Iterator<Item = &str> {
    listed.lines().filter_map(|line| {
        let place = line.split_once("=> ").map_or(line, |(_, place)| place);
        place.trim().split(' ').next().filter(|path| path.starts_with('/'))
    })
}

fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed: {}", said.trim());
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_the_loader_are_found_and_what_has_no_file_is_not() {
        let listed = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x00007f)\n\t/lib64/ld-linux.so.2 (0x00007f)\n";
        assert_eq!(paths(listed).collect::<Vec<_>>(), ["/lib/x/libc.so.6", "/lib64/ld-linux.so.2"]);
    }
}
