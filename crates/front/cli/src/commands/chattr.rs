//! `diskwright chattr`.

use std::ffi::OsString;

use clap::Args;
use diskwright::edit::FlagChange;
use diskwright::{Error, Outcome, Result};
use vfs::FileAttributesChange;

use super::session;
use crate::commands::arguments::ImageToEdit;

const NOTES: &str = "\
Examples:
  diskwright chattr root.img +i /etc/resolv.conf
  diskwright chattr -R root.img -ia /var/log
  diskwright chattr -R -p 42 root.img +P /srv/www
  diskwright chattr --extsize 1M root.img /var/lib/db

Flags, after +, - or =, as in chattr(1):
  a append  A noatime  c compress  d nodump  D dirsync  F casefold  i immutable  j journal_data
  P projinherit  s secure_delete  S sync  t notail  T topdir  u undelete  x dax

Names separated by commas work too. These flags have only names: filestream, nodefrag, nosymlinks, rtinherit. A flag \
that the format or the file type does not support is an error. Put options before IMAGE.

While a file is immutable or append-only, no command changes it before that flag is cleared.";

/// Change flags, project IDs and extent size hints of files in an image
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct ChattrArgs {
    /// Change directories with everything below them, except symbolic links and special files
    #[arg(short = 'R', long)]
    recursive: bool,

    /// Set the project ID
    #[arg(short, long, value_name = "NUMBER")]
    project: Option<u32>,

    /// Set the extent size hint, in bytes or with K, M or G, less than 4G (XFS only); 0 clears it
    #[arg(long, value_name = "BYTES", value_parser = hint)]
    extsize: Option<u32>,

    /// Set the copy-on-write extent size hint, in bytes or with K, M or G, less than 4G (XFS only); 0 clears it
    #[arg(long, value_name = "BYTES", value_parser = hint)]
    cowextsize: Option<u32>,

    #[command(flatten)]
    image: ImageToEdit,

    /// Flags to change, then files in the image
    #[arg(required = true, value_name = "FLAGS… PATH", allow_hyphen_values = true)]
    words: Vec<OsString>,
}

fn hint(text: &str) -> Result<u32, String> {
    let bytes = diskwright::text::parse_size(text)?;
    u32::try_from(bytes).map_err(|_| "must be less than 4G".into())
}

pub(crate) fn run(args: &ChattrArgs) -> Result<Outcome> {
    let is_flags =
        |word: &&OsString| matches!(word.as_encoded_bytes().first(), Some(b'+' | b'-' | b'='));
    let count = args.words.iter().take_while(is_flags).count();
    let (words, paths) = args.words.split_at(count);
    let mut flags = FlagChange::default();
    for word in words {
        flags = flags.parse(&word.to_string_lossy()).map_err(Error::Usage)?;
    }
    let change = FileAttributesChange {
        set: flags.set,
        clear: flags.clear,
        project_id: args.project,
        extent_size_bytes: args.extsize,
        cow_extent_size_bytes: args.cowextsize,
        ctime: None,
    };
    if change == FileAttributesChange::default() {
        return Err(Error::Usage("nothing to change: add flags such as +i, or --project".into()));
    }
    if paths.is_empty() {
        return Err(Error::Usage("no files given: add their paths in the image".into()));
    }
    session::edit(&args.image, None, |editor| {
        Ok(session::each(paths, |path| {
            editor.change_flags(path, &change, args.recursive).map(|_| ())
        }))
    })
}
