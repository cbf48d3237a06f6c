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

The programs take the options of their namesakes. One that is not supported is refused by name. They end with the
statuses of their namesakes, too. diskwright links DIR makes links by which they are called without \"diskwright as\".";

/// Be a program of e2fsprogs or xfsprogs: take its options, and end with its status
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct AsArgs {
    /// Name of the program, such as mke2fs; "list" lists all
    name: OsString,

    /// Its arguments
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
    Err(Error::Usage(format!("{name} is no program that this one can be: diskwright as list")))
}
