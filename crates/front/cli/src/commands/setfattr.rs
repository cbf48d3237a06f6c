//! `diskwright setfattr`.

use std::ffi::OsString;

use clap::Args;
use diskwright::edit::{SymlinkPolicy, parse_xattr_value};
use diskwright::{Error, Outcome, Result};

use super::session;
use crate::commands::arguments::{ImageToEdit, bytes};

const NOTES: &str = "\
Examples:
  diskwright setfattr -n user.origin -v upstream root.img /opt/app
  diskwright setfattr -n user.key -v 0x00ff01 root.img /opt/app
  diskwright setfattr -x user.origin root.img /opt/app

To show attributes, use: diskwright dump IMAGE inode PATH";

/// Set or remove extended attributes of files in an image
#[derive(Debug, Args)]
#[command(after_help = NOTES, disable_help_flag = true)]
pub(crate) struct SetfattrArgs {
    #[command(flatten)]
    image: ImageToEdit,

    /// Files in the image
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,

    /// Set the attribute NAME, which includes its namespace, such as user.origin
    #[arg(short, long, required_unless_present = "remove")]
    name: Option<OsString>,

    /// Set the value: text (in double quotes with \\, \" and \000), 0x and hexadecimal digits, or 0s and base64 [default:
    /// empty]
    #[arg(short, long, requires = "name", allow_hyphen_values = true)]
    value: Option<OsString>,

    /// Remove the attribute NAME
    #[arg(short = 'x', long, value_name = "NAME", conflicts_with = "name")]
    remove: Option<OsString>,

    /// Change symbolic links instead of their targets
    #[arg(short = 'h', long)]
    no_dereference: bool,

    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

pub(crate) fn run(args: &SetfattrArgs) -> Result<Outcome> {
    let links = if args.no_dereference { SymlinkPolicy::Keep } else { SymlinkPolicy::Follow };
    let value = args.value.as_deref().map(bytes).unwrap_or_default();
    let value = parse_xattr_value(value).map_err(|e| Error::Usage(format!("--value: {e}")))?;
    session::edit(&args.image, None, |editor| {
        Ok(session::each(&args.paths, |path| match (&args.name, &args.remove) {
            (Some(name), _) => editor.set_xattr(path, links, bytes(name), &value),
            (None, Some(name)) => editor.remove_xattr(path, links, bytes(name)),
            (None, None) => Ok(()),
        }))
    })
}
