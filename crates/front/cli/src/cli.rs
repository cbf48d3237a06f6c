//! The command line and its commands. The arguments of each command are in its own file.

use clap::{Parser, Subcommand};

use crate::commands::{
    apply, as_program, build, cat, chattr, check, chmod, chown, convert, copy, cp, dedupe, devices,
    diff, dump, extract, find, grow, info, links, ln, ls, lsattr, map, mkdir, mount, mounts, mv,
    paths, quota, recover, repair, rm, rmdir, serve, setfattr, shrink, trim, truncate, unmount,
    workload,
};

#[cfg(feature = "anywhere")]
use crate::commands::volume;

const EXAMPLES: &str = "\
Examples:
  diskwright build rootfs/ root.img --size 2G --label root
  diskwright build rootfs/ root.img --fs xfs
  docker export web | diskwright build - web.img --free 512M
  diskwright convert root.img root.xfs --fs xfs --size min
  diskwright ls -l root.img /etc
  diskwright cat --partition 2 disk.img /etc/fstab
  diskwright find root.img /usr --name '*.so*' --type f
  diskwright extract root.img - --path /etc | tar -t
  diskwright cp app.conf root.img:/etc/app.conf
  diskwright rm -r root.img /var/cache/apt
  diskwright diff old.img new.img -o layer.tar.gz && diskwright apply layer.tar.gz old.img
  diskwright check root.img
  diskwright repair root.img
  diskwright mount root.img /mnt && ls /mnt && diskwright unmount /mnt

Sizes are in bytes, or a number followed by K, M, G or T (powers of 1024).

Exit status:
  0  success
  1  negative result: file not found in the image, damage found, incomplete extraction
  2  invalid arguments
  3  damaged or unsupported image or archive
  4  read or write error, or no space left";

/// Returns the examples that apply to this host.
fn examples() -> String {
    let has = |line: &&str| cfg!(unix) || !line.contains("diskwright mount");
    EXAMPLES.lines().filter(has).collect::<Vec<_>>().join("\n")
}

/// Returns the purpose of the program on this host.
fn purpose() -> String {
    let mount = if cfg!(unix) { ", mount" } else { "" };
    format!(
        "Build, read, edit{mount}, check and repair ext2, ext3, ext4 and XFS images without root or a kernel driver"
    )
}

/// Arguments of the program.
#[derive(Debug, Parser)]
#[command(name = "diskwright", version, about = purpose(), after_help = examples(), max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,

    #[command(flatten)]
    pub(crate) places: crate::commands::places::PlacesArgs,
}

/// The commands, one per file.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Build(Box<build::BuildArgs>),
    Convert(convert::ConvertArgs),
    Copy(copy::CopyArgs),
    Info(info::InfoArgs),
    Devices(devices::DevicesArgs),
    Ls(ls::LsArgs),
    Cat(cat::CatArgs),
    Find(find::FindArgs),
    Extract(extract::ExtractArgs),
    Cp(cp::CpArgs),
    Paths(paths::PathsArgs),
    Mount(mount::MountArgs),
    Unmount(unmount::UnmountArgs),
    Mounts(mounts::MountsArgs),
    Serve(serve::ServeArgs),
    #[cfg(feature = "anywhere")]
    Volume(volume::VolumeArgs),
    Apply(apply::ApplyArgs),
    Diff(diff::DiffArgs),
    Mkdir(mkdir::MkdirArgs),
    Rm(rm::RmArgs),
    Rmdir(rmdir::RmdirArgs),
    Mv(mv::MvArgs),
    Ln(ln::LnArgs),
    Chmod(chmod::ChmodArgs),
    Chown(chown::ChownArgs),
    Chattr(chattr::ChattrArgs),
    Lsattr(lsattr::LsattrArgs),
    Setfattr(setfattr::SetfattrArgs),
    Truncate(truncate::TruncateArgs),
    Quota(quota::QuotaArgs),
    Dedupe(dedupe::DedupeArgs),
    Trim(trim::TrimArgs),
    Recover(recover::RecoverArgs),
    Check(check::CheckArgs),
    Clone(crate::commands::clone::CloneArgs),
    Snapshot(crate::commands::snapshot::SnapshotArgs),
    Reset(crate::commands::reset::ResetArgs),
    Commit(crate::commands::commit::CommitArgs),
    Repair(repair::RepairArgs),
    Grow(grow::GrowArgs),
    Shrink(shrink::ShrinkArgs),
    Dump(dump::DumpArgs),
    Map(map::MapArgs),
    Deleted(crate::commands::deleted::DeletedArgs),
    Timeline(crate::commands::timeline::TimelineArgs),
    #[cfg(feature = "anywhere")]
    Bundle(crate::commands::bundle::BundleArgs),
    #[cfg(feature = "anywhere")]
    Publish(crate::commands::publish::PublishArgs),
    #[cfg(feature = "anywhere")]
    Gc(crate::commands::gc::GcArgs),
    Workload(workload::WorkloadArgs),
    As(as_program::AsArgs),
    Links(links::LinksArgs),
}
