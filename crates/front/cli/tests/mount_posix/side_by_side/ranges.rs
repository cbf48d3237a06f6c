//! `fallocate` in all modes, at every alignment, over data, holes, unwritten blocks and the end of
//! file.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use rustix::fs::{Advice, FallocateFlags, SeekFrom, fadvise, fallocate, seek};

use super::files::{contents, create, data_runs};
use super::trace::{Trace, digest};
use crate::place::Place;
use crate::place::probe::pattern;

const BLOCK: u64 = 4096;

/// Fills a new file.
type Make = fn(&File);

/// Initial layouts of a file.
const LAYOUTS: [(&str, Make); 4] = [
    ("data", |file| file.write_all_at(&pattern(1, 0, 8 * BLOCK), 0).unwrap()),
    ("hole", |file| file.set_len(8 * BLOCK).unwrap()),
    ("unwritten", |file| fallocate(file, FallocateFlags::empty(), 0, 8 * BLOCK).unwrap()),
    ("mixed", |file| {
        fallocate(file, FallocateFlags::empty(), 2 * BLOCK, 2 * BLOCK).unwrap();
        file.write_all_at(&pattern(2, 0, 2 * BLOCK), 0).unwrap();
        file.write_all_at(&pattern(3, 0, BLOCK + 100), 5 * BLOCK).unwrap();
    }),
];

const EDGES: [u64; 7] = [0, 1, 511, BLOCK - 1, BLOCK, 2 * BLOCK + 512, 5 * BLOCK];

const LENGTHS: [u64; 6] = [0, 1, 512, BLOCK, 2 * BLOCK + 513, 4 * BLOCK];

fn modes() -> [(&'static str, FallocateFlags); 9] {
    let keep = FallocateFlags::KEEP_SIZE;
    [
        ("allocate", FallocateFlags::empty()),
        ("allocate, size kept,", keep),
        ("punch", FallocateFlags::PUNCH_HOLE | keep),
        ("punch without keep", FallocateFlags::PUNCH_HOLE),
        ("zero", FallocateFlags::ZERO_RANGE),
        ("zero, size kept,", FallocateFlags::ZERO_RANGE | keep),
        ("collapse", FallocateFlags::COLLAPSE_RANGE),
        ("insert", FallocateFlags::INSERT_RANGE),
        ("zero and punch", FallocateFlags::ZERO_RANGE | FallocateFlags::PUNCH_HOLE | keep),
    ]
}

pub(super) fn all(place: &mut Place, trace: &mut Trace) {
    for (layout, make) in LAYOUTS {
        for (mode, flags) in modes() {
            for offset in EDGES {
                for len in LENGTHS {
                    let path = place.join("file");
                    let file = create(&path);
                    make(&file);
                    let what = format!("{mode} {offset}+{len} of {layout}");
                    trace.note(&what, fallocate(&file, flags, offset, len).map(|()| "done"));
                    if offset % 511 == 0 {
                        // The kernel reports cached pages over unwritten blocks as data.
                        file.sync_all().unwrap();
                        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
                        trace.saw(format!("{what}: data"), data_runs(&file));
                    }
                    trace
                        .note(format!("{what}: contents"), contents(&file).map(|all| digest(&all)));
                }
            }
        }
    }
    seeks(place, trace);
    place.remount();
    fs::remove_file(place.join("file")).unwrap();
}

/// Tests `lseek` with valid and invalid offsets.
fn seeks(place: &Place, trace: &mut Trace) {
    let file = create(&place.join("sparse"));
    file.write_all_at(&pattern(1, 0, BLOCK), 3 * BLOCK).unwrap();
    file.set_len(10 * BLOCK + 5).unwrap();
    file.sync_all().unwrap();
    let places =
        [0, 1, BLOCK, 3 * BLOCK, 4 * BLOCK - 1, 4 * BLOCK, 10 * BLOCK + 4, 10 * BLOCK + 5, 1 << 50];
    for at in places {
        trace.note(format!("data from {at}"), seek(&file, SeekFrom::Data(at)));
        trace.note(format!("hole from {at}"), seek(&file, SeekFrom::Hole(at)));
    }
    for at in [u64::MAX, u64::MAX - 4095, 1 << 63] {
        trace.note(format!("data from {}", at.cast_signed()), seek(&file, SeekFrom::Data(at)));
        trace.note(format!("hole from {}", at.cast_signed()), seek(&file, SeekFrom::Hole(at)));
    }
}
