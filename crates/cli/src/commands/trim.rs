//! `diskwright trim`.

use std::io::Write;

use clap::Args;
use diskwright::{Error, Image, Outcome, Result};

use crate::commands::arguments::ImageToEdit;
use crate::terminal;

const NOTES: &str = "\
Example:
  diskwright trim root.img

What is free in the image becomes a hole of its file, which then takes less space and is quicker to
copy. What is in the image stays, byte for byte. Of a mounted image, do it through the mount:
fstrim MOUNTPOINT.";

/// Give the free space of an image back to the file system that its file is in
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct TrimArgs {
    #[command(flatten)]
    image: ImageToEdit,

    /// Leave alone free runs that are shorter (K, M and G may follow)
    #[arg(
        short,
        long,
        value_name = "BYTES",
        value_parser = diskwright::text::parse_size,
        default_value = "0",
        hide_default_value = true
    )]
    minimum: u64,

    /// Report what was done as one JSON object on standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &TrimArgs) -> Result<Outcome> {
    let open = Image::edit(&args.image.image, &args.image.place.options(false))?;
    let trimmed = open.file_system().trim(0..u64::MAX, args.minimum);
    open.close()?;
    let bytes =
        trimmed.map_err(|source| Error::Image { image: args.image.image.clone(), source })?;
    if args.json {
        terminal::with_output(|out| {
            writeln!(out, "{{\"bytes_trimmed\":{bytes}}}").map_err(Error::Output)
        })?;
    } else {
        terminal::message(&format_args!(
            "{} given back ({bytes} bytes)",
            diskwright::text::size(bytes)
        ));
    }
    Ok(Outcome::Done)
}
