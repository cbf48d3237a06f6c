//! Direct I/O: alignment of offsets, lengths and memory, and coherence with the cache.

use std::os::unix::fs::FileExt;

use super::files::{Aligned, contents, create, open_direct};
use super::trace::{Trace, digest};
use crate::place::Place;
use crate::place::probe::{asynchronous_writes, pattern};

pub(super) fn all(place: &mut Place, trace: &mut Trace) {
    let path = place.join("file");
    let cached = create(&path);
    cached.write_all_at(&pattern(1, 0, 10_000), 0).unwrap();
    let direct = open_direct(&path).unwrap();
    for (offset, len) in
        [(0, 512), (512, 512), (4096, 8192), (8192, 4096), (9728, 512), (20_480, 4096)]
    {
        let mut bytes = Aligned::new(len, 0);
        let found = direct.read_at(bytes.as_mut(), offset);
        let found = found.map(|count| digest(&bytes.as_ref()[..count]));
        trace.note(format!("direct read {offset}+{len}"), found);
        let written = direct.write_at(Aligned::new(len, 7).as_ref(), offset);
        trace.note(format!("direct write {offset}+{len}"), written);
        trace.note("contents", contents(&cached).map(|all| digest(&all)));
    }
    for (offset, len) in [(1, 512), (0, 100), (100, 100), (513, 4096)] {
        let mut bytes = Aligned::new(len, 0);
        trace
            .note(format!("unaligned read {offset}+{len}"), direct.read_at(bytes.as_mut(), offset));
    }
    // A rejected write changes nothing; an accepted one is undone for the next steps.
    let before = contents(&cached).unwrap();
    let written = direct.write_at(Aligned::new(100, 9).as_ref(), 100);
    trace.note("unaligned write 100+100", written);
    cached.write_all_at(&before, 0).unwrap();
    // Cached and direct writes next to each other in one page.
    for round in 0..32_u8 {
        let at = u64::from(round) * 1024;
        cached.write_all_at(&[round; 512], at).unwrap();
        direct.write_all_at(Aligned::new(512, round | 0x80).as_ref(), at + 512).unwrap();
        trace.note(
            format!("contents after round {round}"),
            contents(&cached).map(|all| digest(&all)),
        );
    }
    drop((cached, direct));
    // Cached readers during asynchronous writes: this fails if a reader gets old data after a
    // write.
    asynchronous_writes(&place.join("asynchronous"), 100);
    place.remount();
    let found = std::fs::read(place.join("file"));
    trace.note("after a remount", found.map(|all| digest(&all)));
}
