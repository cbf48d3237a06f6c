//! `diskwright rm`.

use std::ffi::OsString;

use clap::Args;
use diskwright::{Error, Outcome, Result};

use super::session;
use crate::commands::arguments::ImageToEdit;
use crate::terminal;

const NOTES: &str = "\
Examples:
  diskwright rm root.img /etc/machine-id
  diskwright rm -r root.img /var/cache/apt /usr/share/doc

Symbolic links are removed, not followed. Files are removed without confirmation and cannot be restored. After a crash \
during rm -r, some files are removed completely and the others are intact.";

/// Remove files and directories from an image
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct RmArgs {
    #[command(flatten)]
    image: ImageToEdit,

    /// Files in the image
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,

    /// Remove directories with everything in them
    #[arg(short, short_alias = 'R', long)]
    recursive: bool,

    /// Ignore missing files
    #[arg(short, long)]
    force: bool,
}

pub(crate) fn run(args: &RmArgs) -> Result<Outcome> {
    session::edit(&args.image, None, |editor| {
        let bar = terminal::spinner("removing:");
        let outcome = session::each(&args.paths, |path| {
            let removed = if args.recursive {
                editor.remove_all(path, &mut || bar.inc(1))
            } else {
                editor.remove_file(path)
            };
            match removed {
                Err(Error::File { source: vfs::Error::NotFound, .. }) if args.force => Ok(()),
                other => other,
            }
        });
        bar.finish_and_clear();
        Ok(outcome)
    })
}
