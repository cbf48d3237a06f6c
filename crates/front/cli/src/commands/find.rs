//! `diskwright find`.

use std::ffi::OsString;
use std::io::Write;

use clap::Args;
use diskwright::damaged::{DamagedFile, SearchOptions, search};
use diskwright::find::{FindOptions, Style, find};
use diskwright::{Error, Outcome, Result};
use vfs::FileType;

use crate::commands::arguments::{ImageArgs, bytes};
use crate::terminal;

/// Find files in an image by name and type, or files that are damaged
///
/// Prints the sorted paths of all files that match every condition, parents first. The exit status is 0 even
/// if no file matches. With --damaged it is 0 if no file is damaged, 1 if files are, and 3 or 4 if damage or read errors may
/// have hidden further files.
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

    /// Find only files that cannot be read completely, with the lost ranges as OFFSET+BYTES. With --mapfile, contents are
    /// not read. Continue after damage
    #[arg(long)]
    damaged: bool,
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
    if args.damaged {
        return damaged(args);
    }
    let image = args.image.open()?;
    let fs = image.file_system()?;
    let style = match (args.json, args.is_null) {
        (true, _) => Style::Json,
        (_, true) => Style::Null,
        _ if terminal::escapes_names() => Style::Escaped,
        _ => Style::Lines,
    };
    let options = conditions(args).style(style);
    terminal::with_output(|out| find(fs.paths(), bytes(&args.path), &options, out))?;
    Ok(Outcome::Done)
}

fn conditions(args: &FindArgs) -> FindOptions {
    let mut options = FindOptions::default().types(args.types.clone());
    options.name = args.name.as_deref().map(|name| bytes(name).to_vec());
    options
}

fn damaged(args: &FindArgs) -> Result<Outcome> {
    let conditions = conditions(args);
    let matches = |name: &[u8], file_type: Option<FileType>| conditions.accepts(name, file_type);
    let options = SearchOptions::default().path(bytes(&args.path)).matches(&matches);
    let open = args.image.options()?;
    let report = terminal::with_output(|out| {
        search(&args.image.image, &open, &options, &mut |file: &DamagedFile| {
            let written = match (args.json, args.is_null) {
                (true, _) => out.write_all(file.json_line().as_bytes()),
                (_, true) => out.write_all(&[&file.path[..], b"\0"].concat()),
                _ => writeln!(out, "{}", file.line()),
            };
            written.map_err(Error::Output)
        })
    })?;
    if report.not_read > 0 {
        terminal::message(&format_args!(
            "{} files were not examined, because they are encrypted or on another device",
            report.not_read
        ));
    }
    if !report.is_complete() {
        terminal::message(&format_args!(
            "{} directories or inodes are unreadable; files below them are not listed",
            report.unlisted
        ));
    }
    Ok(report.outcome())
}
