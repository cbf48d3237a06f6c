//! `diskwright dedupe`.

use std::ffi::OsString;

use clap::Args;
use diskwright::build::Dedupe;
use diskwright::dedupe::{DedupeReport, dedupe};
use diskwright::text::size;
use diskwright::{Outcome, Result};

use super::session;
use crate::commands::arguments::{ImageToEdit, bytes};
use crate::terminal::{self, CopyProgress};

const NOTES: &str = "\
Examples:
  diskwright dedupe root.img
  diskwright dedupe --blocks root.img /srv/images

Equal files share their blocks afterwards; a later write to one of them copies the shared blocks first. All bytes are \
compared before blocks are shared. Contents and times of files do not change. IMAGE must be an XFS image with reflink. \
To give the freed space back to the host, use: diskwright trim IMAGE";

/// Share the blocks of equal files in an XFS image
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct DedupeArgs {
    #[command(flatten)]
    image: ImageToEdit,

    /// File or directory in the image, with everything in it
    #[arg(value_name = "PATH", default_value = "/", hide_default_value = true)]
    path: OsString,

    /// Also share equal blocks of different files
    #[arg(long)]
    blocks: bool,

    /// Write the result as one JSON object to standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &DedupeArgs) -> Result<Outcome> {
    let unit = if args.blocks { Dedupe::Blocks } else { Dedupe::Files };
    let mut report = DedupeReport::default();
    let outcome = session::edit(&args.image, None, |editor| {
        let mut progress = CopyProgress::new("reading:");
        report = dedupe(editor.paths(), bytes(&args.path), unit, &mut progress)?;
        Ok(if report.left_out > 0 { Outcome::No } else { Outcome::Done })
    })?;
    if args.json {
        terminal::json_line(&report)?;
    } else if outcome <= Outcome::No {
        terminal::message(&format_args!(
            "{} files: {} shared, {} freed",
            report.files,
            size(report.shared),
            size(report.freed),
        ));
    }
    Ok(outcome)
}
