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
/// Writes the paths of all files that meet every condition, parents first, sorted. Finding none is
/// no failure.
#[derive(Debug, Args)]
pub(crate) struct FindArgs {
    #[command(flatten)]
    image: ImageArgs,

    /// Where in the image to start
    #[arg(default_value = "/")]
    path: OsString,

    /// Pattern for the whole name: * ? [a-z] [!a-z] {one,other}, \ before a literal character
    #[arg(long, value_name = "GLOB")]
    name: Option<OsString>,

    /// Types: f file, d directory, l symbolic link, c and b devices, p fifo, s socket; several with
    /// commas
    #[arg(long = "type", value_name = "T", value_delimiter = ',', value_parser = file_type)]
    types: Vec<FileType>,

    /// End each path with a NUL byte instead of a newline, for xargs -0
    #[arg(short = '0', long = "null")]
    is_null: bool,

    /// Write one JSON object per file and line
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
    let style = match (args.json, args.is_null) {
        (true, _) => Style::Json,
        (_, true) => Style::Null,
        _ if terminal::escapes_names() => Style::Escaped,
        _ => Style::Lines,
    };
    let mut options = FindOptions::default().types(args.types.clone()).style(style);
    options.name = args.name.as_deref().map(|name| bytes(name).to_vec());
    terminal::with_output(|out| find(image.paths(), bytes(&args.path), &options, out))?;
    Ok(Outcome::Done)
}
