//! `diskwright chown`.

use std::ffi::OsString;

use clap::Args;
use diskwright::edit::{Links, OwnerChange, parse_owner_change};
use diskwright::{Outcome, Result};

use super::session;
use crate::commands::arguments::ImageToEdit;

const NOTES: &str = "\
Examples:
  diskwright chown root.img 1000:1000 /home/user
  diskwright chown -R root.img 33 /srv/www
  diskwright chown -h root.img :100 /srv/link

Owners are numbers only: a name may mean another number in the image than on this host. A file
loses its set-user-id and set-group-id bits and its capabilities, as it does in Linux.";

/// Change owners of files in an image
#[derive(Debug, Args)]
#[command(after_help = NOTES, disable_help_flag = true)]
pub(crate) struct ChownArgs {
    #[command(flatten)]
    image: ImageToEdit,

    /// USER, USER:GROUP or :GROUP, as numbers
    #[arg(value_parser = parse_owner_change)]
    owner: OwnerChange,

    /// Files to change
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,

    /// Change everything below too; symbolic links there are changed themselves
    #[arg(short = 'R', long)]
    recursive: bool,

    /// Change symbolic links themselves instead of what they lead to
    #[arg(short = 'h', long)]
    no_dereference: bool,

    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

pub(crate) fn run(args: &ChownArgs) -> Result<Outcome> {
    let links = if args.no_dereference { Links::Keep } else { Links::Follow };
    session::edit(&args.image, None, |editor| {
        Ok(session::each(&args.paths, |path| {
            editor.change_owner(path, args.owner, links, args.recursive).map(|_| ())
        }))
    })
}
