//! `diskwright mount`.

mod background;
#[cfg(target_os = "linux")]
mod fuse;
mod help;
mod nfs;

use std::path::{Path, PathBuf};

use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};
use diskwright::{Error, Image, ImageOptions, Outcome, Result};

use crate::commands::arguments::ImageArgs;
use crate::terminal;

/// Mount an image on a directory: with FUSE, without root, or with the NFS client of the kernel
#[derive(Debug, Args)]
#[command(after_help = help::NOTES)]
pub(crate) struct MountArgs {
    #[command(flatten)]
    image: ImageArgs,

    /// Directory to mount the image on
    mountpoint: PathBuf,

    /// Set mount options, separated by commas, such as ro,noatime (repeatable). The list is below
    #[arg(short, long, value_name = "OPTIONS", value_parser = checked_options)]
    options: Vec<String>,

    /// Mount with this transport of the kernel
    #[arg(long, value_name = "WAY", default_value = DEFAULT_WAY)]
    via: Way,

    /// With --via nfs: show all files as files of this user, and permit all operations. Changes keep the owners in the
    /// image. The default on macOS
    #[arg(long, value_name = "yes|no", num_args = 0..=1, require_equals = true, default_missing_value = "yes", value_parser = BoolishValueParser::new())]
    map_user: Option<bool>,

    /// Serve the mount in the foreground, until it is unmounted or Ctrl-C is pressed
    #[arg(long)]
    foreground: bool,

    /// Write all changes to FILE, which is created if missing. The image is not modified and can be read-only. The command
    /// commit creates an image from FILE
    #[arg(long, value_name = "FILE")]
    overlay: Option<PathBuf>,

    /// Mount read-only, and write the order of all reads to FILE after the unmount, for publish --order
    #[cfg(all(feature = "anywhere", target_os = "linux"))]
    #[arg(long, value_name = "FILE", conflicts_with = "overlay")]
    record: Option<PathBuf>,

    /// Append messages of a background mount to FILE [default: discard them]
    #[arg(long, value_name = "FILE", conflicts_with = "foreground")]
    log: Option<PathBuf>,

    /// Serve a mount that another process of this program was asked for
    #[arg(long, value_name = "PROGRAM", hide = true)]
    called_as: Option<String>,
    #[arg(long = background::FLAG, hide = true, conflicts_with = "foreground")]
    is_background: bool,
}

/// Transport between the kernel and this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Way {
    /// FUSE, on Linux
    Fuse,
    /// A server for the kernel's NFS client, on Linux and macOS
    Nfs,
}

/// Name of the default transport.
const DEFAULT_WAY: &str = if cfg!(target_os = "linux") { "fuse" } else { "nfs" };

pub(crate) fn run(args: &MountArgs) -> Result<Outcome> {
    if let Some(program) = &args.called_as {
        terminal::speak_as(program);
    }
    if !args.foreground && !args.is_background {
        return background::start();
    }
    let mountpoint = absolute(&args.mountpoint)?;
    match args.via {
        #[cfg(target_os = "linux")]
        Way::Fuse => fuse::run(args, &mountpoint),
        #[cfg(not(target_os = "linux"))]
        Way::Fuse => {
            Err(Error::Usage("--via fuse needs Linux; leave it out, or use --via nfs".into()))
        }
        Way::Nfs => nfs::run(args, &mountpoint),
    }
}

impl MountArgs {
    /// Opens the image, with its overlay or record.
    fn open(&self, how: &ImageOptions, read_only: bool, recover: bool) -> Result<Image> {
        let path = &self.image.image;
        if let Some(overlay) = &self.overlay {
            return how.open_over(path, overlay);
        }
        #[cfg(all(feature = "anywhere", target_os = "linux"))]
        if let Some(record) = &self.record {
            return how.open_recorded(path, record);
        }
        if read_only && recover && !how.norecovery {
            return how.open_recovered(path);
        }
        how.clone().write(!read_only).open_to_mount(path)
    }

    /// Prints why an image is mounted read-only.
    fn show_remarks(&self, image: &Image, silent: bool) {
        let is_shown = !image.is_writable() && !silent;
        image.remarks().iter().filter(|_| is_shown).for_each(|remark| terminal::message(remark));
    }
}

fn checked_options(words: &str) -> Result<String, String> {
    #[cfg(target_os = "linux")]
    fuse::checked_options(words)?;
    #[cfg(not(target_os = "linux"))]
    nfs::checked_options(words)?;
    Ok(words.to_owned())
}

/// Returns an absolute path, because the process changes its directory to the root.
fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|source| Error::Host {
        operation: "find",
        path: path.to_owned(),
        source,
    })
}
