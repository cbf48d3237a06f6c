//! `diskwright lsattr`.

use std::ffi::OsString;

use clap::Args;
use diskwright::lsattr::{FlagOptions, FlagStyle, list_flags};
use diskwright::{Outcome, Result};

use super::session;
use crate::commands::arguments::ImageArgs;
use crate::terminal;

/// List flags, project IDs and extent size hints of files in an image
///
/// Prints flags in the format of lsattr(1). Flags without a letter there are shown with -l and --json.
#[derive(Debug, Args)]
pub(crate) struct LsattrArgs {
    #[command(flatten)]
    image: ImageArgs,

    /// Directories or files in the image
    #[arg(default_value = "/")]
    paths: Vec<OsString>,

    /// List subdirectories recursively
    #[arg(short = 'R', long)]
    recursive: bool,

    /// Include names that start with a dot
    #[arg(short, long)]
    all: bool,

    /// List directories themselves instead of their contents
    #[arg(short, long, conflicts_with = "recursive")]
    directory: bool,

    /// Show the names of flags instead of their letters
    #[arg(short, long)]
    long: bool,

    /// Show project IDs
    #[arg(short, long)]
    project: bool,

    /// Write one JSON object per file, one per line
    #[arg(long, conflicts_with_all = ["long", "project"])]
    json: bool,
}

pub(crate) fn run(args: &LsattrArgs) -> Result<Outcome> {
    let image = args.image.open()?;
    let fs = image.file_system()?;
    let style = match (args.json, args.long) {
        (true, _) => FlagStyle::Json,
        (_, true) => FlagStyle::Names,
        _ => FlagStyle::Letters,
    };
    let options = FlagOptions::default()
        .style(style)
        .recursive(args.recursive)
        .all(args.all)
        .directories(args.directory)
        .projects(args.project)
        .escape(terminal::escapes_names());
    terminal::with_output(|out| {
        Ok(session::each(&args.paths, |path| list_flags(fs.paths(), path, &options, out)))
    })
}
