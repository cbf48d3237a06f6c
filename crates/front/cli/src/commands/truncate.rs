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

A file grows by a hole, which reads as zeros and takes no space. A prefix makes the size relative: + extends, - reduces, < \
sets a maximum, > sets a minimum, / rounds down and % rounds up to a multiple.";

/// Set the size of files in an image
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct TruncateArgs {
    #[command(flatten)]
    image: ImageToEdit,

    /// Files in the image; missing ones are created
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,

    /// Set the size, in bytes or with K, M, G or T, or a change of it such as +4K
    #[arg(short, long, value_parser = SizeChange::parse, allow_hyphen_values = true)]
    size: SizeChange,

    /// Do not create missing files
    #[arg(short = 'c', long)]
    no_create: bool,

    /// Set the owner of new files, as numbers [default: 0:0]
    #[arg(long, value_name = "UID:GID", value_parser = owner)]
    owner: Option<Owner>,
}

pub(crate) fn run(args: &TruncateArgs) -> Result<Outcome> {
    session::edit(&args.image, args.owner, |editor| {
        Ok(session::each(&args.paths, |path| editor.truncate(path, args.size, !args.no_create)))
    })
}
