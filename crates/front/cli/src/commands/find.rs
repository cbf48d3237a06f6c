//! `diskwright find`.

use std::ffi::OsString;

use clap::Args;
use diskwright::find::{FindOptions, Style, find};
use diskwright::{Outcome, Result};
use vfs::FileType;

use crate::commands::arguments::{ImageArgs, bytes};
use crate::terminal;

/// Find files in an image by name and type
///
/// Prints the sorted paths of all files that match every condition, parents first. The exit status is 0 even
/// if no file matches.
#[derive(Debug, Args)]
pub(crate) struct FindArgs {
    #[command(flatten)]
    image: ImageArgs,

    /// Directory or file in the image to start from
    #[arg(default_value = "/")]
    path: OsString,

    /// Match the whole file name against GLOB: * ? [a-z] [!a-z] {one,other}; \ escapes a character
    #[arg(long, value_name = "GLOB")]
    name: Option<OsString>,

    /// Match these file types, separated by commas: f regular file, d directory, l symbolic link, c character device, b
    /// block device, p FIFO, s socket
    #[arg(long = "type", value_name = "T", value_delimiter = ',', value_parser = file_type)]
    types: Vec<FileType>,

    /// End each path with a NUL byte instead of a newline, for xargs -0
    #[arg(short = '0', long = "null")]
    is_null: bool,

    /// Write one JSON object per file, one per line
    #[arg(long, conflicts_with = "is_null")]
    json: bool,
}

fn file_type(text: &str) -> Result<FileType, String> {
    Ok(match text {
        "f" => FileType::Regular,
        "d" => FileType::Directory,
        "l" => FileType::Symlink,
        "c" => FileType::CharDevice,
        "b" => FileType::BlockDevice,
        "p" => FileType::Fifo,
        "s" => FileType::Socket,
        _ => return Err("use f, d, l, c, b, p or s".into()),
    })
}

pub(crate) fn run(args: &FindArgs) -> Result<Outcome> {
    let image = args.image.open()?;
    let fs = image.file_system()?;
    let style = match (args.json, args.is_null) {
        (true, _) => Style::Json,
        (_, true) => Style::Null,
        _ if terminal::escapes_names() => Style::Escaped,
        _ => Style::Lines,
    };
    let mut options = FindOptions::default().types(args.types.clone()).style(style);
    options.name = args.name.as_deref().map(|name| bytes(name).to_vec());
    terminal::with_output(|out| find(fs.paths(), bytes(&args.path), &options, out))?;
    Ok(Outcome::Done)
}
