//! `--dedupe` of `diskwright build`.

use clap::{Args, ValueEnum};
use diskwright::build::Dedupe;

/// What shares blocks.
#[derive(Debug, Args)]
pub(crate) struct DedupeArgs {
    /// Let files with the same contents share blocks, or also blocks with the same contents
    #[arg(
        long,
        value_name = "WHAT",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "files",
        help_heading = "Options of XFS"
    )]
    dedupe: Option<What>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum What {
    Files,
    Blocks,
}

impl DedupeArgs {
    /// Returns the selected deduplication.
    pub(crate) fn chosen(&self) -> Option<Dedupe> {
        self.dedupe.map(|what| match what {
            What::Files => Dedupe::Files,
            What::Blocks => Dedupe::Blocks,
        })
    }
}
