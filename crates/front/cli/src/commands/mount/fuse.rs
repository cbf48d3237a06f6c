//! `diskwright mount --via fuse`.

use std::path::Path;

use diskwright::mount::{MountOptions, unmount_on_signals};
use diskwright::{Error, ImageOptions, Outcome, Result};

use super::{MountArgs, background};
use crate::commands::session;
use crate::terminal;

pub(super) fn run(args: &MountArgs, mountpoint: &Path) -> Result<Outcome> {
    if args.map_user.is_some() {
        return Err(Error::Usage(
            "--map-user: it needs --via nfs; mounts by FUSE have -o uid=N,gid=N".into(),
        ));
    }
    let options = options(args);
    // Do everything that can fail before the image is opened and marked as in use.
    let background = background::Detach::of(args)?;
    let open = || args.open(&how(args, &options)?, options.read_only, options.recover);
    let image = match open() {
        Ok(image) => image,
        Err(error) => return Ok(refused(args, &options, &error)),
    };
    args.show_remarks(&image, options.silent);
    let mount = image.mount(mountpoint, options)?;
    unmount_on_signals(mount.unmounter())?;
    mount.serve(|| {
        if let Some(background) = background {
            background.detach();
        }
    })?;
    Ok(Outcome::Done)
}

pub(super) fn checked_options(words: &str) -> Result<(), String> {
    MountOptions::default().apply(words)
}

fn options(args: &MountArgs) -> MountOptions {
    let mut options = MountOptions::default();
    for words in &args.options {
        // The words were checked when the arguments were parsed.
        let _ = options.apply(words);
    }
    options
}

/// Returns the options for opening the image, with those of `-o`.
fn how(args: &MountArgs, options: &MountOptions) -> Result<ImageOptions> {
    let mut how = args.image.options()?.defer_creates(options.defer_creates);
    how.devices.extend(&options.devices);
    Ok(how)
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
