//! `diskwright bundle`.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use diskwright::bundle::{BundleOptions, BundleReport, bundle, obfuscate};
use diskwright::{Error, Outcome, Result, text};

use crate::commands::arguments::ImageArgs;
use crate::terminal;

const NOTES: &str = "\
Examples:
  diskwright bundle s3://images/root.img
  diskwright bundle https://example.org/root.img --out root.img.dwb
  diskwright bundle root.img && rsync -t root.img root.img.dwb server:/var/www/images/
  diskwright bundle --obfuscate broken.img report.img && xz report.img

Writes the metadata of IMAGE (superblock, groups, inodes, directories, extent trees, attributes) to IMAGE.dwb, in the \
order of use and compressed. Commands that read IMAGE at an address fetch IMAGE.dwb with one request, instead of one for \
each part of the image with metadata. Every block is verified by a digest.

A bundle belongs to one version of the image: to its length, its first 128 KiB and its ETag. The bundle of a file, which \
has no ETag, belongs to the time of its last change, which the server must send as Last-Modified. Readers do not use the \
bundle of another version, and print a warning. Make a new bundle after each change of the image.

Published images get their bundle by publish --bundle.

With --obfuscate, OUT is an image of the same length with the metadata of IMAGE, for reports of errors. It has no contents \
of files, and random names, targets of links, and attributes. Sizes, owners, times and numbers stay. Names keep their \
lengths, and in XFS their hashes. Encrypted names and access control lists stay.";

/// Store the metadata of a remote image in one object beside it, so that reading starts faster
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct BundleArgs {
    #[command(flatten)]
    image: ImageArgs,

    /// Write the metadata of IMAGE to the new image OUT, with random names and without contents
    #[arg(long, requires = "copy", conflicts_with_all = ["out", "order"])]
    obfuscate: bool,

    /// New image of --obfuscate
    #[arg(value_name = "OUT", id = "copy", requires = "obfuscate")]
    copy: Option<PathBuf>,

    /// Write the bundle to FILE. Needed for images on web servers [default: IMAGE.dwb beside the image]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Add the data that FILE lists, which mount --record wrote
    #[arg(long, value_name = "FILE")]
    order: Option<PathBuf>,

    /// Write the result as one JSON object to standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &BundleArgs) -> Result<Outcome> {
    if let Some(out) = &args.copy {
        return run_obfuscate(args, out);
    }
    let options = BundleOptions::new(&args.image.image)
        .open(args.image.options()?)
        .out(args.out.clone())
        .order(args.order.clone());
    let made = bundle(&options)?;
    terminal::with_output(|out| {
        let written = if args.json {
            let line = serde_json::to_string(&made).map_err(|e| Error::Output(e.into()))?;
            writeln!(out, "{}", disk::address::safe_json(line))
        } else {
            write_text(&made, out)
        };
        written.map_err(Error::Output)
    })?;
    Ok(Outcome::Done)
}

/// Makes a copy with random names.
fn run_obfuscate(args: &BundleArgs, out: &Path) -> Result<Outcome> {
    let made = obfuscate(&args.image.image, &args.image.options()?, out)?;
    for remark in &made.remarks {
        terminal::message(&format_args!("warning: not copied: {remark}"));
    }
    terminal::with_output(|out| {
        let written = if args.json {
            let line = serde_json::to_string(&made).map_err(|e| Error::Output(e.into()))?;
            writeln!(out, "{}", disk::address::safe_json(line))
        } else {
            writeln!(out, "{} has the metadata with random names", made.place)
        };
        written.map_err(Error::Output)
    })?;
    Ok(Outcome::Done)
}

fn write_text(made: &BundleReport, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out, "{}", made.place)?;
    writeln!(
        out,
        "{} for {} of metadata and {} of the start; the image has {}",
        text::size(made.bundle_bytes),
        text::size(made.metadata_bytes),
        text::size(made.start_bytes),
        text::size(made.image_bytes),
    )
}
