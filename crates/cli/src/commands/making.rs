//! Options of the commands that create an image from a source: `build` and `convert`.

use clap::Args;
use diskwright::build::{Dedupe, FeatureChange};
use diskwright::output::OutputOptions;
use diskwright::{Error, Result};

use super::build_output::OutputArgs;
use super::dedupe::DedupeArgs;

/// Help heading of options for XFS.
pub(super) const XFS: &str = "Options of XFS";

/// What can be said of every image that is made.
#[derive(Debug, Args)]
pub(crate) struct MakingArgs {
    /// Label (ext4: at most 16 bytes, XFS: 12); convert keeps that of IN
    #[arg(long)]
    label: Option<String>,

    /// Features to turn on (+name or name) and off (-name or ^name), with commas, named as in ext4(5)
    /// or mkfs.xfs(8); for ext4, "none" first starts from nothing
    #[arg(short = 'O', long, value_delimiter = ',', allow_hyphen_values = true)]
    pub(super) features: Vec<FeatureChange>,

    /// Threads; the image does not depend on it [default: one per processor]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// Overwrite an existing image
    #[arg(long)]
    pub(super) force: bool,

    /// Report what was made as one JSON object on standard output
    #[arg(long)]
    pub(super) json: bool,

    /// Allow less than 300 MiB, the least that mkfs.xfs makes: such images are slower in use
    #[arg(long, help_heading = XFS)]
    pub(super) small: bool,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    dedupe: DedupeArgs,
}

/// Returns the time for reproducible builds from the environment (reproducible-builds.org).
pub(super) fn source_date_epoch() -> Result<Option<i64>> {
    let Some(value) = std::env::var_os("SOURCE_DATE_EPOCH") else { return Ok(None) };
    let seconds = value.to_str().and_then(|text| text.parse().ok()).filter(|&sec: &i64| sec >= 0);
    let problem = "SOURCE_DATE_EPOCH is not a number of seconds since 1970: correct or unset it";
    seconds.map(Some).ok_or_else(|| Error::Usage(problem.into()))
}

impl MakingArgs {
    /// Returns the label, if given.
    pub(super) fn label(&self) -> Option<Vec<u8>> {
        self.label.clone().map(String::into_bytes)
    }

    /// Returns the number of threads, if given.
    ///
    /// # Errors
    /// If it is 0.
    pub(super) fn threads(&self) -> Result<Option<usize>> {
        match self.threads {
            Some(0) => Err(Error::Usage("--threads must be at least 1".into())),
            threads => Ok(threads),
        }
    }

    /// Returns the selected deduplication.
    pub(super) fn dedupe(&self) -> Option<Dedupe> {
        self.dedupe.chosen()
    }

    /// Returns the output options.
    ///
    /// # Errors
    /// If the options are invalid.
    pub(super) fn output(&self) -> Result<OutputOptions> {
        self.output.options()
    }
}
