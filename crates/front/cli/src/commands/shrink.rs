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

Only for ext2, ext3 and ext4. Blocks and inodes past the new end are moved first, in journal transactions. Then the size \
changes, and finally the file is truncated or the partition entry reduced. After a crash, the image is consistent, and \
the command can be run again. Without a journal (ext2), a crash leaves an image that needs repair: keep a copy.";

/// Shrink an ext2, ext3 or ext4 image in place
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct ShrinkArgs {
    #[command(flatten)]
    image: ImageToEdit,

    /// Set the maximum new size of the file system, in bytes or with K, M, G or T, or "min" for the smallest possible size
    #[arg(long, value_name = "BYTES", value_parser = parse_least)]
    size: Least,

    /// Show the result without changing anything
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// Write the result as one JSON object to standard output
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
            terminal::message(&"interrupted: the image is consistent and has its old size");
            Ok(Outcome::Interrupted)
        }
        Err(error) => Err(error),
    }
}
