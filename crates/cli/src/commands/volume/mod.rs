//! `diskwright volume`.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use diskwright::volume::{self, Listing, NewFileSystem};
use diskwright::{Error, Format, Outcome, Result, stop_on_signals};

use crate::terminal;

const NOTES: &str = "\
Examples:
  diskwright volume create s3://bucket/home --fs xfs --size 1T
  diskwright mount s3://bucket/home /mnt
  diskwright volume snapshot s3://bucket/home monday
  diskwright volume clone s3://bucket/home@monday s3://bucket/try
  diskwright volume export s3://bucket/home@monday home.img

A volume lives in a bucket: s3://, gs:// or az://, with the credentials that the environment has for the store's own tools.
What a program on its mount has synced is in the bucket. Who mounts it has it alone: a mount of it elsewhere ends with
errors. Snapshots and clones are made at once, whatever the size.";

/// Make, copy and list volumes: file systems that live in a bucket
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct VolumeArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make a volume with an empty file system
    Create(CreateArgs),
    /// Keep a volume as it is now, under a name
    Snapshot(SnapshotArgs),
    /// Make a volume that begins as another one, or a snapshot of one, in the same bucket
    Clone(CloneArgs),
    /// List the snapshots of a volume, or the volumes below a prefix
    List(ListArgs),
    /// Copy a volume, or a snapshot of one, into a sparse raw image
    Export(ExportArgs),
    /// Remove a volume with its snapshots, or what is left of one
    Delete(DeleteArgs),
}

#[derive(Debug, Args)]
struct CreateArgs {
    /// Where: as s3://bucket/name
    url: String,

    /// Its file system
    #[arg(long, value_enum, default_value_t = Fs::Ext4)]
    fs: Fs,

    /// Its size (K, M, G and T may follow); it costs nothing until it is used
    #[arg(long, value_name = "BYTES", value_parser = diskwright::text::parse_size)]
    size: u64,

    /// Label (ext4: at most 16 bytes, XFS: 12)
    #[arg(long)]
    label: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Fs {
    Ext4,
    Xfs,
}

#[derive(Debug, Args)]
struct SnapshotArgs {
    /// The volume
    url: String,

    /// Name of the snapshot
    name: String,

    #[command(flatten)]
    open: TakeOverArgs,
}

#[derive(Debug, Args)]
struct TakeOverArgs {
    /// Open the volume here first, though a mount elsewhere then ends with errors
    #[arg(long)]
    take_over: bool,
}

#[derive(Debug, Args)]
struct CloneArgs {
    /// The volume, or URL@SNAPSHOT
    url: String,

    /// The new volume
    to: String,

    #[command(flatten)]
    open: TakeOverArgs,
}

#[derive(Debug, Args)]
struct ListArgs {
    /// A volume, or a prefix that volumes are in
    url: String,
}

#[derive(Debug, Args)]
struct ExportArgs {
    /// The volume, or URL@SNAPSHOT
    url: String,

    /// The image to make
    file: PathBuf,

    /// Overwrite an existing file
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
struct DeleteArgs {
    /// The volume
    url: String,
}

pub(crate) fn run(args: &VolumeArgs) -> Result<Outcome> {
    match &args.action {
        Action::Create(args) => create(args)?,
        Action::Snapshot(args) => volume::snapshot(&args.url, &args.name, args.open.take_over)?,
        Action::Clone(args) => volume::clone(&args.url, &args.to, args.open.take_over)?,
        Action::List(args) => list(args)?,
        Action::Export(args) => export(args)?,
        Action::Delete(args) => volume::delete(&args.url)?,
    }
    Ok(Outcome::Done)
}

fn create(args: &CreateArgs) -> Result<()> {
    let format = match args.fs {
        Fs::Ext4 => Format::Ext4,
        Fs::Xfs => Format::Xfs,
    };
    let label = args.label.clone().unwrap_or_default().into_bytes();
    volume::create(&args.url, &NewFileSystem { format, size: args.size, label })
}

fn list(args: &ListArgs) -> Result<()> {
    let names = match volume::list(&args.url)? {
        Listing::Volume(snapshots) => snapshots.into_iter().map(|it| it.name).collect(),
        Listing::Prefix(names) => names,
    };
    terminal::with_output(|out| {
        let mut shown = names.iter().map(|name| address::safe_line(name));
        shown.try_for_each(|name| writeln!(out, "{name}")).map_err(Error::Output)
    })
}

fn export(args: &ExportArgs) -> Result<()> {
    let stop = stop_on_signals()?;
    volume::export(&args.url, &args.file, args.force, &mut |_, _| {
        if stop.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(std::io::ErrorKind::Interrupted.into());
        }
        Ok(())
    })
}
