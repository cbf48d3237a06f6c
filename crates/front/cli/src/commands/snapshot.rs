//! `diskwright snapshot`.

use std::path::PathBuf;

use clap::Args;
use diskwright::{Outcome, Result};

const NOTES: &str = "\
Examples:
  diskwright snapshot web1 web1-configured
  diskwright reset web1
  diskwright clone web1-configured web4

The changes of the clone move into the snapshot, which becomes its base. A snapshot is a read-only image for all
commands. It must stay as long as the clone exists.";

/// Keep the state of a clone under a new name
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct SnapshotArgs {
    /// Clone, which must not be in use
    clone: PathBuf,

    /// Snapshot to create, on the same file system of the host
    snapshot: PathBuf,
}

pub(crate) fn run(args: &SnapshotArgs) -> Result<Outcome> {
    diskwright::clean_up_on_signals()?;
    diskwright::clones::snapshot(&args.clone, &args.snapshot)?;
    Ok(Outcome::Done)
}
