//! `diskwright ln`.

use std::ffi::OsString;

use clap::Args;
use diskwright::build::Owner;
use diskwright::{Outcome, Result};

use super::session;
use crate::commands::arguments::{ImageToEdit, bytes};
use crate::commands::build::owner;

const NOTES: &str = "\
Examples:
  diskwright ln -s root.img /lib/systemd/systemd /sbin/init
  diskwright ln -sf root.img ../usr/share/zoneinfo/UTC /etc/localtime
  diskwright ln root.img /bin/busybox /bin/sh

With -f, the replacement is atomic: after a crash, the name refers to the old or the new file.";

/// Create hard or symbolic links in an image
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct LnArgs {
    #[command(flatten)]
    image: ImageToEdit,

    /// Target of the link: a file in the image or, with -s, any text
    target: OsString,

    /// Name of the link, or a directory in which the link gets the name of the target
    name: OsString,

    /// Create a symbolic link instead of a hard link
    #[arg(short, long)]
    symbolic: bool,

    /// Replace an existing file
    #[arg(short, long)]
    force: bool,

    /// Set the owner of the symbolic link, as numbers [default: 0:0]
    #[arg(long, value_name = "UID:GID", value_parser = owner, requires = "symbolic")]
    owner: Option<Owner>,
}

pub(crate) fn run(args: &LnArgs) -> Result<Outcome> {
    let (target, name) = (bytes(&args.target), bytes(&args.name));
    session::edit(&args.image, args.owner, |editor| {
        if args.symbolic {
            editor.symlink(target, name, args.force)?;
        } else {
            editor.hard_link(target, name, args.force)?;
        }
        Ok(Outcome::Done)
    })
}
