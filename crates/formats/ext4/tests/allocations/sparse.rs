//! Checking and repairing use memory for the contents of an image, not for its stated sizes.

use std::fs::{self, File};
use std::io;
use std::num::NonZero;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use allocation_counter::measure;
use disk::{BlockDevice, FileDevice};
use operations::repair::{Staging, make_plan};
use testkit::{Mke2fs, effort, require, scratch};
use vfs::check::{Finding, Observer, Options, Summary};

use crate::common::image::{GOLDEN, unpack};
use crate::common::layout::edit_superblock;

/// Maximum memory for a check and a repair, whatever the sizes in the image.
const BYTES_MAX: u64 = 192 << 20;

/// Collects the codes of findings.
#[derive(Default)]
struct Codes(parking_lot::Mutex<std::collections::BTreeMap<&'static str, u64>>);

impl Observer for Codes {
    fn found(&self, finding: Finding) {
        *self.0.lock().entry(finding.code.name).or_default() += 1;
    }
}

/// A device that contains data only at its start.
struct Sparse {
    bytes: Vec<u8>,
    len: u64,
}

impl BlockDevice for Sparse {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        buf.fill(0);
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.bytes.len());
        let there = &self.bytes[start..];
        let count = there.len().min(buf.len());
        buf[..count].copy_from_slice(&there[..count]);
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        panic!("a check writes nothing")
    }

    fn zero_range(&self, _: u64, _: u64) -> io::Result<()> {
        panic!("a check writes nothing")
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns options for a single thread, because only the memory of this thread is counted.
fn options() -> Options {
    Options::default().with_threads(NonZero::<usize>::MIN)
}

fn check_of(device: Arc<dyn BlockDevice>, codes: &Codes) -> vfs::Result<Summary> {
    ext4::check::check(device, &options(), codes)
}

fn file_device(path: &Path) -> Arc<dyn BlockDevice> {
    Arc::new(FileDevice::new(File::open(path).unwrap()).unwrap())
}

#[test]
fn a_large_sparse_image_takes_memory_for_what_is_there() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("debugfs"));
    let work = scratch();
    let (tree, image) = (work.path().join("tree"), work.path().join("image"));
    fs::create_dir_all(tree.join("d")).unwrap();
    for number in 0..400 {
        fs::write(tree.join("d").join(format!("name-{number}")), "contents").unwrap();
    }
    let tib = effort(2, 4, 12) as u64;
    Mke2fs::new("ext4")
        .features("^has_journal")
        .arguments(["-E", "lazy_itable_init=1"])
        .populate(&tree)
        .create(&image, tib << 40);
    let size = tib * 1_090_000_000_000;
    testkit::debugfs_write(&image, &format!("set_inode_field /d size {size}"));
    let codes = Codes::default();
    let taken = measure(|| {
        check_of(file_device(&image), &codes).unwrap();
    });
    assert!(taken.bytes_max < BYTES_MAX, "a check takes {} bytes", taken.bytes_max);
    assert!(codes.0.lock().contains_key("ext4-inode-size"), "{:?}", codes.0.lock());
    let staging = Arc::new(Staging::new(file_device(&image)));
    let repairer = ext4::repair::Repair { options: options() };
    let mut plan = None;
    let taken = measure(|| plan = Some(make_plan(&repairer, &staging, &Codes::default()).unwrap()));
    assert!(taken.bytes_max < BYTES_MAX, "a repair takes {} bytes", taken.bytes_max);
    let plan = plan.unwrap();
    assert!(plan.left.is_empty(), "{:?}", plan.left);
    let file = File::options().write(true).open(&image).unwrap();
    for (&number, page) in plan.steps.iter().flat_map(|step| &step.pages) {
        file.write_all_at(&page[..], number * operations::repair::PAGE_BYTES).unwrap();
    }
    testkit::e2fsck(&image);
}

#[test]
fn claims_of_a_superblock_take_no_memory() {
    type Edit = fn(&mut ext4::format::superblock::RawSuperblock, u32);
    // Sets the number of groups, each with as many inodes as the existing ones.
    let groups: Edit = |raw, groups| {
        let blocks = u64::from(raw.blocks_per_group.get()) * u64::from(groups);
        (raw.blocks_count_lo, raw.blocks_count_hi) =
            ((blocks as u32).into(), ((blocks >> 32) as u32).into());
        raw.inodes_count = (raw.inodes_per_group.get().wrapping_mul(groups)).into();
    };
    let journal: Edit = |raw, number| raw.journal_inum = number.into();
    let orphan: Edit = |raw, number| raw.last_orphan = number.into();
    for (name, packed) in GOLDEN {
        for (what, edit, number) in [
            ("groups", groups, effort(1 << 11, 1 << 12, 1 << 15) as u32),
            ("groups", groups, 1 << 31),
            ("journal", journal, u32::MAX),
            ("orphan", orphan, u32::MAX),
        ] {
            let mut bytes = unpack(packed);
            edit_superblock(&mut bytes, |raw| edit(raw, number));
            let device = Arc::new(Sparse { bytes, len: 1 << 50 });
            let taken = measure(|| drop(check_of(device, &Codes::default())));
            let bytes = taken.bytes_max;
            assert!(bytes < BYTES_MAX, "{name}, {what} {number}: {bytes} bytes");
        }
    }
}
