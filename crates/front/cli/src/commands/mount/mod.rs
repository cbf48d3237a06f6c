//! `diskwright mount`.

mod background;
mod help;

use std::path::{Path, PathBuf};

use clap::Args;
use diskwright::mount::{MountOptions, unmount_on_signals};
use diskwright::{Error, Image, ImageOptions, Outcome, Result};

use super::session;
use crate::commands::arguments::ImageArgs;
use crate::terminal;

/// Mount an image on a directory with FUSE, without root
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

    /// Serve the mount in the foreground, until it is unmounted or Ctrl-C is pressed
    #[arg(long)]
    foreground: bool,

    /// Write all changes to FILE, which is created if missing. The image is not modified and can be read-only. The command
    /// commit creates an image from FILE
    #[arg(long, value_name = "FILE")]
    overlay: Option<PathBuf>,

    /// Mount read-only, and write the order of all reads to FILE after the unmount, for publish --order
    #[cfg(feature = "anywhere")]
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

pub(crate) fn run(args: &MountArgs) -> Result<Outcome> {
    if let Some(program) = &args.called_as {
        terminal::speak_as(program);
    }
    if !args.foreground && !args.is_background {
        return background::start();
    }
    let options = args.options();
    // Do everything that can fail before the image is opened and marked as in use.
    let background = args.is_background.then(|| background::Detach::new(args.log.as_deref()));
    let background = background.transpose()?;
    let mountpoint = absolute(&args.mountpoint)?;
    let image = match open(args, &options) {
        Ok(image) => image,
        Err(error) => return Ok(refused(args, &options, &error)),
    };
    let remarks = image.remarks().iter().filter(|_| !image.is_writable() && !options.silent);
    remarks.for_each(|remark| terminal::message(remark));
    let mount = image.mount(&mountpoint, options)?;
    unmount_on_signals(mount.unmounter())?;
    mount.serve(|| {
        if let Some(background) = background {
            background.detach();
        }
    })?;
    Ok(Outcome::Done)
}

/// Returns the options for opening the image, with those of `-o`.
fn how(args: &MountArgs, options: &MountOptions) -> Result<ImageOptions> {
    let mut how = args.image.options()?.defer_creates(options.defer_creates);
    how.devices.extend(&options.devices);
    Ok(how)
}

fn open(args: &MountArgs, options: &MountOptions) -> Result<Image> {
    let how = how(args, options)?;
    let path = &args.image.image;
    if let Some(overlay) = &args.overlay {
        return how.open_over(path, overlay);
    }
    #[cfg(feature = "anywhere")]
    if let Some(record) = &args.record {
        return how.open_recorded(path, record);
    }
    if options.read_only && options.recover && !how.norecovery {
        return how.open_recovered(path);
    }
    how.write(!options.read_only).open_to_mount(path)
}

impl MountArgs {
    fn options(&self) -> MountOptions {
        let mut options = MountOptions::default();
        for words in &self.options {
            // The words were checked when the arguments were parsed.
            let _ = options.apply(words);
        }
        options
    }
}

fn checked_options(words: &str) -> Result<String, String> {
    MountOptions::default().apply(words).map(|()| words.to_owned())
}

/// Prints why an image cannot be opened, and whether it could be opened read-only.
fn refused(args: &MountArgs, options: &MountOptions, error: &Error) -> Outcome {
    let outcome = session::told(error);
    let is_taken = matches!(error, Error::InUse { .. });
    let opens = || how(args, options)?.open(&args.image.image);
    if !options.read_only && !is_taken && opens().is_ok() {
        terminal::message(&"mount it read-only with -o ro");
    }
    outcome
}

/// Returns an absolute path, because the process changes its directory to the root.
fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|source| Error::Host {
        operation: "find",
        path: path.to_owned(),
        source,
    })
}
