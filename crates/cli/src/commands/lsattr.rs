//! `diskwright lsattr`.

use std::ffi::OsString;

use clap::Args;
use diskwright::lsattr::{FlagOptions, FlagStyle, list_flags};
use diskwright::{Outcome, Result};

use super::session;
use crate::commands::arguments::ImageArgs;
use crate::terminal;

/// List flags, projects and hints for extents of files in an image
///
/// As lsattr(1) does. Flags that have no letter there are shown with -l and --json.
#[derive(Debug, Args)]
pub(crate) struct LsattrArgs {
    #[command(flatten)]
    image: ImageArgs,

    /// Directories or files in the image
    #[arg(default_value = "/")]
    paths: Vec<OsString>,

    /// List what is in the directories below, too
    #[arg(short = 'R', long)]
    recursive: bool,

    /// List names that start with a dot, too
    #[arg(short, long)]
    all: bool,

    /// List directories themselves instead of what is in them
    #[arg(short, long, conflicts_with = "recursive")]
    directory: bool,

    /// Show names of flags instead of letters
    #[arg(short, long)]
    long: bool,

    /// Show the project
    #[arg(short, long)]
    project: bool,

    /// Write one JSON object per file and line
    #[arg(long, conflicts_with_all = ["long", "project"])]
    json: bool,
}

pub(crate) fn run(args: &LsattrArgs) -> Result<Outcome> {
    let image = args.image.open()?;
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
        Ok(session::each(&args.paths, |path| list_flags(image.paths(), path, &options, out)))
    })
}
