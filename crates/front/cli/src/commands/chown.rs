//! `diskwright chown`.

use std::ffi::OsString;

use clap::Args;
use diskwright::edit::{OwnerChange, SymlinkPolicy, parse_owner_change};
use diskwright::{Outcome, Result};

use super::session;
use crate::commands::arguments::ImageToEdit;

const NOTES: &str = "\
Examples:
  diskwright chown root.img 1000:1000 /home/user
  diskwright chown -R root.img 33 /srv/www
  diskwright chown -h root.img :100 /srv/link

Owners are numbers, because a name can have different numbers in the image and on this host. As in Linux, the file \
loses its set-user-id and set-group-id bits and its capabilities.";

/// Change owners of files in an image
#[derive(Debug, Args)]
#[command(after_help = NOTES, disable_help_flag = true)]
pub(crate) struct ChownArgs {
    #[command(flatten)]
    image: ImageToEdit,

    /// New owner: USER, USER:GROUP or :GROUP, as numbers
    #[arg(value_parser = parse_owner_change)]
    owner: OwnerChange,

    /// Files in the image
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,

    /// Change directories with everything below them, including symbolic links themselves
    #[arg(short = 'R', long)]
    recursive: bool,

    /// Change symbolic links instead of their targets
    #[arg(short = 'h', long)]
    no_dereference: bool,

    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

pub(crate) fn run(args: &ChownArgs) -> Result<Outcome> {
    let links = if args.no_dereference { SymlinkPolicy::Keep } else { SymlinkPolicy::Follow };
    session::edit(&args.image, None, |editor| {
        Ok(session::each(&args.paths, |path| {
            editor.change_owner(path, args.owner, links, args.recursive).map(|_| ())
        }))
    })
}
