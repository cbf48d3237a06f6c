//! `diskwright deleted`.

use std::ops::ControlFlow;
use std::path::PathBuf;

use clap::Args;
use diskwright::deleted::{self, Found, Options};
use diskwright::{Outcome, Result};

use crate::commands::arguments::ImageArgs;
use crate::terminal::{self, RepairProgress};

const NOTES: &str = "\
Examples:
  diskwright deleted root.img
  diskwright deleted root.img --json | jq '.deleted[] | select(.certainty == \"intact\")'
  diskwright deleted root.img --extract recovered/

Certainty:
  intact              size and all blocks are known, and all blocks are free
  probable            all known blocks are free; the size is unknown
  incomplete          a part of the block map is lost
  partly overwritten  other files have some of the blocks, or had them later
  overwritten         other files have all of the blocks, or had them later
  metadata only       nothing describes the contents
  name only           only the name is known

A free block may have been used by another file and freed again, so contents are never certain. Nothing is written to the \
image. docs/forensics.md describes what remains of deleted files.

Exit status:
  0  the search is complete
  3  a part of the image could not be searched; messages name it";

/// Metadata cache size in bytes. Small, because nearly all metadata is read once.
const CACHE_BYTES: usize = 64 << 20;

/// List deleted files and names that can still be read, or extract them
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct DeletedArgs {
    #[command(flatten)]
    image: ImageArgs,

    /// Write the contents of deleted files, and a report, into the new or empty directory OUT
    #[arg(long, value_name = "OUT")]
    extract: Option<PathBuf>,

    /// Search all free blocks, too, for directories and, in XFS, for inodes. Reads the whole free space
    #[arg(long)]
    free_blocks: bool,

    /// Write the result as one JSON object to standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &DeletedArgs) -> Result<Outcome> {
    let found = search(&args.image, args.free_blocks)?;
    match &args.extract {
        None => terminal::with_output(|out| match args.json {
            true => deleted::write_json(&found, out),
            false => deleted::write_table(&found, out),
        })?,
        Some(destination) => {
            let extracted = deleted::extract(&found, destination)?;
            extracted.failed.iter().for_each(|failed| terminal::message(failed));
            if args.json {
                terminal::with_output(|out| deleted::write_json(&found, out))?;
            } else {
                let (files, bytes) = (extracted.files, diskwright::text::size(extracted.bytes));
                terminal::message(&format_args!("{files} files, {bytes}"));
            }
            if !extracted.failed.is_empty() {
                return Ok(outcome(&found).max(Outcome::No));
            }
        }
    }
    Ok(outcome(&found))
}

/// Searches an image, and prints messages about what could not be searched.
pub(crate) fn search(image: &ImageArgs, free_blocks: bool) -> Result<Found> {
    let options = image.options()?.cache_bytes(CACHE_BYTES);
    let search = Options { free_blocks };
    let progress = RepairProgress::new("searching");
    let found = deleted::find(&image.image, &options, search, &mut |done, total| {
        progress.show("deleted files", done, total);
        ControlFlow::Continue(())
    });
    drop(progress);
    let found = found?;
    found.damage.iter().chain(&found.remarks).for_each(|remark| terminal::message(remark));
    Ok(found)
}

/// Returns the outcome of a search.
pub(crate) fn outcome(found: &Found) -> Outcome {
    if found.remarks.is_empty() { Outcome::Done } else { Outcome::Image }
}
