//! `diskwright trim`.

use std::io::Write;

use clap::Args;
use diskwright::{Error, Outcome, Result};

use crate::commands::arguments::ImageToEdit;
use crate::terminal;

const NOTES: &str = "\
Example:
  diskwright trim root.img

Turns the free space of the image into holes of its file, which then takes less space and copies faster. The contents of \
files do not change. For a mounted image, use: fstrim MOUNTPOINT";

/// Punch holes into the file of an image where the image has free space
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct TrimArgs {
    #[command(flatten)]
    image: ImageToEdit,

    /// Skip free extents shorter than BYTES, in bytes or with K, M or G [default: 0]
    #[arg(
        short,
        long,
        value_name = "BYTES",
        value_parser = diskwright::text::parse_size,
        default_value = "0",
        hide_default_value = true
    )]
    minimum: u64,

    /// Write the result as one JSON object to standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &TrimArgs) -> Result<Outcome> {
    let open = args.image.open()?;
    let trimmed = open.file_system()?.trim(0..u64::MAX, args.minimum);
    open.close()?;
    let bytes =
        trimmed.map_err(|source| Error::Image { image: args.image.image.clone(), source })?;
    if args.json {
        terminal::with_output(|out| {
            writeln!(out, "{{\"bytes_trimmed\":{bytes}}}").map_err(Error::Output)
        })?;
    } else {
        terminal::message(&format_args!("{} freed ({bytes} bytes)", diskwright::text::size(bytes)));
    }
    Ok(Outcome::Done)
}
