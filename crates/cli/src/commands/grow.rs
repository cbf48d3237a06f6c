//! `diskwright grow`.

use std::io::Write;

use clap::Args;
use diskwright::resize::{Report, grow};
use diskwright::{Error, Outcome, Result};

use crate::commands::arguments::ImageToEdit;
use crate::terminal;

const NOTES: &str = "\
Examples:
  diskwright grow root.img --size 8G
  diskwright grow disk.img --partition 2 --size 20G
  truncate -s 8G root.img && diskwright grow root.img

A file that is too short is made longer first, and so is the entry of a partition, if what follows it is free
(the end of a disk in a file is moved). Without --size, the image becomes as large as its file or partition
is. A crash leaves the old size or the new one. A mounted image cannot be grown: unmount it first.";

/// Make an image larger in place
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct GrowArgs {
    #[command(flatten)]
    image: ImageToEdit,

    /// Size of the file system afterwards (K, M, G and T may follow); as large as there is room without it
    #[arg(long, value_name = "BYTES", value_parser = diskwright::text::parse_size)]
    size: Option<u64>,

    /// Report what was done as one JSON object on standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &GrowArgs) -> Result<Outcome> {
    let report = grow(&args.image.image, &args.image.place.options(false), args.size)?;
    tell(&report, args.json, "grown")?;
    Ok(Outcome::Done)
}

/// Prints the result of a resize.
pub(super) fn tell(report: &Report, is_json: bool, done: &str) -> Result<()> {
    if is_json {
        return terminal::with_output(|out| {
            terminal::write_json(&mut *out, report)
                .map_err(std::io::Error::from)
                .and_then(|()| writeln!(out))
                .map_err(Error::Output)
        });
    }
    let (before, after) = (&report.before, &report.after);
    let size = diskwright::text::size;
    if report.is_nothing() {
        terminal::message(&format_args!(
            "nothing to do: the file system has {} bytes ({})",
            before.bytes,
            size(before.bytes)
        ));
    } else {
        terminal::message(&format_args!(
            "{done} from {} to {}: {} bytes in {} groups, before {} in {}",
            size(before.bytes),
            size(after.bytes),
            after.bytes,
            after.groups,
            before.bytes,
            before.groups
        ));
    }
    if let Some(part) = report.partition.filter(|part| part.before != part.after) {
        let (before, after) = (size(part.before), size(part.after));
        terminal::message(&format_args!("the partition's entry changed from {before} to {after}"));
    }
    Ok(())
}
