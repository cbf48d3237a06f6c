//! The arguments.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use diskwright::OpenImage;

use crate::commands::{
    build, cat, chattr, chmod, chown, cp, dump, extract, find, info, ln, ls, lsattr, mkdir, mount,
    mv, paths, recover, rm, rmdir, setfattr, trim, truncate, unmount, workload,
};

const EXAMPLES: &str = "\
Examples:
  diskwright build rootfs/ root.img --size 2G --label root
  diskwright build rootfs/ root.img --fs xfs
  docker export web | diskwright build - web.img --free 512M
  diskwright ls -l root.img /etc
  diskwright cat --partition 2 disk.img /etc/fstab
  diskwright find root.img /usr --name '*.so*' --type f
  diskwright extract root.img - --path /etc | tar -t
  diskwright cp app.conf root.img:/etc/app.conf
  diskwright rm -r root.img /var/cache/apt
  diskwright mount root.img /mnt && ls /mnt && diskwright unmount /mnt

Sizes are bytes, or a number and K, M, G or T (powers of 1024).

Exit status:
  0  done
  1  the answer is no: no such file in the image, or not everything could be extracted
  2  the arguments make no sense
  3  the image or archive is damaged or unsupported
  4  reading or writing failed, or there is no space";

/// Build and read ext4 and XFS images, and change ext4 ones, without root and without a kernel driver
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Where in a file the image is. Part of every command that reads one.
#[derive(Debug, Args)]
pub(crate) struct ImageArgs {
    /// Image file or block device
    pub(crate) image: PathBuf,

    #[command(flatten)]
    place: PlaceArgs,

    /// Read an image as it lies: though its journal or log holds changes that are not in their places,
    /// or another program is changing it
    #[arg(long, help_heading = "Image")]
    stale: bool,
}

/// Where in its file an image is.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct PlaceArgs {
    /// First byte of the image, if it lies inside a larger file (K, M, G and T may follow)
    #[arg(
        long,
        value_name = "BYTES",
        value_parser = diskwright::text::parse_size,
        default_value = "0",
        hide_default_value = true,
        help_heading = "Image",
        conflicts_with = "partition"
    )]
    offset: u64,

    /// Number of the partition the image is in (MBR or GPT, counted as Linux does)
    #[arg(long, value_name = "N", help_heading = "Image")]
    partition: Option<u32>,
}

impl PlaceArgs {
    /// How an image is opened that lies there.
    pub(crate) fn options(self, stale: bool) -> OpenImage {
        let Self { offset, partition } = self;
        OpenImage { offset, partition, stale, ..OpenImage::default() }
    }
}

/// Where in a file the image is. Part of every command that changes one.
#[derive(Debug, Args)]
pub(crate) struct ImageToEdit {
    /// Image file or block device
    pub(crate) image: PathBuf,

    #[command(flatten)]
    pub(crate) place: PlaceArgs,
}

impl ImageArgs {
    /// How the image is opened.
    pub(crate) fn options(&self) -> OpenImage {
        self.place.options(self.stale)
    }

    pub(crate) fn open(&self) -> diskwright::Result<diskwright::Image> {
        open_to_read(&self.image, &self.options())
    }

    /// As [`Self::open`], though the image may have no root directory.
    pub(crate) fn open_rootless(&self) -> diskwright::Result<diskwright::Image> {
        diskwright::Image::open_rootless(&self.image, &self.options()).map(told)
    }
}

/// Opens an image for reading, and says what is to be known about it.
pub(crate) fn open_to_read(
    path: &std::path::Path,
    options: &OpenImage,
) -> diskwright::Result<diskwright::Image> {
    diskwright::Image::open(path, options).map(told)
}

/// Says what is to be known about an image.
fn told(image: diskwright::Image) -> diskwright::Image {
    image.remarks().iter().for_each(|remark| crate::terminal::message(remark));
    image
}

/// The commands, each in a file of its own.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Build(build::BuildArgs),
    Info(info::InfoArgs),
    Ls(ls::LsArgs),
    Cat(cat::CatArgs),
    Find(find::FindArgs),
    Extract(extract::ExtractArgs),
    Cp(cp::CpArgs),
    Paths(paths::PathsArgs),
    Mount(mount::MountArgs),
    Unmount(unmount::UnmountArgs),
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
    Trim(trim::TrimArgs),
    Recover(recover::RecoverArgs),
    Dump(dump::DumpArgs),
    Workload(workload::WorkloadArgs),
}

/// A path in an image, as the bytes it was typed as.
pub(crate) fn bytes(text: &std::ffi::OsStr) -> &[u8] {
    use std::os::unix::ffi::OsStrExt;
    text.as_bytes()
}
