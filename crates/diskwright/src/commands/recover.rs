//! `diskwright recover`.

use std::io::Write;

use clap::Args;
use diskwright::edit::RecoverReport;
use diskwright::{Error, Image, Outcome, Result};

use crate::cli::ImageToEdit;
use crate::terminal;

const NOTES: &str = "\
Examples:
  diskwright recover root.img
  diskwright recover --partition 2 disk.img --json

A crash leaves changes in the journal that are not in their places yet, and files that were being
removed or shrunk. Every command that changes an image does the same first; commands that read one
replay the journal in memory. Killed at any moment, it can be run again.

This is for ext4. The log of an XFS image is replayed by mounting and unmounting it once: until
then commands read the image only with --stale, without what its log holds.";

/// Replay the journal of an image and end what a crash left unfinished
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct RecoverArgs {
    #[command(flatten)]
    image: ImageToEdit,

    /// Report what was done as one JSON object on standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &RecoverArgs) -> Result<Outcome> {
    let report = Image::recover(&args.image.image, &args.image.place.options(false))?;
    if args.json {
        terminal::with_output(|out| {
            serde_json::to_writer(&mut *out, &report)
                .map_err(std::io::Error::from)
                .and_then(|()| writeln!(out))
                .map_err(Error::Output)
        })?;
    } else {
        terminal::message(&sentence(&report));
    }
    if let Some(errno) = report.journal_errno {
        terminal::message(&format_args!(
            "the kernel had left error {errno} in the journal: run e2fsck -f on the image"
        ));
    }
    Ok(Outcome::Done)
}

fn sentence(report: &RecoverReport) -> String {
    if *report == RecoverReport::default() {
        return "nothing to recover: the image is clean".into();
    }
    format!(
        "replayed {} transactions ({} blocks, {} revoked), removed {} files without names, \
         finished shrinking {}",
        report.transactions,
        report.blocks_replayed,
        report.blocks_revoked,
        report.orphans_freed,
        report.orphans_truncated
    )
}
