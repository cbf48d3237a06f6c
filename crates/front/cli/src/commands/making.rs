//! Options of the commands that create an image from a source: `build` and `convert`.

use clap::Args;
use diskwright::build::{Dedupe, FeatureChange};
use diskwright::output::OutputOptions;
use diskwright::{Error, Result};

use super::build_dedupe::BuildDedupeArgs;
use super::build_output::OutputArgs;

/// Help heading of options for XFS.
pub(super) const XFS: &str = "XFS options";

/// Options of commands that create an image.
#[derive(Debug, Args)]
pub(crate) struct MakingArgs {
    /// Set the label, at most 16 bytes for ext4 and 12 for XFS. Without it, convert keeps the label of IN
    #[arg(long)]
    label: Option<String>,

    /// Enable features (name or +name) or disable them (^name or -name), separated by commas, with the names of ext4(5) or
    /// mkfs.xfs(8). For ext4, "none" as the first item disables all. "quota" makes quota files with the usage
    #[arg(short = 'O', long, value_delimiter = ',', allow_hyphen_values = true)]
    pub(super) features: Vec<FeatureChange>,

    /// Use at most N threads; the image does not depend on N [default: one per processor]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// Replace an existing image
    #[arg(long)]
    pub(super) force: bool,

    /// Write the result as one JSON object to standard output
    #[arg(long)]
    pub(super) json: bool,

    /// Allow images below 300 MiB, the minimum of mkfs.xfs. Such images are slower
    #[arg(long, help_heading = XFS)]
    pub(super) small: bool,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    dedupe: BuildDedupeArgs,
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
