//! `diskwright mkdir`.

use std::ffi::OsString;

use clap::Args;
use diskwright::build::Owner;
use diskwright::edit::ModeChange;
use diskwright::{Outcome, Result};

use super::session;
use crate::commands::arguments::ImageToEdit;
use crate::commands::build::owner;

const NOTES: &str = "\
Examples:
  diskwright mkdir -p root.img /opt/app/etc
  diskwright mkdir -m 1777 root.img /scratch
  diskwright mkdir --owner 1000:1000 root.img /home/user

All directories of one command are created atomically, unless they exceed the capacity of the journal or log.";

/// Create directories in an image
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct MkdirArgs {
    #[command(flatten)]
    image: ImageToEdit,

    /// Directories to create in the image
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,

    /// Create missing parent directories, and accept existing directories
    #[arg(short, long)]
    parents: bool,

    /// Set the permissions, such as 0750 or u=rwx,go=rx [default: 0755]
    #[arg(short, long, value_parser = ModeChange::parse)]
    mode: Option<ModeChange>,

    /// Set the owner of new directories, as numbers [default: 0:0, or the group of a parent with the set-group-id bit]
    #[arg(long, value_name = "UID:GID", value_parser = owner)]
    owner: Option<Owner>,
}

pub(crate) fn run(args: &MkdirArgs) -> Result<Outcome> {
    session::edit(&args.image, args.owner, |editor| {
        Ok(session::each(&args.paths, |path| {
            editor.make_directory(path, args.mode.as_ref(), args.parents)
        }))
    })
}
