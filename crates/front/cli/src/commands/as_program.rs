//! `diskwright as`.

use std::ffi::OsString;
use std::io::Write;

use clap::Args;
use diskwright::{Error, Outcome, Result};
use dropin::Program;

const NOTES: &str = "\
Examples:
  diskwright as mkfs.ext4 -q -L root -d rootfs/ root.img 2G
  diskwright as e2fsck -pf root.img
  diskwright as resize2fs -M root.img

The programs take the options and return the exit statuses of the originals. An unsupported option is refused by \
name. To run them under their own names, create links with: diskwright links DIR";

/// Run as a program of e2fsprogs or xfsprogs, with its options and exit statuses
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct AsArgs {
    /// Name of the program, such as mke2fs, or "list" to list all
    name: OsString,

    /// Arguments of the program
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _arguments: Vec<OsString>,
}

pub(crate) fn run(args: &AsArgs) -> Result<Outcome> {
    if args.name == "list" {
        return crate::terminal::with_output(|out| {
            let mut names = Program::all().map(Program::name);
            names.try_for_each(|name| writeln!(out, "{name}")).map_err(Error::Output)
        })
        .map(|()| Outcome::Done);
    }
    // Known programs are handled before the arguments are parsed.
    let name = diskwright::text::escaped(args.name.as_encoded_bytes());
    Err(Error::Usage(format!(
        "{name} is not a supported program; list them with diskwright as list"
    )))
}
