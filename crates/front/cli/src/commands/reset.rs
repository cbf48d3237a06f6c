//! `diskwright reset`.

use std::path::PathBuf;

use clap::Args;
use diskwright::clones::ResetTarget;
use diskwright::{Outcome, Result};

const NOTES: &str = "\
Examples:
  diskwright reset web1                          to the last snapshot, or to the base
  diskwright reset web1 --to web1-configured
  diskwright reset web1 --to-base

Changes since then are lost. Snapshots remain.";

/// Discard the changes of a clone
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct ResetArgs {
    /// Clone, which must not be in use
    clone: PathBuf,

    /// Go back to this snapshot of the clone
    #[arg(long, value_name = "SNAPSHOT", conflicts_with = "to_base")]
    to: Option<PathBuf>,

    /// Go back to the image that was cloned
    #[arg(long)]
    to_base: bool,
}

pub(crate) fn run(args: &ResetArgs) -> Result<Outcome> {
    diskwright::clean_up_on_signals()?;
    let target = match &args.to {
        Some(snapshot) => ResetTarget::Snapshot(snapshot.clone()),
        None if args.to_base => ResetTarget::Base,
        None => ResetTarget::Last,
    };
    diskwright::clones::reset(&args.clone, &target)?;
    Ok(Outcome::Done)
}
