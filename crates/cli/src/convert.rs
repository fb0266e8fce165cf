//! `atoll convert`: manifests written for the designs that Atoll grew from, printed as ours.

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use atoll_convert::{Converted, Settings};
use atoll_types::{Cidr, Label};

/// What to convert, and how to print it.
#[derive(clap::Args)]
#[command(
    long_about = "Prints manifests that were written for Arktos, for Arktos on Mizar or for the \
        multi-tenant networking proposal of Kubernetes as manifests of Atoll. What is decided on \
        the way is told on standard error. What needs no change is printed as it is; what is \
        changed loses its comments.",
    after_help = "Examples:
  atoll convert -f network.yaml
  atoll convert -f network.yaml --tenant acme -o json
  cat *.yaml | atoll convert -f - | kubectl apply -f -"
)]
pub(crate) struct ConvertArgs {
    #[command(flatten)]
    manifests: ManifestArgs,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    output: Written,
}

/// Which manifests, and what they do not say themselves.
#[derive(clap::Args)]
pub(crate) struct ManifestArgs {
    /// A file with manifests in YAML or JSON; - for standard input. May be given several times.
    #[arg(short = 'f', long = "filename", value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The tenant of manifests that name none; by default that of their namespace, else `default`.
    #[arg(long)]
    tenant: Option<Label>,
    /// The range of vpc networks that name none.
    #[arg(long, value_name = "CIDR", default_value = "10.0.0.0/16")]
    default_cidr: Cidr,
}

/// How manifests are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Written {
    /// YAML.
    #[default]
    Yaml,
    /// JSON.
    Json,
}

pub(crate) fn run(args: &ConvertArgs) -> Result<ExitCode> {
    let converted = args.manifests.convert(&args.manifests.settings())?;
    match args.output {
        Written::Yaml => print!("{}", converted.yaml()),
        Written::Json => print!("{}", converted.json()),
    }
    Ok(ExitCode::SUCCESS)
}

impl ManifestArgs {
    /// What the command line says beside the manifests.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            tenant: self.tenant.clone(),
            default_cidr: self.default_cidr,
            ..Settings::default()
        }
    }

    /// Converts every file, and tells what was decided.
    pub(crate) fn convert(&self, settings: &Settings) -> Result<Converted> {
        let mut all = Converted { documents: Vec::new(), notes: Vec::new() };
        for file in &self.files {
            let converted = atoll_convert::convert(&read(file)?, settings)
                .with_context(|| format!("cannot convert {}", file.display()))?;
            all.documents.extend(converted.documents);
            all.notes.extend(converted.notes);
        }
        ensure!(!all.documents.is_empty(), "there are no manifests in what -f names");
        all.notes.iter().for_each(|note| eprintln!("note: {note}"));
        Ok(all)
    }
}

fn read(file: &PathBuf) -> Result<String> {
    if file.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}
