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

With -f, the name leads to the old file or to the new one at any moment.";

/// Make hard or symbolic links in an image
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct LnArgs {
    #[command(flatten)]
    image: ImageToEdit,

    /// What the link leads to: a file of the image or, with -s, any text
    target: OsString,

    /// Name of the link, or a directory to make it in under the target's name
    name: OsString,

    /// Make a symbolic link
    #[arg(short, long)]
    symbolic: bool,

    /// Replace a file that has the name
    #[arg(short, long)]
    force: bool,

    /// Owner of a symbolic link, as numbers [default: 0:0]
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
