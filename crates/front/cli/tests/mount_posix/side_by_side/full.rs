//! Full file systems: a write without room fails itself, the stored data is a prefix, and freeing
//! always works.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, XattrFlags, fallocate, lremovexattr, lsetxattr, statvfs};

use super::files::create;
use super::trace::Trace;
use crate::place::Place;
use crate::place::probe::pattern;

/// Sizes of writes in bytes.
const CHUNKS: [u64; 4] = [1 << 20, 65_536, 4096, 1000];

pub(super) fn all(place: &mut Place, trace: &mut Trace) {
    let early = create(&place.join("early"));
    early.write_all_at(&pattern(1, 0, 400 * 4096), 0).unwrap();
    early.sync_all().unwrap();
    let free = statvfs(place.path()).unwrap().f_bfree;
    // Create names and inodes before the file system is full: later, their success would depend on
    // the layout.
    let files = CHUNKS.map(|chunk| create(&place.join(format!("by {chunk}"))));
    for (chunk, file) in CHUNKS.into_iter().zip(files) {
        fill(&file, &place.join(format!("by {chunk}")), chunk, trace);
    }
    freeing(place, &early, trace);
    drop(early);
    for chunk in CHUNKS {
        fs::remove_file(place.join(format!("by {chunk}"))).unwrap();
    }
    place.remount();
    let now = statvfs(place.path()).unwrap().f_bfree;
    trace.saw("nearly all is free again", now + 100 > free);
}

/// Appends chunks to a file until a write fails.
fn fill(file: &File, path: &Path, chunk: u64, trace: &mut Trace) {
    let mut taken = 0;
    let refused = loop {
        match file.write_at(&pattern(2, taken, chunk), taken) {
            Ok(0) => break Ok("nothing"),
            Ok(count) => taken += count as u64,
            Err(error) => break Err(error),
        }
        if taken > 1 << 30 {
            break Ok("more than there is room for");
        }
    };
    trace.note(format!("writing {chunk} at a time until it fails"), refused);
    trace.note(
        format!("writing {chunk} once more"),
        file.write_at(&pattern(2, taken, 1 << 20), taken).map(|_| "some"),
    );
    trace.note(format!("fsync after {chunk} at a time"), file.sync_all().map(|()| "done"));
    trace.saw(
        format!("{chunk} at a time: the size is what was taken"),
        file.metadata().unwrap().len() >= taken,
    );
    trace.saw(format!("{chunk} at a time: all of it is there"), is_prefix(path, taken));
}

/// Returns whether a file contains the data that was written.
fn is_prefix(path: &Path, taken: u64) -> bool {
    let mut file = File::open(path).unwrap();
    let mut at = 0;
    let mut bytes = vec![0; 1 << 20];
    while at < taken {
        let len = bytes.len().min((taken - at) as usize);
        if file.read_exact(&mut bytes[..len]).is_err() || bytes[..len] != pattern(2, at, len as u64)
        {
            return false;
        }
        at += len as u64;
    }
    true
}

/// Runs operations that free space, on a file system without free space.
fn freeing(place: &Place, early: &File, trace: &mut Trace) {
    trace.note("writing over", early.write_at(&pattern(3, 0, 4096), 0));
    trace.note("fsync of what was written over", early.sync_all().map(|()| "done"));
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let refused = (0..200).filter(|n| fallocate(early, punch, n * 8192, 4096).is_err()).count();
    trace.saw("holes that could not be punched", refused);
    let path = place.join("early");
    let set = lsetxattr(&path, "user.name", b"value", XattrFlags::empty());
    if set.is_ok() {
        trace.note("removing an attribute", lremovexattr(&path, "user.name").map(|()| "done"));
    } else {
        trace.saw("removing an attribute", "done");
    }
    trace.note("cutting", early.set_len(100 * 4096).map(|()| "done"));
    trace.note("fsync of what was cut", early.sync_all().map(|()| "done"));
    trace.note("unlink", fs::remove_file(&path).map(|()| "done"));
}
