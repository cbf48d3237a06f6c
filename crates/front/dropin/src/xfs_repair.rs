//! `xfs_repair`, and `fsck.xfs`, which does nothing.

use std::ffi::OsString;
use std::path::PathBuf;

use diskwright::{Format, Image, OpenImage, OtherDevices, Outcome};

use crate::failure::{Ended, Failure, STATUSES};
use crate::invoked::{Invoked, say};
use crate::lists;
use crate::mending::{May, mend};
use crate::supported;
use crate::words::{Word, Words};

/// Exit statuses of xfs_repair(8).
const DAMAGED: u8 = 1;
const MENDED_IF_ASKED: u8 = 4;

/// Last line of `xfs_repair -n`.
const NOT_MODIFIED: &str = "No modify flag set, skipping filesystem flush and exiting.";

#[derive(Debug, Default)]
struct Wish {
    image: PathBuf,
    devices: OtherDevices,
    only_look: bool,
    tells_mending: bool,
    only_version: bool,
}

pub(crate) fn run(arguments: Vec<OsString>, invoked: &Invoked) -> Ended {
    let wish = read(arguments)?;
    if wish.only_version {
        return Ok(invoked.version());
    }
    let name = wish.image.display();
    let open = OpenImage::default().devices(wish.devices.clone());
    if let Ok(image) = Image::open_rootless(&wish.image, &open.clone().norecovery(true)) {
        if image.info().format() != Format::Xfs {
            let found = image.info().format_name();
            return Err(STATUSES.failed(format_args!("{name} contains {found}; use e2fsck")));
        }
        let needs_recovery = image.info().needs_recovery;
        drop(image);
        if needs_recovery && !wish.only_look {
            say(format_args!("{name}: replaying the log"));
            // The repair handles a log that cannot be replayed.
            let _ = Image::recover(&wish.image, &open);
        }
    }
    let may = if wish.only_look { May::Look } else { May::Mend };
    let mended = mend(&wish.image, &open, may, None).map_err(|e| STATUSES.of(&e))?;
    if mended.is_interrupted {
        return Ok(Outcome::Interrupted as u8);
    }
    if let Some(error) = &mended.device_error {
        say(format_args!("{name}: the check is incomplete: {error}"));
        return Ok(STATUSES.failed);
    }
    if mended.left > 0 {
        say(format_args!("{name}: damaged"));
        if wish.only_look {
            say(format_args!("{NOT_MODIFIED}"));
        }
        return Ok(DAMAGED);
    }
    say(format_args!("{name}: {}", if mended.is_changed { "mended" } else { "no damage" }));
    // Callers search for the last line of the original.
    say(format_args!("{}", if wish.only_look { NOT_MODIFIED } else { "done" }));
    Ok(if mended.is_changed && wish.tells_mending { MENDED_IF_ASKED } else { 0 })
}

/// XFS is recovered on mount, so nothing is done at boot: fsck.xfs(8).
pub(crate) fn fsck(_: Vec<OsString>, _: &Invoked) -> Ended {
    Ok(0)
}

fn read(arguments: Vec<OsString>) -> Result<Wish, Failure> {
    let mut words = Words::new(arguments, STATUSES, &supported::XFS_REPAIR);
    let mut wish = Wish::default();
    let mut image = None;
    while let Some(word) = words.next()? {
        match word {
            Word::Operand(path) => words.only(&mut image, path)?,
            Word::Option('n') => wish.only_look = true,
            Word::Option('e') => wish.tells_mending = true,
            Word::Option('V') => wish.only_version = true,
            // Memory and time are not limited, and the log is always replayed if possible.
            Word::Option('m' | 't') => drop(words.value()?),
            Word::Option('f' | 'L' | 'M' | 'P' | 'v') => {}
            Word::Option('o') => options(&words.text()?)?,
            Word::Option('c') => return Err(words.refused("a repair does not change features")),
            Word::Option('d') => {
                return Err(words.refused("a mounted file system cannot be repaired"));
            }
            Word::Option('l') => wish.devices.log = Some(words.path()?),
            Word::Option('r') => wish.devices.realtime = Some(words.path()?),
            Word::Option(_) => return Err(words.unknown()),
        }
    }
    match image {
        Some(image) => wish.image = image,
        None if wish.only_version => {}
        None => return Err(STATUSES.usage("no image given")),
    }
    Ok(wish)
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
