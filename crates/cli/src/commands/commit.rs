//! `diskwright commit`.

use std::path::PathBuf;

use clap::Args;
use diskwright::anywhere::{CommitOptions, commit};
use diskwright::{Outcome, Result};

use crate::terminal;

const NOTES: &str = "\
Examples:
  diskwright mount --overlay changes.ovl https://example.org/root.img /mnt
  diskwright commit changes.ovl new.img
  diskwright commit changes.ovl new.img --base moved/root.img

The overlay stays as it is, and can be mounted again over what it was made for.";

/// Make an image of an overlay and of the place it was made for
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct CommitArgs {
    /// File that mount --overlay wrote
    overlay: PathBuf,

    /// The new image
    image: PathBuf,

    /// Where the unchanged image is now, if it is somewhere else; it must be the same one
    #[arg(long, value_name = "PLACE")]
    base: Option<PathBuf>,

    /// Replace IMAGE if it is there
    #[arg(short, long)]
    force: bool,

    /// Report what was made as one JSON object on standard output
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
