//! `diskwright check`: arguments, and the loop over images. [`run`] checks one image, [`output`]
//! writes the results.

mod output;
mod run;

use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use diskwright::check::{Options, error_line};
use diskwright::{Outcome, Result};

use super::session::told;
use crate::commands::arguments::{PlaceArgs, SuperblockArgs};
use crate::terminal;
use output::{Output, Style};

const NOTES: &str = "\
Examples:
  diskwright check root.img
  diskwright check --json *.img | jq -r 'select(.verdict != \"clean\").image'
  diskwright check --jsonl --partition 2 disk.img
  diskwright check /dev/vdb

Everything in an image is looked at and compared with everything else. What the journal or log holds is
replayed in memory first, so that what is checked is what a mount would show; nothing is written.
docs/check.md has all that can be found, and what it means.

Exit status:
  0    clean
  1    damage was found; or not all could be looked at
  2    the arguments make no sense
  3    an image is of no known format, or uses what is not supported
  4    an image is in use or cannot be read; or the device failed to read parts of it
  130  interrupted: what was found until then is reported
With several images, the highest of all.";

/// Look for damage in images
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct CheckArgs {
    /// Image files or block devices
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<PathBuf>,

    /// Write one JSON object per image and line. Of each kind, up to 1000 findings are in it
    #[arg(long, conflicts_with = "jsonl")]
    json: bool,

    /// Write one JSON object per line: each finding as it comes, and a summary after those of an image
    #[arg(long)]
    jsonl: bool,

    /// Most threads; what is found does not depend on them [default: one per processor, at most 8]
    #[arg(long, value_name = "N")]
    threads: Option<NonZero<usize>>,

    #[command(flatten)]
    place: PlaceArgs,

    #[command(flatten)]
    superblock: SuperblockArgs,

    /// Check an image as it lies: without what its journal or log holds, and though another program may be
    /// changing it
    #[arg(long, help_heading = "Image")]
    norecovery: bool,
}

impl CheckArgs {
    fn style(&self) -> Style {
        match (self.json, self.jsonl) {
            (true, _) => Style::Json,
            (_, true) => Style::JsonLines,
            _ => Style::Text,
        }
    }

    fn options(&self) -> Options {
        let options = Options::default().with_norecovery(self.norecovery);
        self.threads.map_or(options, |threads| options.with_threads(threads))
    }
}

pub(crate) fn run(args: &CheckArgs) -> Result<Outcome> {
    let stop = diskwright::stop_on_signals()?;
    let output = Arc::new(Output::new(args.style()));
    let mut worst = Outcome::Done;
    for (nth, image) in args.images.iter().enumerate() {
        if args.images.len() > 1 {
            output.heading(image, nth == 0);
        }
        let mut open = args.place.options(args.norecovery);
        open.superblock = args.superblock.superblock;
        let checked = run::check(image, &open, &args.options(), stop, &output);
        worst = worst.max(checked.unwrap_or_else(|error| {
            // Write the heading before the error, in case both go to one terminal.
            output.flush();
            if args.style() != Style::Text {
                output.write(&error_line(image, &error));
            }
            told(&error)
        }));
        // The reader of the output may have closed it.
        output.finish()?;
        let left = args.images.len() - nth - 1;
        if stop.load(std::sync::atomic::Ordering::Relaxed) && left > 0 {
            let images = if left == 1 { "image was" } else { "images were" };
            terminal::message(&format_args!("interrupted: {left} more {images} not checked"));
            return Ok(Outcome::Interrupted);
        }
    }
    Ok(worst)
}
