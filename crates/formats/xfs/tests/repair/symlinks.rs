//! Symbolic links with targets in blocks.

use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use vfs::{FileSystem, NewInode};
use xfs::{OpenOptions, Xfs};

use super::subject::repaired;
use crate::changing::assert_clean;
use crate::common::image::{device, golden};

/// Returns an image with two names of a link, its target, and the location of its block.
fn with_link() -> (MemoryDevice, Vec<u8>, u64) {
    let device = Arc::new(device(&golden("default")));
    let fs = Xfs::open_writable(device.clone(), &OpenOptions::default()).unwrap();
    let target: Vec<u8> = (0..900).map(|nth| b'a' + (nth % 26) as u8).collect();
    let link = fs.symlink(fs.root(), b"long link", &target, &NewInode::default()).unwrap();
    fs.link(link, fs.root(), b"another", None).unwrap();
    fs.close().unwrap();
    let device = device.fork();
    let mut place = None;
    let mut block = vec![0; 4096];
    for at in (0..device.len()).step_by(4096) {
        device.read_at(at, &mut block).unwrap();
        if block.starts_with(b"XSLM") && block[56..].starts_with(&target) {
            place = Some(at);
        }
    }
    (device, target, place.expect("a block of a link"))
}

fn open(device: &MemoryDevice) -> Xfs {
    Xfs::open(Arc::new(device.fork()), &OpenOptions::default()).unwrap()
}

#[test]
fn a_link_without_any_target_is_removed_with_its_names() {
    testkit::require!(Tool("xfs_repair"));
    let (image, _, place) = with_link();
    let damaged = image.fork();
    damaged.zero_range(place, 4096).unwrap();
    let outcome = repaired(damaged).unwrap();
    assert!(outcome.left.is_empty() && outcome.is_complete, "{:?}", outcome.left);
    let fs = open(&outcome.device);
    for name in [&b"long link"[..], b"another", b"lost+found"] {
        assert!(fs.lookup(fs.root(), name).is_err(), "{}", name.escape_ascii());
    }
    assert_clean(&outcome.device);
}

#[test]
fn valid_targets_are_kept_despite_a_wrong_header() {
    testkit::require!(Tool("xfs_repair"));
    let (image, target, place) = with_link();
    // Magic number, offset, length, checksum, UUID, owner, location.
    for at in [0, 4, 8, 12, 16, 32, 40] {
        let damaged = image.fork();
        damaged.write_at(place + at, &[0xee; 4]).unwrap();
        let outcome = repaired(damaged).unwrap();
        assert!(outcome.left.is_empty() && outcome.is_complete, "{at}: {:?}", outcome.left);
        let fs = open(&outcome.device);
        for name in [&b"long link"[..], b"another"] {
            let link = fs.lookup(fs.root(), name).unwrap();
            assert_eq!(fs.readlink(link).unwrap(), target, "{at}");
        }
        assert_clean(&outcome.device);
    }
}
