//! `diskwright paths`.

use std::io::Write;

use clap::Args;
use diskwright::{Error, Outcome, Result, text};
use serde::Serialize;
use vfs::Ino;
use vfs::path::paths_of;

use crate::commands::arguments::ImageArgs;
use crate::terminal;

const NOTES: &str = "\
Examples:
  diskwright paths root.img 1234
  diskwright paths root.img 1234 --json

In XFS images with parent pointers (mkfs.xfs -n parent=1), the paths are read from the inode. For other images, the \
command searches all directories, and a message reports this.";

/// Show all paths of an inode
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct PathsArgs {
    #[command(flatten)]
    image: ImageArgs,

    /// Inode number, as in find --json, in findings of check, or in ls -i on a mount
    inode: u64,

    /// End each path with a NUL byte instead of a newline, for xargs -0
    #[arg(short = '0', long = "null")]
    is_null: bool,

    /// Write the result as one JSON object to standard output
    #[arg(long, conflicts_with = "is_null")]
    json: bool,
}

/// Result in JSON. A path that is not UTF-8 is also given as hexadecimal bytes.
#[derive(Serialize)]
struct Answer {
    inode: u64,
    scanned: bool,
    paths: Vec<PathRecord>,
}

#[derive(Serialize)]
struct PathRecord {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
}

pub(crate) fn run(args: &PathsArgs) -> Result<Outcome> {
    let image = args.image.open()?;
    let found = paths_of(&*image.file_system()?, Ino(args.inode)).map_err(|source| {
        let inode = format!("inode {}", args.inode);
        Error::file(inode.as_bytes(), source)
    })?;
    if found.scanned {
        terminal::message(&"the image has no parent pointers; all directories were searched");
    }
    terminal::with_output(|out| {
        let written = if args.json {
            write_json(args.inode, &found, out)
        } else {
            let end = if args.is_null { "\0" } else { "\n" };
            found.paths.iter().try_for_each(|path| write_path(path, end, out))
        };
        written.map_err(Error::Output)
    })?;
    Ok(if found.paths.is_empty() { Outcome::No } else { Outcome::Done })
}

fn write_path(path: &[u8], end: &str, out: &mut dyn Write) -> std::io::Result<()> {
    if end == "\n" && terminal::escapes_names() {
        write!(out, "{}", text::escaped(path))?;
    } else {
        out.write_all(path)?;
    }
    out.write_all(end.as_bytes())
}

fn write_json(inode: u64, found: &vfs::path::PathsOf, out: &mut dyn Write) -> std::io::Result<()> {
    let record = |path: &Vec<u8>| PathRecord {
        path: String::from_utf8_lossy(path).into_owned(),
        path_bytes: std::str::from_utf8(path).is_err().then(|| text::hex(path)),
    };
    let paths = found.paths.iter().map(record).collect();
    terminal::write_json(&mut *out, &Answer { inode, scanned: found.scanned, paths })?;
    writeln!(out)
}
