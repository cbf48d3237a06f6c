//! Crashes while an image grows: until the growth is in the log, recovery gives the old size, afterwards the new one,
//! with any implementation.

use std::sync::Arc;

use disk::{Event, MemoryDevice, RecordingDevice};
use testkit::crash::{cut_off, flushes, write_image};
use testkit::{KernelMount, MountOptions, effort, require};
use xfs::resize::{Growth, grow};
use xfs::{OpenOptions, Xfs};

use super::{
    SHORT_GROUP, SHORT_GROUP_PLAIN, SHORT_GROUP_SMALL_BLOCKS, fill, filled, longer, options,
};
use crate::changing::{MIB, TargetLayout, assert_clean};

/// Recorded events of a device while its image grows.
struct CrashRun {
    start: MemoryDevice,
    events: Vec<Event>,
    growth: Growth,
    size: u64,
}

impl CrashRun {
    fn of(start: MemoryDevice, size: u64) -> Self {
        let device = Arc::new(RecordingDevice::new(Arc::new(start.fork())));
        let growth = grow(device.clone(), size).unwrap();
        Self { start, events: device.take(), growth, size }
    }

    /// Returns some states, at least one before each flush.
    fn states(&self, each: usize) -> impl Iterator<Item = (usize, MemoryDevice)> {
        let mut random = fastrand::Rng::with_seed(self.size);
        let mut ends = flushes(&self.events);
        let more = ends.len() * (each - 1);
        ends.extend((0..more).map(|_| random.usize(0..=self.events.len())));
        ends.push(self.events.len());
        ends.into_iter().map(move |end| (end, cut_off(&self.start, &self.events, end, &mut random)))
    }

    /// Asserts that a number of blocks is that before or that after.
    fn assert_size(&self, blocks: u64, end: usize) -> bool {
        let Growth { blocks_before, blocks_after, .. } = self.growth;
        assert!([blocks_before, blocks_after].contains(&blocks), "{blocks} after event {end}");
        blocks == blocks_after
    }

    /// Asserts that each state recovered by this implementation is valid, and can grow afterwards. Returns the number
    /// of states, and how many had the new size.
    fn assert_recovered_here(&self, each: usize) -> (usize, usize) {
        let (mut all, mut new) = (0, 0);
        for (end, state) in self.states(each) {
            let state = Arc::new(state);
            let fs = Xfs::open_writable(state.clone(), &options()).unwrap();
            let is_new = self.assert_size(fs.superblock().raw.dblocks.get(), end);
            fs.close().unwrap();
            assert_clean(&state.fork());
            let growth = grow(state.clone(), self.size).unwrap();
            assert_eq!(growth.blocks_after, self.growth.blocks_after);
            assert_clean(&state.fork());
            (all, new) = (all + 1, new + usize::from(is_new));
        }
        (all, new)
    }

    /// Asserts that each state recovered by the kernel is valid.
    fn assert_recovered_by_kernel(&self, each: usize) {
        let home = testkit::scratch();
        let path = home.path().join("image");
        for (end, state) in self.states(each) {
            write_image(&state, &path).unwrap();
            let mount = KernelMount::new(&path, &MountOptions::read_write("xfs"));
            std::fs::write(mount.path().join("written"), vec![1; 100_000]).unwrap();
            mount.unmount();
            testkit::xfs_repair(&path);
            let left = Arc::new(testkit::crash::read_image(&path).unwrap());
            let fs = Xfs::open(left, &OpenOptions::default()).unwrap();
            self.assert_size(fs.superblock().raw.dblocks.get(), end);
        }
    }
}

const LAYOUTS: [TargetLayout; 6] = [
    SHORT_GROUP,
    SHORT_GROUP_PLAIN,
    SHORT_GROUP_SMALL_BLOCKS,
    TargetLayout::DEFAULT,
    TargetLayout::SMALL_LOG,
    TargetLayout::MANY_GROUPS,
];

#[test]
fn a_crash_anywhere_leaves_the_old_size_or_the_new_one() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    for layout in LAYOUTS {
        let image = filled(&layout);
        for size in [layout.size + 18 * MIB, layout.size * 3] {
            let run = CrashRun::of(longer(&image, size), size);
            let (all, new) = run.assert_recovered_here(effort(2, 2, 40));
            assert!(new > 0 && new < all, "{new} of {all} states are grown: {layout:?}");
        }
    }
}

#[test]
fn kernels_recover_a_growth() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    for layout in [SHORT_GROUP, SHORT_GROUP_SMALL_BLOCKS, TargetLayout::DEFAULT] {
        let size = layout.size + 60 * MIB;
        let run = CrashRun::of(longer(&filled(&layout), size), size);
        run.assert_recovered_by_kernel(effort(1, 1, 20));
    }
}

/// An image that was not closed: its log is replayed first.
#[test]
fn an_image_that_crashed_before_grows() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    for layout in [SHORT_GROUP, TargetLayout::DEFAULT] {
        let device = Arc::new(filled(&layout));
        let fs = Xfs::open_writable(device.clone(), &options()).unwrap();
        fill(&fs, "unfinished", 50, 30_000);
        vfs::FileSystem::sync(&fs).unwrap();
        let crashed = longer(&device, layout.size * 2);
        drop(fs);
        let run = CrashRun::of(crashed, layout.size * 2);
        let (all, new) = run.assert_recovered_here(effort(1, 1, 20));
        assert!(new > 0 && new < all, "{new} of {all}");
    }
}
