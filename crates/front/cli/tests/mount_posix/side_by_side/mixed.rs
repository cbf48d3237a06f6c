//! Cached and direct I/O, mappings, range operations and copies of one file, in pseudo-random
//! order.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use fastrand::Rng;
use rustix::fs::{Advice, FallocateFlags, copy_file_range, fadvise, fallocate};

use super::files::{Aligned, contents, create, open_direct};
use super::trace::{Trace, digest};
use crate::place::Place;
use crate::place::probe::{map, pattern};

fn seeds() -> Vec<u64> {
    let first = testkit::effort(1, 2, 40);
    (1..=first).chain([20_261_122]).collect()
}

const OPERATIONS: u32 = 500;

/// Maximum size of a script's file.
const END_MAX: u64 = 40 * 4096;

pub(super) fn all(place: &mut Place, trace: &mut Trace) {
    for seed in seeds() {
        let path = place.join(format!("mixed {seed}"));
        Hand { rng: Rng::with_seed(seed), cached: create(&path), path: &path }.work(seed, trace);
    }
    place.remount();
    for seed in seeds() {
        let found = fs::read(place.join(format!("mixed {seed}")));
        trace.note(format!("seed {seed}: after a remount"), found.map(|all| digest(&all)));
    }
}

/// Pseudo-random operations on a file.
struct Hand<'a> {
    rng: Rng,
    cached: File,
    path: &'a Path,
}

impl Hand<'_> {
    fn work(&mut self, seed: u64, trace: &mut Trace) {
        let direct = open_direct(self.path).unwrap();
        for number in 0..OPERATIONS {
            let what = self.step(&direct, number, trace);
            if number.is_multiple_of(5) {
                let found = contents(&self.cached).map(|all| digest(&all));
                trace.note(format!("seed {seed}, {number}: contents after {what}"), found);
            }
            if number.is_multiple_of(25) {
                let end = self.cached.metadata().unwrap().len().next_multiple_of(4096);
                let mut all = Aligned::new(end as usize, 0);
                let found =
                    direct.read_at(all.as_mut(), 0).map(|count| digest(&all.as_ref()[..count]));
                trace.note(format!("seed {seed}, {number}: read directly after {what}"), found);
            }
        }
    }

    fn range(&mut self) -> (u64, u64) {
        let offset = self.rng.u64(..END_MAX - 1);
        (offset, self.rng.u64(1..=(END_MAX - offset).min(20_000)))
    }

    fn blocks(&mut self) -> (u64, u64) {
        let offset = self.rng.u64(..END_MAX / 512 - 1);
        let len = self.rng.u64(1..=(END_MAX / 512 - offset).min(40));
        (offset * 512, len * 512)
    }

    /// Performs one operation. Returns its description.
    fn step(&mut self, direct: &File, number: u32, trace: &mut Trace) -> String {
        let seed = u64::from(number) + 1000;
        let (offset, len) = self.range();
        let bytes = || pattern(seed, offset, len);
        let kind = self.rng.u32(..14);
        let named = |what: &str| format!("{what} {offset}+{len}");
        match kind {
            0..3 => {
                let what = named("write");
                trace.note(&what, self.cached.write_at(&bytes(), offset));
                what
            }
            3..6 => {
                let (offset, len) = self.blocks();
                let what = format!("direct write {offset}+{len}");
                let bytes = Aligned::of(&pattern(seed, offset, len));
                trace.note(&what, direct.write_at(bytes.as_ref(), offset));
                what
            }
            6 => {
                let what = format!("truncate {offset}");
                trace.note(&what, self.cached.set_len(offset).map(|()| "done"));
                what
            }
            7 => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                trace.note(
                    named("punch"),
                    fallocate(&self.cached, flags, offset, len).map(|()| "done"),
                );
                named("punch")
            }
            8 => {
                let flags = FallocateFlags::ZERO_RANGE;
                trace.note(
                    named("zero"),
                    fallocate(&self.cached, flags, offset, len).map(|()| "done"),
                );
                named("zero")
            }
            9 => {
                trace.note("fdatasync", self.cached.sync_data().map(|()| "done"));
                String::from("fdatasync")
            }
            10 => {
                fadvise(&self.cached, 0, None, Advice::DontNeed).unwrap();
                String::from("dropping the cache")
            }
            11 => self.copy(offset, len, trace),
            _ => {
                let end = self.cached.metadata().unwrap().len();
                if offset + len <= end && number.is_multiple_of(4) {
                    map(self.path, offset, len, seed, self.rng.bool());
                    return named("mapped write");
                }
                let mut found = vec![0; len as usize];
                let count = self.cached.read_at(&mut found, offset);
                trace.note(named("read"), count.map(|count| digest(&found[..count])));
                named("read")
            }
        }
    }

    /// Copies one part of the file over another.
    fn copy(&mut self, offset: u64, len: u64, trace: &mut Trace) -> String {
        let target = self.rng.u64(..END_MAX);
        let what = format!("copy {offset}+{len} to {target}");
        let (mut from, mut to) = (offset, target);
        let file = &self.cached;
        let copied = copy_file_range(file, Some(&mut from), file, Some(&mut to), len as usize);
        trace.note(&what, copied);
        what
    }
}
