//! `diskwright apply`.

use std::path::{Path, PathBuf};

use clap::Args;
use diskwright::apply::apply;
use diskwright::{Outcome, Result};
use source::oci::{LayerFile, Limits};
use source::{FileId, Options};

use super::session;
use crate::commands::arguments::ImageToEdit;
use crate::terminal::{self, CopyProgress};

const NOTES: &str = "\
Examples:
  diskwright apply layer.tar.zst root.img
  diskwright diff old.img new.img -o - | diskwright apply - copy-of-old.img
  diskwright apply overlay/ root.img

The rules are those of the image specification of container engines: .wh.NAME takes away what the
image has as NAME, .wh..wh..opq takes away all that it has in a directory, and neither hides anything
of the layer itself. A directory that is there is kept and gets the owner, permissions, times and
attributes of the layer's; anything else is replaced. A directory as LAYER means what it would mean
as a tar.

If the names fit one checkpoint of the image's journal or log, as they nearly always do, all of it is
one change: killed at any moment, the image is the old or the new one. A layer that is damaged, does
not go with the image or does not fit changes nothing. Otherwise it is applied in steps, each of which
leaves whole files, and an error says how far it came.";

/// Number of threads that read directories of the host ahead.
const READ_AHEAD_THREADS: usize = 2;

/// Apply a layer of a container image to an image, in place
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct ApplyArgs {
    /// A layer: a tar (plain, gzip or zstd), - for one on standard input, or a directory
    layer: PathBuf,

    #[command(flatten)]
    image: ImageToEdit,

    /// Most that the layer may become when it is decompressed [default: 1G, and 1024 times what is stored]
    #[arg(long, value_name = "SIZE", value_parser = diskwright::text::parse_size)]
    layer_limit: Option<u64>,

    /// Report what was applied as one JSON object on standard output
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
