//! Compiles the kernel programs with clang. The rule: what is missing is said in one sentence with
//! the command that installs it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const PROGRAMS: [&str; 8] = [
    "from_pod",
    "from_overlay",
    "from_node",
    "from_uplink",
    "wire",
    "plain",
    "plain_node",
    "plain_outside",
];
/// What the tests of the programs wrap around a packet.
const ENVELOPE: &str = "tests/kernel/verdicts/envelope.bpf.c";
const INSTALL: &str = "install the compiler and headers with `apt-get install clang libbpf-dev`, \
                       or name another clang in BPF_CLANG";

fn main() -> ExitCode {
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-changed={ENVELOPE}");
    println!("cargo:rerun-if-env-changed=BPF_CLANG");
    let own = PROGRAMS.map(|name| (name, format!("bpf/{name}.bpf.c")));
    let mut all = own.into_iter().chain([("envelope", ENVELOPE.to_owned())]);
    match all.try_for_each(|(name, source)| compile(name, Path::new(&source))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("{sentence}");
            ExitCode::FAILURE
        }
    }
}

fn compile(name: &str, source: &Path) -> Result<(), String> {
    let clang = env::var("BPF_CLANG").unwrap_or_else(|_| "clang".into());
    let object = Path::new(&variable("OUT_DIR")?).join(format!("{name}.o"));
    let status = Command::new(&clang)
        .args(flags()?)
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(&object)
        .status()
        .map_err(|error| format!("cannot run {clang} ({error}): {INSTALL}"))?;
    if status.success() {
        return Ok(());
    }
    Err(format!(
        "{clang} could not compile {} (its messages are above). If a header is missing, {INSTALL}",
        source.display()
    ))
}

fn flags() -> Result<Vec<String>, String> {
    let endian = if variable("CARGO_CFG_TARGET_ENDIAN")? == "big" { "bpfeb" } else { "bpfel" };
    let here = variable("CARGO_MANIFEST_DIR")?;
    let mut flags: Vec<String> =
        ["-O2", "-g", "-mcpu=v3", "-Wall", "-Wextra", "-Werror"].map(String::from).to_vec();
    flags.push(format!("--target={endian}"));
    flags.push(format!("-ffile-prefix-map={here}=."));
    flags.extend(architecture_headers()?.map(|dir| format!("-I{}", dir.display())));
    Ok(flags)
}

/// Debian keeps `asm/types.h` in a directory of the architecture, which clang does not search when
/// it compiles for BPF.
fn architecture_headers() -> Result<Option<PathBuf>, String> {
    let architecture = variable("CARGO_CFG_TARGET_ARCH")?;
    let dir = PathBuf::from(format!("/usr/include/{architecture}-linux-gnu"));
    Ok(dir.is_dir().then_some(dir))
}

fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|_| format!("{name} is not set: build this crate with cargo"))
}
