//! The journal after a crash at any write to it, as e2fsck and the kernel recover it.
//!
//! The load has transactions of the maximum size, and the journal wraps around many times.

use crate::changing::judges::{repair, verdict};
use crate::changing::{ImageParameters, MIB};

use std::num::NonZeroUsize;
use std::sync::Arc;

use disk::RecordingDevice;
use ext4::{Ext4, OpenOptions};
use testkit::crash::{Bulk, Desk, LogState, LogStates, Tearing, change_in_bulk};
use testkit::{KernelMount, MountOptions, require};

/// The kernel mounts one state in this many.
const MOUNT_ONE_IN: u32 = 9;
const FAILURES_SHOWN: usize = 5;
/// Large enough for all metadata, so that only checkpoints write.
const CACHE_BYTES: usize = 64 << 20;
/// Byte range of the superblock, which is written atomically, as in `changing::crashing`.
const WHOLE: std::ops::Range<u64> = 1024..2048;
const LAPS_MIN: u64 = 4;

const DEFAULT: ImageParameters = ImageParameters {
    size: 48 * MIB,
    inodes: 9_000,
    journal_bytes: Some(4 * MIB),
    ..ImageParameters::DEFAULT
};
const SMALL_BLOCKS: ImageParameters = ImageParameters {
    size: 32 * MIB,
    inodes: 4_000,
    journal_bytes: Some(1031 << 10),
    ..ImageParameters::SMALL_BLOCKS
};

fn shapes() -> Vec<(ImageParameters, usize)> {
    let mut shapes = vec![(DEFAULT, 8_000), (SMALL_BLOCKS, 3_000)];
    if testkit::effort(false, true, true) {
        shapes.push((
            ImageParameters { features: ImageParameters::PLAIN.features, ..DEFAULT },
            8_000,
        ));
        shapes.push((
            ImageParameters { features: ImageParameters::BLOCK_MAPS.features, ..SMALL_BLOCKS },
            3_000,
        ));
    }
    shapes
}

/// Number of states, and the rejected ones.
#[derive(Default)]
struct Judge {
    desk: Desk,
    states: u32,
    mounted: u32,
    refused: Vec<String>,
}

impl Judge {
    fn judge(&mut self, state: &LogState) {
        let is_mounted = self.states.is_multiple_of(MOUNT_ONE_IN);
        self.states += 1;
        if let Err(what) = self.verdict(state, is_mounted) {
            self.refused.push(format!("{:?} after {} events: {what}", state.loss, state.end));
        }
    }

    fn verdict(&mut self, state: &LogState, is_mounted: bool) -> Result<(), String> {
        let image = self.desk.put(&state.device)?;
        repair(&image.0)?;
        verdict(&image.0)?;
        if is_mounted {
            self.mounted += 1;
            let image = self.desk.put(&state.device)?;
            KernelMount::attempt(&image.0, &MountOptions::read_write("ext4"))?.unmount();
            verdict(&image.0)?;
        }
        Ok(())
    }
}

#[test]
fn others_recover_the_journal_after_a_crash_at_any_write_to_it() {
    require!(Tool("e2fsck"), Mount("ext4"));
    let writes = testkit::effort(12, 18, 600);
    for (seed, (layout, files)) in (0..).zip(shapes()) {
        let start = layout.make();
        let recording = Arc::new(RecordingDevice::new(Arc::new(start.fork())));
        let options = OpenOptions {
            cache_bytes: CACHE_BYTES,
            checkpoint_threads: NonZeroUsize::new(4),
            ..OpenOptions::default()
        };
        let fs = Ext4::open_writable(recording.clone(), &options).unwrap();
        let bulk = Bulk { files, changes: 15_000, sync_one_in: 5_000 };
        change_in_bulk(&fs, bulk, seed).unwrap();
        let events = recording.take();
        drop(fs);
        let states = LogStates::new(&start, &events, &ImageParameters::journal_of(&start))
            .with_tearing(Tearing { whole: WHOLE, ..Tearing::default() });
        let laps = states.laps();
        assert!(laps >= LAPS_MIN, "{layout:?}: the journal went round {laps} times");
        let mut judge = Judge::default();
        states.for_each(writes, seed, |state| judge.judge(state));
        let Judge { states, mounted, refused, .. } = judge;
        let what = format!("{layout:?}: {} of {states} states refused", refused.len());
        eprintln!("{what}; {laps} laps, {mounted} mounted");
        let shown = &refused[..refused.len().min(FAILURES_SHOWN)];
        assert!(refused.is_empty(), "{what}\n{}", shown.join("\n"));
    }
}
