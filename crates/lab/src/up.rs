//! `atoll lab up`: checks what can be checked, starts the supervisor, and waits until the lab is
//! ready. What fails on the way is taken down again.

use std::fs::File;
use std::io::{BufReader, IsTerminal};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

use crate::Hooks;
use crate::args::UpArgs;
use crate::down;
use crate::home::{Home, Presence};
use crate::process::Process;
use crate::progress::{self, SILENCE};

/// Lines of the supervisor's log that are shown when it ended without a word.
const LAST_LINES: usize = 10;

/// Starts a lab.
pub(crate) async fn run(args: &UpArgs, hooks: &Hooks) -> anyhow::Result<ExitCode> {
    let home = Home::of(&args.lab.name);
    refuse_what_cannot_work(&home, hooks)?;
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut requests_to_end = signal(SignalKind::terminate())?;
    home.create()?;
    let begun = Instant::now();
    let started = tokio::select! {
        started = start(&home, args) => started,
        _ = interrupts.recv() => Err("interrupted".to_owned()),
        _ = requests_to_end.recv() => Err("told to end".to_owned()),
    };
    if let Err(why) = started {
        let log = if why == SILENCE { last_lines(&home.log("supervisor")) } else { String::new() };
        let left = down::take_down(&home);
        let left: String = left.iter().map(|problem| format!("; {problem}")).collect();
        anyhow::bail!("lab {} did not come up: {why}{log}{left}", home.name());
    }
    println!("{}", farewell(&home, begun.elapsed().as_secs_f32()));
    Ok(ExitCode::SUCCESS)
}

fn refuse_what_cannot_work(home: &Home, hooks: &Hooks) -> anyhow::Result<()> {
    crate::require_root("start a lab")?;
    match home.presence() {
        Presence::Absent => {}
        Presence::Abandoned => return Err(home.abandoned()),
        Presence::Up => anyhow::bail!(
            "lab {} is already up: use it with `export KUBECONFIG={}`, or take it down with \
             `atoll lab down{}`",
            home.name(),
            home.kubeconfig().display(),
            home.name_option()
        ),
    }
    (hooks.preflight)()
}

async fn start(home: &Home, args: &UpArgs) -> Result<(), String> {
    println!("Starting lab {} with {} nodes", home.name(), args.nodes);
    let mut supervisor = spawn_supervisor(home, args).map_err(|error| format!("{error:#}"))?;
    let lines = supervisor.stdout.take().ok_or("the supervisor has no voice")?;
    let followed = tokio::task::spawn_blocking(move || {
        let begun = Instant::now();
        progress::follow(BufReader::new(lines), |step| show(step, begun))
    });
    followed.await.map_err(|error| error.to_string())?
}

fn spawn_supervisor(home: &Home, args: &UpArgs) -> anyhow::Result<Child> {
    let log = File::create(home.log("supervisor"))?;
    let template = args.default_network_template_path.as_deref().map(absolute_template);
    let supervisor = Command::new(std::env::current_exe()?)
        .args(["lab", "supervise", "--name", home.name().as_str()])
        .args(["--nodes", &args.nodes.to_string(), "--port", &args.port.to_string()])
        .args(template.transpose()?)
        .arg(args.underlay.word())
        .args(args.agents.words())
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .context("cannot start the supervisor")?;
    let process = Process::with_pid(supervisor.id() as i32).context("the supervisor vanished")?;
    process.write(&home.supervisor_record())?;
    Ok(supervisor)
}

/// The option for the template's file, wherever the supervisor runs.
fn absolute_template(file: &Path) -> anyhow::Result<String> {
    let file = std::path::absolute(file).context("cannot tell where the template is")?;
    Ok(format!("--default-network-template-path={}", file.display()))
}

fn show(step: &str, begun: Instant) {
    let tick = if std::io::stdout().is_terminal() { "\u{1b}[32m✓\u{1b}[0m" } else { "✓" };
    println!("  {tick} {step} ({:.1} s)", begun.elapsed().as_secs_f32());
}

fn farewell(home: &Home, seconds: f32) -> String {
    let option = home.name_option();
    format!(
        "Lab {} is ready after {seconds:.1} s. Use it:\n\n  export KUBECONFIG={}\n  \
         kubectl get nodes\n\n`atoll lab status{option}` shows it, `atoll lab down{option}` takes \
         it down.",
        home.name(),
        home.kubeconfig().display()
    )
}

fn last_lines(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    let shown = &lines[lines.len().saturating_sub(LAST_LINES)..];
    shown.iter().map(|line| format!("\n  {line}")).collect()
}
