//! `diskwright unmount`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use diskwright::mount::{Released, UnmountOptions, unmount};
use diskwright::{Outcome, Result, text};

use crate::terminal;

const NOTES: &str = "\
Examples:
  diskwright unmount /mnt && diskwright check root.img

umount and fusermount3 -u also unmount an image, but return while the process that serves the mount can still write to \
the image.";

/// Unmount an image and wait until it is completely written and free for other programs
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct UnmountArgs {
    /// Directory on which the image is mounted
    mountpoint: PathBuf,

    /// Detach the mount at once although programs use it; it ends when they finish
    #[arg(short, long)]
    lazy: bool,

    /// Wait at most SECONDS for the image
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u32,
}

pub(crate) fn run(args: &UnmountArgs) -> Result<Outcome> {
    let patience = Duration::from_secs(args.timeout.into());
    let options = UnmountOptions::default().lazy(args.lazy).patience(patience);
    let released = unmount(&args.mountpoint, &options)?;
    let shown = |path: &PathBuf| text::shown(path).to_string();
    match &released {
        Released::Free => {}
        Released::Unknown => {
            terminal::message(
                &"unmounted; its image cannot be determined, so the server can still write to it",
            );
        }
        Released::Mounted(point) => {
            terminal::message(&format_args!("unmounted; it is still mounted at {}", shown(point)));
        }
        Released::Crashed(image) => {
            terminal::message(&format_args!(
                "unmounted, but {} needs recovery: its server was killed or failed (see mount \
                 --log); the next command that changes or mounts it recovers it",
                shown(image)
            ));
            return Ok(Outcome::Io);
        }
        Released::InUse(image) => {
            terminal::message(&format_args!(
                "unmounted, but {} is still in use after {} seconds; programs may still use the \
                 mount",
                shown(image),
                args.timeout
            ));
            return Ok(Outcome::Io);
        }
    }
    Ok(Outcome::Done)
}
