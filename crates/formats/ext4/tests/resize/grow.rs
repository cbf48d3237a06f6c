//! Images after growing.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use disk::BlockDevice;
use ext4::resize::{Grown, grow};
use testkit::{KernelMount, MountOptions, effort, require};
use vfs::Error;

use super::kinds::{KINDS, MIB, MkfsParameters, assert_shows, assert_sound, device, tree};

/// Extends an image's file and grows its file system.
pub(super) fn grow_to(image: &Path, bytes: u64, block_size: u32) -> vfs::Result<Grown> {
    let file = File::options().write(true).open(image).unwrap();
    let before = file.metadata().unwrap().len();
    file.set_len(bytes.max(before)).unwrap();
    grow(device(image), bytes / u64::from(block_size), before)
}

#[test]
fn all_kinds_grow_step_by_step() {
    require!(Tool("e2fsck"), Tool("mke2fs"));
    let folder = testkit::scratch();
    for kind in KINDS {
        let image = kind.make(folder.path());
        let before = tree(device(&image));
        let steps = [41 * MIB, 48 * MIB + 5000, 64 * MIB, 200 * MIB, 777 * MIB + 3000, 6000 * MIB];
        for bytes in steps.into_iter().filter(|bytes| *bytes > kind.size) {
            let what = format!("{} at {bytes}", kind.name);
            let grown = grow_to(&image, bytes, kind.block_size)
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            let group_bytes = u64::from(kind.block_size) * 8 * u64::from(kind.block_size) * 8;
            assert!(grown.after.bytes() <= bytes, "{what}: {grown:?}");
            assert!(grown.after.bytes() + group_bytes > bytes, "{what}: {grown:?}");
            assert_sound(&image, &what);
            assert_shows(&image, &before, &what);
        }
        std::fs::remove_file(&image).unwrap();
    }
}

#[test]
fn the_kernel_fills_what_grew() {
    require!(Tool("e2fsck"), Tool("mke2fs"), Root);
    let folder = testkit::scratch();
    let kinds = KINDS.into_iter().filter(MkfsParameters::is_for_kernels);
    for kind in kinds.take(effort(5, KINDS.len(), KINDS.len())) {
        let image = kind.make(folder.path());
        grow_to(&image, 300 * MIB, kind.block_size).unwrap();
        let mount = KernelMount::new(&image, &MountOptions::read_write(kind.fs_type));
        for number in 0..60 {
            let directory = mount.path().join(format!("new{number}"));
            std::fs::create_dir(&directory).unwrap();
            std::fs::write(directory.join("file"), vec![number; 2 << 20]).unwrap();
        }
        mount.unmount();
        assert_sound(&image, kind.name);
        std::fs::remove_file(&image).unwrap();
    }
}

#[test]
fn resize2fs_goes_on_after_us_and_we_after_it() {
    require!(Tool("e2fsck"), Tool("mke2fs"), Tool("resize2fs"));
    let folder = testkit::scratch();
    for kind in KINDS.into_iter().filter(MkfsParameters::is_for_resize2fs) {
        let image = kind.make(folder.path());
        let before = tree(device(&image));
        for (nth, bytes) in [220 * MIB, 500 * MIB, 900 * MIB].into_iter().enumerate() {
            let what = format!("{} at {bytes}", kind.name);
            if nth == 1 {
                let output = testkit::command("resize2fs")
                    .arg("-f")
                    .arg(&image)
                    .arg(format!("{}K", bytes / 1024))
                    .output()
                    .unwrap();
                assert!(output.status.success(), "{what}: {output:?}");
            } else {
                grow_to(&image, bytes, kind.block_size).unwrap();
            }
            assert_sound(&image, &what);
            assert_shows(&image, &before, &what);
        }
        std::fs::remove_file(&image).unwrap();
    }
}

#[test]
fn refused_sizes_change_nothing() {
    require!(Tool("mke2fs"));
    let folder = testkit::scratch();
    let image = KINDS[5].make(folder.path());
    let before = testkit::digest(&image);
    let blocks = KINDS[5].size / 1024;
    let error = grow(device(&image), blocks - 1, 0).unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error}");
    assert_eq!(testkit::digest(&image), before);
    let file = File::options().write(true).open(&image).unwrap();
    file.set_len(5 << 42).unwrap();
    let error = grow(device(&image), 1 << 33, u64::MAX).unwrap_err().to_string();
    assert!(error.contains("64bit"), "{error}");
    file.set_len(KINDS[5].size).unwrap();
    assert_sound(&image, "refused");
    let short: Arc<dyn BlockDevice> = device(&image);
    assert!(grow(short, blocks + 1, 0).is_err(), "the device is too short");
}

#[test]
fn from_a_gibibyte_to_a_tebibyte_takes_no_time() {
    require!(Tool("e2fsck"), Tool("mke2fs"));
    let folder = testkit::scratch();
    let kind = MkfsParameters { size: 1 << 30, ..KINDS[0] };
    let image = kind.make(folder.path());
    let start = std::time::Instant::now();
    let grown = grow_to(&image, 1 << 40, 4096).unwrap();
    let took = start.elapsed();
    println!("{took:?}");
    assert_eq!(grown.after.bytes(), 1 << 40);
    assert!(took.as_secs() < 5, "{took:?}");
    if effort(false, true, true) {
        assert_sound(&image, "a tebibyte");
    }
}
