//! `diskwright devices`.

use clap::Args;
use diskwright::devices::{self, ListOptions};
use diskwright::{Outcome, Result};

use crate::terminal;

/// Examples and notes of the help.
const NOTES: &str = "\
Examples:
  diskwright devices
  diskwright devices --json | jq -r '.devices[] | select(.format == \"ext4\") | .path'

The first column is IMAGE for other commands, with the option for a partition where the system has no path for it. A device \
that cannot be opened is listed with the reason. Reading disks needs root, or an administrator on Windows.";

/// List the disks and partitions of this host, with formats, labels and mount points
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct DevicesArgs {
    /// Include loop devices, RAM disks, disks without a medium, and disks that macOS derives from others
    #[arg(short, long)]
    all: bool,

    /// Write the result as one JSON object to standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &DevicesArgs) -> Result<Outcome> {
    let found = devices::list(ListOptions::default().all(args.all))?;
    terminal::with_output(|out| match args.json {
        true => devices::write_json(&found, out),
        false => devices::write_table(&found, out),
    })?;
    Ok(Outcome::Done)
}
