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
use crate::commands::arguments::{PlaceArgs, RescueArgs, SuperblockArgs};
use crate::terminal;
use output::{Output, Style};

const NOTES: &str = "\
Examples:
  diskwright check root.img
  diskwright check --json *.img | jq -r 'select(.verdict != \"clean\").image'
  diskwright check --jsonl --partition 2 disk.img
  diskwright check /dev/vdb

Checks all metadata of an image, and compares related structures with each other. The journal or log is \
replayed in memory first, so the check sees the state that a mount would show. Nothing is written. \
docs/check.md lists all findings and their meaning. With --mapfile, files on areas that were not rescued are listed.

Exit status:
  0    clean
  1    damage was found, or parts of an image could not be checked
  2    invalid arguments
  3    an image has an unknown format or unsupported features
  4    an image is in use or cannot be read, or its device returned read errors
  130  interrupted; the findings so far are reported
With several images, the highest status applies.";

/// Check images for damage
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct CheckArgs {
    /// Image files or block devices
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<PathBuf>,

    /// Write one JSON object per image, one per line, with at most 1000 findings of each kind
    #[arg(long, conflicts_with = "jsonl")]
    json: bool,

    /// Write one JSON object per finding, one per line, and a summary object after each image
    #[arg(long)]
    jsonl: bool,

    /// Use at most N threads; the findings do not depend on N [default: one per processor, at most 8]
    #[arg(long, value_name = "N")]
    threads: Option<NonZero<usize>>,

    #[command(flatten)]
    place: PlaceArgs,

    #[command(flatten)]
    superblock: SuperblockArgs,

    /// Do not replay the journal or log, and read even while another program changes the image. Files may be outdated or
    /// inconsistent
    #[arg(long, help_heading = "Image")]
    norecovery: bool,

    #[command(flatten)]
    rescue: RescueArgs,
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
        let mut open = args.rescue.add(args.place.options(args.norecovery))?;
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
