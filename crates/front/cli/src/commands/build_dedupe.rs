//! `--dedupe` of `diskwright build`.

use clap::{Args, ValueEnum};
use diskwright::build::Dedupe;

/// Block sharing in XFS images.
#[derive(Debug, Args)]
pub(crate) struct BuildDedupeArgs {
    /// Share blocks between equal files (files), or also between all equal blocks (blocks) [default WHAT: files]
    #[arg(
        long,
        value_name = "WHAT",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "files",
        help_heading = "XFS options"
    )]
    dedupe: Option<DedupeLevel>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DedupeLevel {
    Files,
    Blocks,
}

impl BuildDedupeArgs {
    /// Returns the selected deduplication.
    pub(crate) fn chosen(&self) -> Option<Dedupe> {
        self.dedupe.map(|what| match what {
            DedupeLevel::Files => Dedupe::Files,
            DedupeLevel::Blocks => Dedupe::Blocks,
        })
    }
}
