//! `diskwright mounts`.

use std::io::Write;

use clap::Args;
use diskwright::mounts::{MountEntry, MountWay};
use diskwright::{Error, Outcome, Result, text};
use serde::Serialize;

use crate::terminal;

const NOTES: &str = "\
Examples:
  diskwright mounts
  diskwright mounts --json | jq -r .directory

Each line has the directory, the image, the transport (fuse or nfs), and ro or rw. A name chosen with -o fsname=NAME \
replaces the image. Mounts of other users by NFS are listed for root only.";

/// List the mounts of this program
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct MountsArgs {
    /// Write one JSON object per mount, one per line
    #[arg(long)]
    json: bool,
}

/// A mount, as printed.
#[derive(Debug, Serialize)]
struct MountLine {
    directory: String,
    image: String,
    via: &'static str,
    read_only: bool,
}

pub(crate) fn run(args: &MountsArgs) -> Result<Outcome> {
    let table = MountEntry::all().map_err(|source| Error::Host {
        operation: "read",
        path: "the table of mounts".into(),
        source,
    })?;
    let mounts: Vec<_> = table.iter().filter_map(line).collect();
    terminal::with_output(|out| mounts.iter().try_for_each(|mount| write(out, mount, args.json)))?;
    Ok(Outcome::Done)
}

/// Returns the line of a mount of this program. Its server must run.
fn line(mount: &MountEntry) -> Option<MountLine> {
    let via = match mount.way? {
        MountWay::Fuse => "fuse",
        MountWay::Nfs { is_served: true, .. } => "nfs",
        MountWay::Nfs { is_served: false, .. } => return None,
    };
    let (directory, image) = (text::shown(&mount.point), text::shown(&mount.source));
    Some(MountLine { directory, image, via, read_only: mount.is_read_only() })
}

fn write(out: &mut impl Write, mount: &MountLine, json: bool) -> Result<()> {
    let MountLine { directory, image, via, read_only } = mount;
    let text = match json {
        true => serde_json::to_string(mount).map_err(|e| Error::Output(e.into()))?,
        false => format!("{directory}\t{image}\t{via}\t{}", if *read_only { "ro" } else { "rw" }),
    };
    writeln!(out, "{text}").map_err(Error::Output)
}
