//! Damaged images cause errors: no panic, no endless loop, no unbounded memory.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use disk::MemoryDevice;
use testkit::{Mke2fs, Sample, require, sample_tree, scratch};
use vfs::Ino;

use super::{
    DirectoryListing, ListingClock, Scratch, attributes, extent_map, get_xattr, list_from,
    list_xattrs, lookup, read, readlink,
};
use crate::inode::Handle;
use crate::{Ext4, OpenOptions};

const MIB: u64 = 1 << 20;

/// Maximum number of names, entries and extents of a walk. The images here have far fewer.
const WALK_MAX: usize = 3000;

/// Reads everything that is reachable and counts errors.
fn walk(fs: &Ext4) -> usize {
    let mut seen = BTreeSet::new();
    let mut pending = vec![Ino(2)];
    let mut errors = 0;
    while let Some(ino) = pending.pop() {
        if seen.len() > WALK_MAX || !seen.insert(ino) {
            continue;
        }
        match fs.load(ino) {
            Ok(handle) => errors += touch(fs, &handle, &mut pending),
            Err(_) => errors += 1,
        }
    }
    errors
}

fn touch(fs: &Ext4, handle: &Handle, pending: &mut Vec<Ino>) -> usize {
    let mut names = Vec::new();
    let mut errors = usize::from(attributes(fs, handle).is_err());
    errors += usize::from(list_xattrs(fs, handle, &mut |name| names.push(name.to_vec())).is_err());
    errors += names.iter().filter(|name| get_xattr(fs, handle, name).is_err()).count();
    if handle.inode.is_dir() {
        let listed = list_from(fs, handle, 0, WALK_MAX);
        errors += usize::from(listed.is_err());
        for entry in listed.unwrap_or_default() {
            errors += usize::from(lookup(fs, handle, &entry.name).is_err());
        }
        let walked = DirectoryListing::new(fs, handle, ListingClock::off()).for_each_entry(
            &mut Scratch::default(),
            &mut |entry| {
                pending.push(entry.ino);
                ControlFlow::Continue(())
            },
        );
        return errors + usize::from(walked.is_err());
    }
    let mut extents = 0;
    let mapped = extent_map(fs, handle, 0, u64::MAX, &mut |_| {
        extents += 1;
        if extents < WALK_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    errors += usize::from(is_damage(&mapped));
    let mut buf = [0; 5000];
    for offset in [0, 1000, handle.inode.size() / 2, handle.inode.size().saturating_sub(4000)] {
        let read = read(fs, handle, offset, &mut buf);
        errors += usize::from(is_damage(&read));
    }
    errors + usize::from(is_damage(&readlink(fs, handle)))
}

/// Returns whether a call failed because of damage, and not because the file type does not support it.
fn is_damage<T>(result: &vfs::Result<T>) -> bool {
    matches!(result, Err(error) if !matches!(error, vfs::Error::Invalid(_)))
}

fn open_bytes(bytes: &[u8]) -> Option<Ext4> {
    let options = OpenOptions { cache_bytes: 1 << 20, norecovery: true, ..OpenOptions::default() };
    Ext4::open(Arc::new(MemoryDevice::from_bytes(bytes)), &options).ok()
}

/// Changes bytes of metadata blocks in several ways and walks the result.
fn damage_and_walk(features: &str, rounds: u64) {
    let scratch = scratch();
    let (source, image) = (scratch.path().join("source"), scratch.path().join("image"));
    std::fs::create_dir(&source).unwrap();
    let sample = Sample {
        wide_names: 150,
        depth: 4,
        huge_sparse: false,
        xattr_bytes_max: 300,
        ..Sample::for_block_size(1024)
    };
    let _ = sample_tree(&source, &sample);
    let mke2fs = Mke2fs::new("ext4").block_size(1024).features(features);
    mke2fs.inode_count(1024).populate(&source).create(&image, 24 * MIB);
    let sound = std::fs::read(&image).unwrap();
    assert_eq!(walk(&open_bytes(&sound).unwrap()), 0);
    // File data is random, so blocks with many zeros are mostly metadata.
    let used: Vec<usize> = (1..sound.len() / 1024)
        .filter(|n| {
            let zeros = sound[n * 1024..][..1024].iter().filter(|&&b| b == 0).count();
            (200..1024).contains(&zeros)
        })
        .collect();
    let mut errors = 0;
    for round in 0..rounds {
        let mut random = fastrand::Rng::with_seed(round);
        let mut bytes = sound.clone();
        for _ in 0..random.usize(1..30) {
            let block = used[random.usize(..used.len())] * 1024;
            let at = block + random.usize(..1024);
            match random.u8(..6) {
                0 => bytes[at] ^= 1 << random.u8(..8),
                1 => bytes[at] = random.u8(..),
                2 => bytes[at & !3..][..4].copy_from_slice(&u32::MAX.to_le_bytes()),
                3 => bytes[at & !1..][..2].fill(0),
                4 => bytes[at & !3..][..4].copy_from_slice(&random.u32(..30_000).to_le_bytes()),
                _ => {
                    let other = used[random.usize(..used.len())] * 1024;
                    bytes.copy_within(other..other + 1024, block);
                }
            }
        }
        errors += open_bytes(&bytes).map_or(1, |fs| walk(&fs));
    }
    assert!(errors > 0, "no damage was noticed");
}

#[test]
fn damage_without_checksums_does_no_harm() {
    require!(Tool("mke2fs"));
    damage_and_walk("^metadata_csum,^has_journal,^resize_inode", 150);
}

#[test]
fn damage_to_inline_data_and_block_maps_does_no_harm() {
    require!(Tool("mke2fs"));
    damage_and_walk("^metadata_csum,^has_journal,inline_data,ea_inode", 75);
    damage_and_walk("^metadata_csum,^has_journal,^extent,^64bit", 75);
}

#[test]
fn damage_with_checksums_does_no_harm() {
    require!(Tool("mke2fs"));
    damage_and_walk("^has_journal", 50);
}
