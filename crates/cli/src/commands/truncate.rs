//! `diskwright truncate`.

use std::ffi::OsString;

use clap::Args;
use diskwright::build::Owner;
use diskwright::edit::SizeChange;
use diskwright::{Outcome, Result};

use super::session;
use crate::commands::arguments::ImageToEdit;
use crate::commands::build::owner;

const NOTES: &str = "\
Examples:
  diskwright truncate -s 0 root.img /var/log/syslog
  diskwright truncate -s 1G root.img /swapfile
  diskwright truncate -s +4K root.img /data.bin

What a file grows by is a hole, which reads as zeros and takes no space. Before the size may stand
+ (more), - (less), < (at most), > (at least), / (rounded down) and % (rounded up to a multiple).";

/// Shrink or grow files in an image to a size
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct TruncateArgs {
    #[command(flatten)]
    image: ImageToEdit,

    /// Files to change; those that are missing are made
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,

    /// Size in bytes (K, M, G and T may follow), or a change of it
    #[arg(short, long, value_parser = SizeChange::parse, allow_hyphen_values = true)]
    size: SizeChange,

    /// Do not make files that are missing
    #[arg(short = 'c', long)]
    no_create: bool,

    /// Owner of a new file, as numbers [default: 0:0]
    #[arg(long, value_name = "UID:GID", value_parser = owner)]
    owner: Option<Owner>,
}

pub(crate) fn run(args: &TruncateArgs) -> Result<Outcome> {
    session::edit(&args.image, args.owner, |editor| {
        Ok(session::each(&args.paths, |path| editor.truncate(path, args.size, !args.no_create)))
    })
}
