//! `diskwright shrink`.

use std::sync::atomic::Ordering;

use clap::Args;
use diskwright::resize::{Least, plan_shrink, shrink};
use diskwright::{Outcome, Result};

use crate::commands::arguments::ImageToEdit;
use crate::commands::grow::tell;
use crate::terminal;

const NOTES: &str = "\
Examples:
  diskwright shrink root.img --size min --dry-run --json
  diskwright shrink root.img --size min
  diskwright shrink disk.img --partition 2 --size 4G

ext4 only. What lies past the new end is moved, in steps of the journal; then the size changes, and last the file is
cut, or the partition's entry made smaller. Killed at any moment, it leaves a sound image, and can be run again.
Without a journal (ext2), a kill leaves an image to be repaired: keep a copy.";

/// Make an image smaller in place
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct ShrinkArgs {
    #[command(flatten)]
    image: ImageToEdit,

    /// Most that the file system may have afterwards (K, M, G and T may follow), or "min" for as little as can be
    #[arg(long, value_name = "BYTES", value_parser = parse_least)]
    size: Least,

    /// Only say what it would come to
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// Report what was done as one JSON object on standard output
    #[arg(long)]
    json: bool,
}

fn parse_least(text: &str) -> Result<Least, String> {
    if text == "min" {
        return Ok(Least::Possible);
    }
    diskwright::text::parse_size(text).map(Least::Bytes)
}

pub(crate) fn run(args: &ShrinkArgs) -> Result<Outcome> {
    let options = args.image.place.options(false);
    if args.dry_run {
        let report = plan_shrink(&args.image.image, &options, args.size)?;
        tell(&report, args.json, "would be shrunk")?;
        return Ok(Outcome::Done);
    }
    let stop = diskwright::stop_on_signals()?;
    let bar = terminal::RepairProgress::new("shrinking");
    let mut progress = |done, total| {
        bar.show("inodes", done, total);
        !stop.load(Ordering::Relaxed)
    };
    match shrink(&args.image.image, &options, args.size, &mut progress) {
        Ok(report) => tell(&report, args.json, "shrunk").map(|()| Outcome::Done),
        Err(_) if stop.load(Ordering::Relaxed) => {
            terminal::message(&"ended before its time: the image is sound and has its old size");
            Ok(Outcome::Interrupted)
        }
        Err(error) => Err(error),
    }
}
