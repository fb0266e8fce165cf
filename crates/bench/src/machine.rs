//! The machine that was measured: what a reader must know of it, and nothing that names it.

use std::fmt;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use k8s_openapi::jiff::Timestamp;
use nix::sys::utsname::uname;

/// Where and when a run took place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) kernel: String,
    pub(crate) date: String,
    pub(crate) commit: String,
}

impl Machine {
    /// Looks at this machine.
    pub(crate) fn look() -> Result<Self> {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").context("cannot read the CPU")?;
        Ok(Machine {
            processor: processor(&cpuinfo).unwrap_or("unknown").to_owned(),
            cores: std::thread::available_parallelism()?.get(),
            kernel: uname()?.release().to_string_lossy().into_owned(),
            date: Timestamp::now().strftime("%Y-%m-%d").to_string(),
            commit: commit()?,
        })
    }
}

fn processor(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, name)| name.trim())
}

fn commit() -> Result<String> {
    let head = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Ok(if changed { format!("{head} with changes") } else { head })
}

fn git(arguments: &[&str]) -> Result<String> {
    let output = Command::new("git").args(arguments).output().context("cannot run git")?;
    ensure!(output.status.success(), "git {arguments:?} failed: run this inside the clone");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { processor, cores, kernel, date, commit } = self;
        write!(f, "{processor}, {cores} cores, Linux {kernel}, {date}, commit {commit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_found_by_its_name() {
        let cpuinfo = "processor\t: 0\nmodel name\t: A Processor v3\nmodel name\t: another\n";
        assert_eq!(processor(cpuinfo), Some("A Processor v3"));
        assert_eq!(processor("nothing"), None);
    }
}
