//! `diskwright chmod`.

use std::ffi::OsString;

use clap::Args;
use diskwright::edit::ModeChange;
use diskwright::{Outcome, Result};

use super::session;
use crate::commands::arguments::ImageToEdit;

const NOTES: &str = "\
Examples:
  diskwright chmod root.img 0755 /usr/local/bin/app
  diskwright chmod -R root.img u=rwX,go=rX /srv/www
  diskwright chmod root.img -w /etc/passwd

Without u, g, o or a, it is about all of them: an image has no umask. Octal digits give exactly
these permissions, special bits included. Symbolic links are followed, but not those below a
directory.";

/// Change permissions of files in an image
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct ChmodArgs {
    #[command(flatten)]
    image: ImageToEdit,

    /// Octal digits, or such as u+rwx,go-w
    #[arg(value_parser = ModeChange::parse, allow_hyphen_values = true)]
    mode: ModeChange,

    /// Files to change
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,

    /// Change everything below too
    #[arg(short = 'R', long)]
    recursive: bool,
}

pub(crate) fn run(args: &ChmodArgs) -> Result<Outcome> {
    session::edit(&args.image, None, |editor| {
        Ok(session::each(&args.paths, |path| {
            editor.change_mode(path, &args.mode, args.recursive).map(|_| ())
        }))
    })
}
