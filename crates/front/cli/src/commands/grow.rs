//! `diskwright grow`.

use std::io::Write;

use clap::Args;
use diskwright::resize::{Report, grow, grow_realtime};
use diskwright::{Error, Outcome, Result};

use crate::commands::arguments::ImageToEdit;
use crate::terminal;

const NOTES: &str = "\
Examples:
  diskwright grow root.img --size 8G
  diskwright grow disk.img --partition 2 --size 20G
  truncate -s 8G root.img && diskwright grow root.img
  diskwright grow root.img --rt-device rt.img --rt-size=8G

If the file is too short, it is extended first. A partition is extended too if the space after it is free; the last \
partition of a disk image file extends the file. Without --size, the file system fills its file or partition. After a \
crash, the image has the old or the new size. A mounted image cannot be grown: unmount it first.";

/// Enlarge an image in place
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct GrowArgs {
    #[command(flatten)]
    image: ImageToEdit,

    /// Set the new size of the file system, in bytes or with K, M, G or T [default: the size of the file or partition]
    #[arg(long, value_name = "BYTES", value_parser = diskwright::text::parse_size)]
    size: Option<u64>,

    /// Enlarge the realtime section of an XFS image instead, to BYTES or to the size of its device. An image without a
    /// section gets its first one
    #[arg(
        long, value_name = "BYTES", num_args = 0..=1, require_equals = true, requires = "rt_device",
        conflicts_with = "size", value_parser = diskwright::text::parse_size
    )]
    rt_size: Option<Option<u64>>,

    /// Write the result as one JSON object to standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &GrowArgs) -> Result<Outcome> {
    let options = args.image.place.options(false);
    let report = match args.rt_size {
        Some(bytes) => grow_realtime(&args.image.image, &options, bytes)?,
        None => grow(&args.image.image, &options, args.size)?,
    };
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
