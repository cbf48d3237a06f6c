//! `diskwright apply`.

use std::path::{Path, PathBuf};

use clap::Args;
use diskwright::apply::apply;
use diskwright::{Outcome, Result};
use import::oci::{LayerFile, Limits};
use import::{FileId, Options};

use super::session;
use crate::commands::arguments::ImageToEdit;
use crate::terminal::{self, CopyProgress};

const NOTES: &str = "\
Examples:
  diskwright apply layer.tar.zst root.img
  diskwright diff old.img new.img -o - | diskwright apply - copy-of-old.img
  diskwright apply overlay/ root.img

Layers follow the OCI image specification. A whiteout .wh.NAME removes NAME from the image, and .wh..wh..opq \
removes all existing entries of its directory. Whiteouts do not affect files of the layer itself. An existing \
directory is kept and gets the owner, permissions, times and attributes of the layer. Any other existing file is \
replaced. A directory as LAYER is treated like a tar archive of that directory.

If the changed names fit into one checkpoint of the journal or log, which is the usual case, the layer is applied \
atomically: after a crash, the image is the old or the new one. A layer that is damaged, does not match the image \
or does not fit changes nothing. A larger layer is applied in steps, each of which leaves complete files. An error \
reports how far the layer was applied.";

/// Number of threads that read directories of the host ahead.
const READ_AHEAD_THREADS: usize = 2;

/// Apply a container image layer to an image, in place
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct ApplyArgs {
    /// Layer: a tar archive (plain, gzip or zstd), - for standard input, or a directory
    layer: PathBuf,

    #[command(flatten)]
    image: ImageToEdit,

    /// Limit the decompressed size of the layer [default: 1G plus 1024 times its compressed size]
    #[arg(long, value_name = "SIZE", value_parser = diskwright::text::parse_size)]
    layer_limit: Option<u64>,

    /// Write the result as one JSON object to standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &ApplyArgs) -> Result<Outcome> {
    let image = &args.image.image;
    let policy = session::policy(None)?;
    let limits = Limits { layer_bytes: args.layer_limit, ..Limits::default() };
    let directory =
        Options { threads: READ_AHEAD_THREADS, exclude: file_id(image).into_iter().collect() };
    let beside = image.parent().filter(|parent| !parent.as_os_str().is_empty());
    let beside = beside.unwrap_or(Path::new("."));
    let layer = LayerFile::load(&args.layer, beside, &limits, &directory)?;
    let place = args.image.place.options(false);
    let mut progress = CopyProgress::new("applying:");
    let report = apply(&layer, image, &place, policy, &mut progress)?;
    drop(progress);
    if args.json {
        terminal::json_line(&report)?;
    }
    Ok(Outcome::Done)
}

/// Returns the identity of a file. It excludes the image itself from a directory that contains it.
fn file_id(path: &Path) -> Option<FileId> {
    diskwright::file_id(path)
}
