//! `diskwright ls`.

use std::ffi::OsString;

use clap::Args;
use diskwright::list::{ListOptions, Style, list};
use diskwright::{Outcome, Result};

use crate::commands::arguments::{ImageArgs, bytes};
use crate::terminal;

/// List a directory of an image
///
/// Everything is listed but "." and "..", sorted by the bytes of the names. On a terminal, bytes
/// of names that could do harm there are escaped; elsewhere names come as they are.
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

    /// List what is in the directories below, too
    #[arg(short = 'R', long)]
    recursive: bool,

    /// Write one JSON object per file and line
    #[arg(long, conflicts_with = "long")]
    json: bool,
}

pub(crate) fn run(args: &LsArgs) -> Result<Outcome> {
    let image = args.image.open()?;
    let style = match (args.json, args.long) {
        (true, _) => Style::Json,
        (_, true) => Style::Long,
        _ => Style::Names,
    };
    let escape = terminal::escapes_names();
    let options = ListOptions::default().style(style).recursive(args.recursive).escape(escape);
    terminal::with_output(|out| list(image.paths(), bytes(&args.path), &options, out))?;
    Ok(Outcome::Done)
}
