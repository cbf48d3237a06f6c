//! `diskwright mv`.

use std::ffi::OsString;

use clap::Args;
use diskwright::edit::{Move, MoveOptions};
use diskwright::{Error, Outcome, Result};

use super::session;
use crate::commands::arguments::{ImageToEdit, bytes};

const NOTES: &str = "\
Examples:
  diskwright mv root.img /etc/hosts.new /etc/hosts
  diskwright mv root.img /a /b /archive/
  diskwright mv --exchange root.img /boot/current /boot/next

Each rename is atomic, including the replacement of an existing file: after a crash, a file has its old or its new name.";

/// Rename or move files in an image
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct MvArgs {
    #[command(flatten)]
    image: ImageToEdit,

    /// Files to move, then the new name or the target directory
    #[arg(required = true, num_args = 2.., value_names = ["SRC", "DST"])]
    paths: Vec<OsString>,

    /// Do not replace an existing file: keep both, and exit with status 1
    #[arg(short, long)]
    no_clobber: bool,

    /// Exchange SRC and DST atomically. A directory as DST is exchanged too, not moved into
    #[arg(long, conflicts_with = "no_clobber")]
    exchange: bool,
}

pub(crate) fn run(args: &MvArgs) -> Result<Outcome> {
    let Some((to, from)) = args.paths.split_last() else { return Ok(Outcome::Usage) };
    let mode = match (args.no_clobber, args.exchange) {
        (true, _) => Move::NoReplace,
        (_, true) => Move::Exchange,
        _ => Move::Replace,
    };
    if mode == Move::Exchange && from.len() > 1 {
        return Err(Error::Usage("--exchange requires two names".into()));
    }
    let options = MoveOptions::default().mode(mode).into_directory(from.len() > 1);
    session::edit(&args.image, None, |editor| {
        Ok(session::each(from, |from| editor.rename(from, bytes(to), options)))
    })
}
