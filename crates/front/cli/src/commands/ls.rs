//! `diskwright ls`.

use std::ffi::OsString;

use clap::Args;
use diskwright::list::{ListOptions, Style, list};
use diskwright::{Outcome, Result};

use crate::commands::arguments::{ImageArgs, bytes};
use crate::terminal;

/// List a directory of an image
///
/// Lists all entries except "." and "..", sorted by the bytes of their names. On a terminal, control characters in
/// names are escaped; elsewhere, names are written unchanged.
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    image: ImageArgs,

    /// Directory or file in the image
    #[arg(default_value = "/")]
    path: OsString,

    /// Show mode, links, owner, group, size, time (in UTC) and name, like ls -l
    #[arg(short, long)]
    long: bool,

    /// List subdirectories recursively
    #[arg(short = 'R', long)]
    recursive: bool,

    /// Write one JSON object per file, one per line
    #[arg(long, conflicts_with = "long")]
    json: bool,
}

pub(crate) fn run(args: &LsArgs) -> Result<Outcome> {
    let image = args.image.open()?;
    let fs = image.file_system()?;
    let style = match (args.json, args.long) {
        (true, _) => Style::Json,
        (_, true) => Style::Long,
        _ => Style::Names,
    };
    let escape = terminal::escapes_names();
    let options = ListOptions::default().style(style).recursive(args.recursive).escape(escape);
    terminal::with_output(|out| list(fs.paths(), bytes(&args.path), &options, out))?;
    Ok(Outcome::Done)
}
