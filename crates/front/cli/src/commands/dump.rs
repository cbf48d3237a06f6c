//! `diskwright dump`.

use std::ffi::OsString;
use std::io::{self, Write};

use clap::{Args, ValueEnum};
use diskwright::dump::{DumpSelection, InodeSelector, dump};
use diskwright::{Error, Outcome, Result};

use crate::commands::arguments::{ImageArgs, bytes};
use crate::terminal;

const NOTES: &str = "\
Examples:
  diskwright dump root.img superblock
  diskwright dump root.img group 3
  diskwright dump xfs.img ag 0
  diskwright dump root.img inode /etc/passwd
  diskwright dump root.img directory 2 --json
  diskwright dump root.img block 1027
  diskwright dump root.img journal

Fields have the names of the format documentation. The journal or log is not replayed, so the output shows the \
blocks as stored. A damaged structure is shown as far as it can be decoded, the damage is reported, and the exit status \
is 3.";

/// Show on-disk structures of an image
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct DumpArgs {
    #[command(flatten)]
    image: ImageArgs,

    /// Structure to show
    what: StructureKind,

    /// Number of the group or block, or number or path of the inode or directory
    #[arg(value_name = "N|PATH")]
    which: Option<OsString>,

    /// Write the result as one JSON object to standard output
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StructureKind {
    Superblock,
    /// Block group of ext4 or allocation group of XFS
    #[value(alias = "ag")]
    Group,
    Inode,
    Directory,
    Block,
    Journal,
}

fn what(args: &DumpArgs) -> Result<DumpSelection> {
    let usage = |problem: &str| Error::Usage(problem.to_owned());
    let number = |problem| {
        let number = args.which.as_ref().and_then(|which| which.to_str()?.parse::<u64>().ok());
        number.ok_or_else(|| usage(problem))
    };
    let target = |problem| {
        let target = args.which.as_ref().map(|which| InodeSelector::parse(bytes(which)));
        target.ok_or_else(|| usage(problem))
    };
    if matches!(args.what, StructureKind::Superblock | StructureKind::Journal)
        && args.which.is_some()
    {
        return Err(usage("an image has only one such structure: leave out the last argument"));
    }
    Ok(match args.what {
        StructureKind::Superblock => DumpSelection::Superblock,
        StructureKind::Journal => DumpSelection::Journal,
        StructureKind::Group => {
            let group = number("the group number is missing: add it, such as group 0")?;
            DumpSelection::Group(u32::try_from(group).map_err(|_| usage("no such group"))?)
        }
        StructureKind::Block => {
            DumpSelection::Block(number("the block number is missing: add it, such as block 1027")?)
        }
        StructureKind::Inode => {
            DumpSelection::Inode(target("the inode is missing: add its number or a path")?)
        }
        StructureKind::Directory => DumpSelection::Directory(target(
            "the directory is missing: add its inode number or a path",
        )?),
    })
}

pub(crate) fn run(args: &DumpArgs) -> Result<Outcome> {
    let what = what(args)?;
    let dump = dump(&args.image.image, &args.image.options()?, &what)?;
    terminal::with_output(|out| {
        let written = if args.json {
            terminal::write_json_pretty(&mut *out, &dump)
                .map_err(io::Error::from)
                .and_then(|()| writeln!(out))
        } else {
            write!(out, "{}", dump.fields)
        };
        written.map_err(Error::Output)
    })?;
    for problem in dump.remarks.iter().chain(&dump.problems) {
        terminal::message(problem);
    }
    Ok(dump.outcome())
}
