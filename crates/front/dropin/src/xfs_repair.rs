//! `xfs_repair`, and `fsck.xfs`, which does nothing.

use std::ffi::OsString;
use std::path::PathBuf;

use diskwright::{Format, ImageOptions, OtherDevices, Outcome};

use crate::failure::{Ended, Failure, STATUSES};
use crate::invoked::{Invoked, say};
use crate::lists;
use crate::repairing::{May, repair};
use crate::supported;
use crate::words::{Word, Words};

/// Exit statuses of xfs_repair(8).
const DAMAGED: u8 = 1;
const MENDED_IF_ASKED: u8 = 4;

/// Last line of `xfs_repair -n`.
const NOT_MODIFIED: &str = "No modify flag set, skipping filesystem flush and exiting.";

#[derive(Debug, Default)]
struct Args {
    image: PathBuf,
    devices: OtherDevices,
    only_look: bool,
    tells_mending: bool,
    only_version: bool,
}

pub(crate) fn run(arguments: Vec<OsString>, invoked: &Invoked) -> Ended {
    let args = read(arguments)?;
    if args.only_version {
        return Ok(invoked.version());
    }
    let name = args.image.display();
    let open = ImageOptions::default().devices(args.devices.clone());
    if let Ok(info) = open.clone().norecovery(true).info(&args.image) {
        if info.format() != Format::Xfs {
            let found = info.format_name();
            return Err(STATUSES.failed(format_args!("{name} contains {found}; use e2fsck")));
        }
        if info.needs_recovery && !args.only_look {
            say(format_args!("{name}: replaying the log"));
            // The repair handles a log that cannot be replayed.
            let _ = open.recover(&args.image);
        }
    }
    let may = if args.only_look { May::Look } else { May::Mend };
    let repaired = repair(&args.image, &open, may, None).map_err(|e| STATUSES.of(&e))?;
    if repaired.is_interrupted {
        return Ok(Outcome::Interrupted as u8);
    }
    if let Some(error) = &repaired.device_error {
        say(format_args!("{name}: the check is incomplete: {error}"));
        return Ok(STATUSES.failed);
    }
    if repaired.left > 0 {
        say(format_args!("{name}: damaged"));
        if args.only_look {
            say(format_args!("{NOT_MODIFIED}"));
        }
        return Ok(DAMAGED);
    }
    say(format_args!("{name}: {}", if repaired.is_changed { "repaired" } else { "no damage" }));
    // Callers search for the last line of the original.
    say(format_args!("{}", if args.only_look { NOT_MODIFIED } else { "done" }));
    Ok(if repaired.is_changed && args.tells_mending { MENDED_IF_ASKED } else { 0 })
}

/// XFS is recovered on mount, so nothing is done at boot: fsck.xfs(8).
pub(crate) fn fsck(_: Vec<OsString>, _: &Invoked) -> Ended {
    Ok(0)
}

fn read(arguments: Vec<OsString>) -> Result<Args, Failure> {
    let mut words = Words::new(arguments, STATUSES, &supported::XFS_REPAIR);
    let mut args = Args::default();
    let mut image = None;
    while let Some(word) = words.next()? {
        match word {
            Word::Operand(path) => words.only(&mut image, path)?,
            Word::Option('n') => args.only_look = true,
            Word::Option('e') => args.tells_mending = true,
            Word::Option('V') => args.only_version = true,
            // Memory and time are not limited, and the log is always replayed if possible.
            Word::Option('m' | 't') => drop(words.value()?),
            Word::Option('f' | 'L' | 'M' | 'P' | 'v') => {}
            Word::Option('o') => options(&words.text()?)?,
            Word::Option('c') => return Err(words.refused("a repair does not change features")),
            Word::Option('d') => {
                return Err(words.refused("a mounted file system cannot be repaired"));
            }
            Word::Option('l') => args.devices.log = Some(words.path()?),
            Word::Option('r') => args.devices.realtime = Some(words.path()?),
            Word::Option(_) => return Err(words.unknown()),
        }
    }
    match image {
        Some(image) => args.image = image,
        None if args.only_version => {}
        None => return Err(STATUSES.usage("no image given")),
    }
    Ok(args)
}

/// Parses the suboptions of `-o` for memory use.
fn options(list: &str) -> Result<(), Failure> {
    for item in lists::items(list, 'o', STATUSES) {
        match item.name {
            "bhash" | "ag_stride" | "phase2_threads" | "noquota" => drop(item.value()),
            "force_geometry" => return Err(item.refused("the geometry is detected automatically")),
            _ => return Err(item.unknown()),
        }
    }
    Ok(())
}
