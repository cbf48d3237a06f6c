//! `diskwright rmdir`.

use std::ffi::OsString;

use clap::Args;
use diskwright::{Outcome, Result};

use super::session;
use crate::commands::arguments::ImageToEdit;

const NOTES: &str = "\
Example:
  diskwright rmdir root.img /mnt/old

To remove a directory with its contents, use: diskwright rm -r";

/// Remove empty directories from an image
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct RmdirArgs {
    #[command(flatten)]
    image: ImageToEdit,

    /// Directories in the image
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
}

pub(crate) fn run(args: &RmdirArgs) -> Result<Outcome> {
    session::edit(&args.image, None, |editor| {
        Ok(session::each(&args.paths, |path| editor.remove_directory(path)))
    })
}
