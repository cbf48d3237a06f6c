//! `diskwright mount --via nfs`.

use std::path::Path;

use diskwright::mount::{NfsMountOptions, check_nfs_client, mount_by_nfs};
use diskwright::{Error, Outcome, Result, stop_on_signals};

use super::{MountArgs, background};

pub(super) fn run(args: &MountArgs, mountpoint: &Path) -> Result<Outcome> {
    check_nfs_client()?;
    let options = options(args)?;
    // Do everything that can fail before the image is opened and marked as in use.
    let background = background::Detach::of(args)?;
    let end = stop_on_signals()?;
    let image = args.open(&args.image.options()?, options.read_only, options.recover)?;
    args.show_remarks(&image, options.silent);
    mount_by_nfs(image, mountpoint, &options, end, || {
        if let Some(background) = background {
            background.detach();
        }
    })?;
    Ok(Outcome::Done)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn checked_options(words: &str) -> Result<(), String> {
    NfsMountOptions::default().apply(words)
}

fn options(args: &MountArgs) -> Result<NfsMountOptions> {
    let mut options = NfsMountOptions::default();
    for words in &args.options {
        options.apply(words).map_err(|problem| Error::Usage(format!("-o {words}: {problem}")))?;
    }
    options.map_user = args.map_user.unwrap_or(options.map_user && !options.allow_other);
    Ok(options)
}
