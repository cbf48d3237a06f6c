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

Flags are letters after +, - or =, as in chattr(1):
  a append  A noatime  c compress  d nodump  D dirsync  F casefold  i immutable  j journal_data
  P projinherit  s secure_delete  S sync  t notail  T topdir  u undelete  x dax
or names with commas between them, also of what has no letter: filestream, nodefrag, nosymlinks,
rtinherit. A format has some of them; what it or the type of a file does not have is an error.
Options stand before IMAGE.

What is immutable, or may only be appended to, no command changes before that flag is cleared.";

/// Change flags, projects and hints for extents of files in an image
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct ChattrArgs {
    /// Change everything below too, but for symbolic links and special files
    #[arg(short = 'R', long)]
    recursive: bool,

    /// Number of the project that the files belong to
    #[arg(short, long, value_name = "NUMBER")]
    project: Option<u32>,

    /// How much to allocate at once (XFS; K, M and G may follow); 0 for no hint
    #[arg(long, value_name = "BYTES", value_parser = hint)]
    extsize: Option<u32>,

    /// How much to copy at once when what a file shares is written to
    #[arg(long, value_name = "BYTES", value_parser = hint)]
    cowextsize: Option<u32>,

    #[command(flatten)]
    image: ImageToEdit,

    /// Flags, then the files to change
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
        return Err(Error::Usage("nothing to change: give flags such as +i, or --project".into()));
    }
    if paths.is_empty() {
        return Err(Error::Usage("which files? give their paths in the image".into()));
    }
    session::edit(&args.image, None, |editor| {
        Ok(session::each(paths, |path| {
            editor.change_flags(path, &change, args.recursive).map(|_| ())
        }))
    })
}
