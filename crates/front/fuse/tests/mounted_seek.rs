//! Data and holes of files with data that the kernel has not written back.

use crate::common;

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use common::{NewImage, mounted};
use fuse::Options;
use linux::Errno;
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use testkit::require;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn on_mounts(test: impl Fn(&Path)) {
    for image in [NewImage::ext4(), NewImage::xfs()] {
        mounted(&image, Options::default(), |path| test(path));
        image.judge();
    }
}

fn new_file(path: &Path) -> File {
    File::options().read(true).write(true).create_new(true).open(path).unwrap()
}

/// Returns the results of SEEK_DATA and SEEK_HOLE for a whole file.
fn data_of(file: &File) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    let mut at = 0;
    loop {
        match seek(file, SeekFrom::Data(at)) {
            Ok(start) => {
                let end = seek(file, SeekFrom::Hole(start)).unwrap();
                assert!(end > start && start >= at, "{at} {start} {end}");
                found.push(start..end);
                at = end;
            }
            Err(Errno::NXIO) => return found,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn cached_ranges_are_data() {
    require!(Root, Fuse);
    on_mounts(|root| {
        let file = new_file(&root.join("file"));
        file.write_all_at(&[1; 10_000], 0).unwrap();
        assert_eq!(data_of(&file), std::slice::from_ref(&(0..10_000)));
        // Past the end known to the file system, and in the middle of a hole known to it.
        file.write_all_at(&[2; 4096], 8 * MIB).unwrap();
        file.write_all_at(&[3; 4096], MIB).unwrap();
        file.set_len(16 * MIB).unwrap();
        let expected = [0..12 * KIB, MIB..MIB + 4096, 8 * MIB..8 * MIB + 4096];
        assert_eq!(data_of(&file), expected);
        // The page directly after data.
        file.write_all_at(&[4; 4096], MIB + 4096).unwrap();
        assert_eq!(data_of(&file)[1], MIB..MIB + 8192);
        // Data on both sides of the hole that the first search finds.
        file.write_all_at(&[5; 4096], 8 * MIB + 4096).unwrap();
        file.write_all_at(&[6; 4096], 8 * MIB + 16384).unwrap();
        assert_eq!(
            data_of(&file)[2..],
            [8 * MIB..8 * MIB + 8192, 8 * MIB + 16384..8 * MIB + 20480]
        );
        let mut bytes = [0; 1];
        file.read_exact_at(&mut bytes, 8 * MIB + 16384).unwrap();
        assert_eq!(bytes, [6]);
    });
}

#[test]
fn copies_by_seeking_lose_nothing() {
    require!(Root, Fuse);
    on_mounts(|root| {
        let mut random = fastrand::Rng::with_seed(7);
        let file = new_file(&root.join("file"));
        let mut model = vec![0_u8; MIB as usize];
        file.set_len(MIB).unwrap();
        for round in 0..60_u8 {
            let start = random.u64(..MIB - 1);
            let end = (start + random.u64(1..40_000)).min(MIB);
            if round % 3 == 2 {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&file, flags, start, end - start).unwrap();
                model[start as usize..end as usize].fill(0);
            } else {
                let bytes = vec![round + 1; (end - start) as usize];
                file.write_all_at(&bytes, start).unwrap();
                model[start as usize..end as usize].copy_from_slice(&bytes);
            }
            let mut copy = vec![0; MIB as usize];
            for range in data_of(&file) {
                let range = range.start as usize..range.end as usize;
                file.read_exact_at(&mut copy[range.clone()], range.start as u64).unwrap();
            }
            assert!(copy == model, "round {round}");
        }
    });
}

#[test]
fn more_threads_seek_than_serve() {
    require!(Root, Fuse);
    on_mounts(|root| {
        std::thread::scope(|scope| {
            for thread in 0..32_u64 {
                scope.spawn(move || {
                    let file = new_file(&root.join(format!("f{thread}")));
                    for round in 0..40 {
                        file.write_all_at(&[1; 4096], round * 64 * KIB).unwrap();
                        assert_eq!(data_of(&file).len() as u64, round + 1);
                    }
                });
            }
        });
    });
}
