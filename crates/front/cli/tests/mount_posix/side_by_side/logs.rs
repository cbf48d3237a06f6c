//! Many tiny durable operations that fill the log repeatedly, and a shutdown.

use std::fs::{self, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};

use super::files::{contents, create};
use super::trace::{Trace, digest};
use crate::place::Place;
use crate::place::probe::pattern;

/// Three times as many as fill a log of 4 MiB.
const ROUNDS: u32 = 4000;

pub(super) fn all(place: &mut Place, trace: &mut Trace) {
    let path = place.join("file");
    let file = create(&path);
    file.write_all_at(&pattern(1, 0, 8192), 0).unwrap();
    for round in 0..ROUNDS {
        let mode = Permissions::from_mode(0o600 + (round & 0o77));
        let done = file.set_permissions(mode).and_then(|()| file.sync_all());
        if round % 100 == 0 || done.is_err() {
            trace.note(format!("fchmod and fsync, round {round}"), done.map(|()| "done"));
        }
    }
    for round in 0..200 {
        let written = file.write_all_at(&pattern(round, 0, 100), round * 7);
        let done = written.and_then(|()| file.sync_data());
        if round % 50 == 0 || done.is_err() {
            trace.note(format!("write and fdatasync, round {round}"), done.map(|()| "done"));
        }
    }
    for round in 0..200 {
        let name = place.join(format!("name {round}"));
        let done = fs::write(&name, "x").and_then(|()| fs::File::open(&name)?.sync_all());
        let done = done.and_then(|()| fs::remove_file(&name));
        if round % 50 == 0 || done.is_err() {
            trace.note(format!("create, fsync and unlink, round {round}"), done.map(|()| "done"));
        }
    }
    trace.note("contents", contents(&file).map(|all| digest(&all)));
    let unsynced = create(&place.join("unsynced"));
    unsynced.write_all_at(b"unsynced", 0).unwrap();
    file.sync_all().unwrap();
    place.crash();
    drop((file, unsynced));
    place.clear_away();
    place.mount_with("");
    let found = fs::read(place.join("file"));
    trace.note("contents after a crash", found.map(|all| digest(&all)));
}
