//! `mount.fuse.diskwright`, `mount.diskwright` and `fuse2fs`: mounts with the arguments of mount(8) and fuse2fs(1).
//!
//! The program executes itself as `diskwright mount`, which serves the mount.

mod args;

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::failure::{Ended, Failure, STATUSES, Statuses};
use crate::invoked::Invoked;
use args::Args;

/// Exit statuses of mount(8): invalid arguments, and failed mount.
const OF_MOUNT: Statuses = Statuses { usage: 1, failed: 32 };

/// Entry point for calls by mount(8).
pub(crate) fn helper(arguments: Vec<OsString>, invoked: &Invoked) -> Ended {
    begin(&args::of_mount(arguments, OF_MOUNT)?, invoked, OF_MOUNT)
}

/// Entry point for calls as fuse2fs.
pub(crate) fn fuse2fs(arguments: Vec<OsString>, invoked: &Invoked) -> Ended {
    let args = args::of_fuse2fs(arguments, STATUSES)?;
    if args.only_version {
        return Ok(invoked.version());
    }
    begin(&args, invoked, STATUSES)
}

fn begin(args: &Args, invoked: &Invoked, statuses: Statuses) -> Ended {
    if args.is_trial {
        return Ok(0);
    }
    let failed = |e: io::Error| -> Failure {
        statuses.failed(format_args!("cannot start this program again: {e}"))
    };
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(program);
    command.arg0("diskwright").arg("mount");
    // For the messages of that process.
    command.arg("--called-as").arg(invoked.name).args(args.arguments());
    if args.foreground {
        // The serving process handles signals.
        return Err(failed(command.exec()));
    }
    // The child has printed the error.
    Ok(match command.status().map_err(failed)?.code() {
        Some(0) => 0,
        Some(2) => statuses.usage,
        _ => statuses.failed,
    })
}
