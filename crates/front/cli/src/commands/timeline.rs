//! `diskwright timeline`.

use clap::Args;
use diskwright::{Outcome, Result, deleted};

use crate::commands::arguments::ImageArgs;
use crate::terminal;

const NOTES: &str = "\
Examples:
  diskwright timeline root.img > body && mactime -b body
  diskwright timeline root.img --deleted | mactime -d > timeline.csv

Each line has the fields MD5|name|inode|mode|UID|GID|size|atime|mtime|ctime|crtime. The digest is always 0. Bytes that would \
break a line or a field are escaped. Nothing is written to the image.

Exit status:
  0  all files were read
  3  a part of the image could not be read; messages name it";

/// Write the times of all files as a body file for mactime
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct TimelineArgs {
    #[command(flatten)]
    image: ImageArgs,

    /// Add deleted files, marked "(deleted)"
    #[arg(long)]
    deleted: bool,

    /// With --deleted, also search all free blocks. Reads the whole free space
    #[arg(long, requires = "deleted")]
    free_blocks: bool,
}

pub(crate) fn run(args: &TimelineArgs) -> Result<Outcome> {
    let image = args.image.open()?;
    let fs = image.file_system()?;
    let remarks = terminal::with_output(|out| deleted::timeline(fs.paths(), out))?;
    remarks.iter().for_each(|remark| terminal::message(remark));
    drop(fs);
    let outcome = if remarks.is_empty() { Outcome::Done } else { Outcome::Image };
    if !args.deleted {
        return Ok(outcome);
    }
    drop(image);
    let found = super::deleted::search(&args.image, args.free_blocks)?;
    terminal::with_output(|out| deleted::write_deleted_lines(&found, out))?;
    Ok(outcome.max(super::deleted::outcome(&found)))
}
