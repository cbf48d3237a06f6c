//! `diskwright volume`.

mod objects;

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use diskwright::volume::{self, NewFileSystem, VolumeListing};
use diskwright::{Error, Format, Outcome, Result, stop_on_signals};

use crate::terminal;

const NOTES: &str = "\
Examples:
  diskwright volume create s3://bucket/home --fs xfs --size 1T
  diskwright mount s3://bucket/home /mnt
  diskwright volume snapshot s3://bucket/home monday
  diskwright volume clone s3://bucket/home@monday s3://bucket/try
  diskwright volume export s3://bucket/home@monday home.img
  diskwright volume gc s3://bucket/home

A volume is stored in a bucket (s3://, gs:// or az://). Credentials come from the environment variables of the store's own \
tools. Data that a program syncs on the mount is durable in the bucket. Only one mount can use a volume: a second mount \
takes it over, and the first one returns errors. Snapshots and clones take constant time.";

/// Create, copy, list and delete volumes, which are file systems in object storage
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct VolumeArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create a volume with an empty file system
    Create(CreateArgs),
    /// Create a named snapshot of a volume
    Snapshot(SnapshotArgs),
    /// Create a volume as a copy of another volume or of a snapshot, in the same bucket
    Clone(CloneArgs),
    /// List the snapshots of a volume, or the volumes below a prefix
    List(ListArgs),
    /// Copy a volume or a snapshot to a sparse raw image
    Export(ExportArgs),
    /// Delete a volume with its snapshots, or the rest of a partly deleted volume
    Delete(DeleteArgs),
    /// Show the size of the data of a volume or of a snapshot, and the number of its objects
    Stat(objects::StatArgs),
    /// Check that all objects with data of a volume or of a snapshot exist
    Check(objects::CheckArgs),
    /// Remove objects with data that nothing refers to
    Gc(objects::GcArgs),
}

#[derive(Debug, Args)]
struct CreateArgs {
    /// Address of the new volume, such as s3://bucket/name
    url: String,

    /// Select the file-system format
    #[arg(long, value_parser = crate::commands::arguments::format(), default_value = "ext4")]
    fs: Format,

    /// Set the size, in bytes or with K, M, G or T. Unused space is not stored
    #[arg(long, value_name = "BYTES", value_parser = diskwright::text::parse_size)]
    size: u64,

    /// Set the label, at most 16 bytes for ext4 and 12 for XFS
    #[arg(long)]
    label: Option<String>,
}

#[derive(Debug, Args)]
struct SnapshotArgs {
    /// Address of the volume
    url: String,

    /// Name of the snapshot
    name: String,

    #[command(flatten)]
    open: TakeOverArgs,
}

#[derive(Debug, Args)]
struct TakeOverArgs {
    /// Take the volume over from a mount on another machine, which then returns errors
    #[arg(long)]
    take_over: bool,
}

#[derive(Debug, Args)]
struct CloneArgs {
    /// Address of the volume, or URL@SNAPSHOT
    url: String,

    /// Address of the new volume
    to: String,

    #[command(flatten)]
    open: TakeOverArgs,
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Address of a volume, or a prefix of volumes
    url: String,
}

#[derive(Debug, Args)]
struct ExportArgs {
    /// Address of the volume, or URL@SNAPSHOT
    url: String,

    /// Image to create
    file: PathBuf,

    /// Replace an existing file
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
struct DeleteArgs {
    /// Address of the volume
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
        Action::Stat(args) => objects::stat(args)?,
        Action::Check(args) => return objects::check(args),
        Action::Gc(args) => objects::gc(args)?,
    }
    Ok(Outcome::Done)
}

fn create(args: &CreateArgs) -> Result<()> {
    let label = args.label.clone().unwrap_or_default().into_bytes();
    volume::create(&args.url, &NewFileSystem { format: args.fs, size: args.size, label })
}

fn list(args: &ListArgs) -> Result<()> {
    let names = match volume::list(&args.url)? {
        VolumeListing::Volume(snapshots) => snapshots.into_iter().map(|it| it.name).collect(),
        VolumeListing::Prefix(names) => names,
    };
    terminal::with_output(|out| {
        let mut shown = names.iter().map(|name| disk::address::safe_line(name));
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
