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

A change without u, g, o or a applies to all three: there is no umask. An octal mode sets all permissions, including \
the special bits. Symbolic links on the command line are followed; those found below a directory are not.";

/// Change permissions of files in an image
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct ChmodArgs {
    #[command(flatten)]
    image: ImageToEdit,

    /// Permissions in octal, or changes such as u+rwx,go-w
    #[arg(value_parser = ModeChange::parse, allow_hyphen_values = true)]
    mode: ModeChange,

    /// Files in the image
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,

    /// Change directories with everything below them
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
