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

Nothing of what one call makes is there before all of it is, unless it is more than the journal
holds.";

/// Make directories in an image
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct MkdirArgs {
    #[command(flatten)]
    image: ImageToEdit,

    /// Directories to make
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,

    /// Make those above too that are missing; what is there already is no error
    #[arg(short, long)]
    parents: bool,

    /// Permissions, such as 0750 or u=rwx,go=rx [default: 0755]
    #[arg(short, long, value_parser = ModeChange::parse)]
    mode: Option<ModeChange>,

    /// Owner, as numbers [default: 0:0, or the group of a directory with the set-group-id bit]
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
