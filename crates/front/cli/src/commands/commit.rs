//! `diskwright commit`.

use std::path::PathBuf;

use clap::Args;
use diskwright::clones::{CommitOptions, commit};
use diskwright::{Outcome, Result};

use crate::terminal;

const NOTES: &str = "\
Examples:
  diskwright mount --overlay changes.ovl https://example.org/root.img /mnt
  diskwright commit changes.ovl new.img
  diskwright commit changes.ovl new.img --base moved/root.img

The overlay file is not changed, and can be mounted again over its base image.";

/// Create an image from an overlay file and its base image
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct CommitArgs {
    /// Overlay file that mount --overlay wrote
    overlay: PathBuf,

    /// Image to create
    image: PathBuf,

    /// Read the base image from PLACE, if it has moved. It must be the same image
    #[arg(long, value_name = "PLACE")]
    base: Option<PathBuf>,

    /// Replace an existing image
    #[arg(short, long)]
    force: bool,

    /// Write the result as one JSON object to standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &CommitArgs) -> Result<Outcome> {
    let options =
        CommitOptions::new(&args.overlay, &args.image).base(args.base.clone()).force(args.force);
    diskwright::clean_up_on_signals()?;
    let bar = terminal::spinner("committing:");
    let committed = commit(&options, &mut |bytes| bar.inc(bytes));
    bar.finish_and_clear();
    let report = committed?;
    if args.json {
        terminal::json_line(&report)?;
    }
    Ok(Outcome::Done)
}
