//! `renameat2` and `link` between all kinds of files, with all flags.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, RenameFlags, linkat, mknodat, renameat_with};

use super::trace::Trace;
use crate::place::Place;

const KINDS: [&str; 7] = ["file", "directory", "filled", "link", "pipe", "device", "nothing"];

fn make(path: &Path, kind: &str) {
    match kind {
        "file" => fs::write(path, kind).unwrap(),
        "directory" => fs::create_dir(path).unwrap(),
        "filled" => {
            fs::create_dir(path).unwrap();
            fs::write(path.join("entry"), kind).unwrap();
        }
        "link" => symlink("nowhere", path).unwrap(),
        "pipe" => mknodat(CWD, path, FileType::Fifo, Mode::RUSR, 0).unwrap(),
        "device" => mknodat(CWD, path, FileType::CharacterDevice, Mode::RUSR, 0x103).unwrap(),
        _ => {}
    }
}

/// Returns the type of the file at a path.
fn kind(path: &Path) -> String {
    let Ok(data) = fs::symlink_metadata(path) else { return String::from("nothing") };
    let file_type = data.file_type();
    let what = if file_type.is_dir() {
        "directory"
    } else if file_type.is_symlink() {
        "link"
    } else if file_type.is_fifo() {
        "pipe"
    } else if file_type.is_char_device() {
        "device"
    } else {
        "file"
    };
    format!("{what} {:o} {} links, device {:x}", data.mode() & 0o7777, data.nlink(), data.rdev())
}

pub(super) fn all(place: &mut Place, trace: &mut Trace) {
    let flags = [
        ("rename", RenameFlags::empty()),
        ("rename, not replacing,", RenameFlags::NOREPLACE),
        ("exchange", RenameFlags::EXCHANGE),
        ("rename with a whiteout", RenameFlags::WHITEOUT),
        ("exchange with a whiteout", RenameFlags::EXCHANGE | RenameFlags::WHITEOUT),
        ("exchange, not replacing,", RenameFlags::EXCHANGE | RenameFlags::NOREPLACE),
    ];
    let mut number = 0;
    for (what, flag) in flags {
        for from in KINDS {
            for to in KINDS {
                number += 1;
                let here = place.join(format!("names {number}"));
                fs::create_dir(&here).unwrap();
                make(&here.join("from"), from);
                make(&here.join("to"), to);
                let done = renameat_with(CWD, here.join("from"), CWD, here.join("to"), flag);
                let what = format!("{what} {from} to {to}");
                trace.note(&what, done.map(|()| "done"));
                trace.saw(format!("{what}: from"), kind(&here.join("from")));
                trace.saw(format!("{what}: to"), kind(&here.join("to")));
            }
        }
    }
    for from in KINDS {
        let here = place.join(format!("links {from}"));
        fs::create_dir(&here).unwrap();
        make(&here.join("from"), from);
        let flags = rustix::fs::AtFlags::empty();
        let done = linkat(CWD, here.join("from"), CWD, here.join("to"), flags);
        trace.note(format!("link of {from}"), done.map(|()| "done"));
        trace.saw(format!("link of {from}: it"), kind(&here.join("to")));
        let below = renameat_with(CWD, &here, CWD, here.join("below"), RenameFlags::empty());
        trace.note(
            format!("rename of a directory with {from} below itself"),
            below.map(|()| "done"),
        );
    }
}
