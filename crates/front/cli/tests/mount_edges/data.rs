//! File contents: mappings, holes, allocation, copies, and the kernel's cache together with direct
//! I/O.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom as From, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, SeekFrom, copy_file_range, fallocate, seek};
use rustix::io::Errno;

use crate::place::probe::{asynchronous_writes, map, pattern};
use crate::place::{Driver, Format, Place, has_compiler, prove_on_both, run, shell, tool};

/// Creates a file that is open for reading and writing.
fn file(path: &Path) -> File {
    File::options().create(true).truncate(true).read(true).write(true).open(path).unwrap()
}

fn read(file: &File, offset: u64, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    file.read_exact_at(&mut bytes, offset).unwrap();
    bytes
}

/// Data written through a mapping can be read at once, and is present after a remount.
fn mappings_and_files_are_the_same(place: &mut Place) {
    if !has_compiler("mappings_and_files_are_the_same") {
        return;
    }
    const BYTES: u64 = 3 << 20;
    let path = place.join("file");
    let file = file(&path);
    file.set_len(BYTES + 100).unwrap();
    // Into a hole, across pages, and not synced.
    map(&path, 5000, BYTES - 5000, 1, false);
    assert!(read(&file, 5000, BYTES - 5000) == pattern(1, 5000, BYTES - 5000));
    assert_eq!(read(&file, 0, 5000), vec![0; 5000]);
    // Overwritten by write, then again by a mapping, in the same pages.
    file.write_all_at(&pattern(2, 8192, 10_000), 8192).unwrap();
    map(&path, 10_000, 3000, 3, true);
    let mut expected = vec![0; 5000];
    expected.extend(pattern(1, 5000, BYTES - 5000));
    expected.extend([0; 100]);
    expected[8192..18_192].copy_from_slice(&pattern(2, 8192, 10_000));
    expected[10_000..13_000].copy_from_slice(&pattern(3, 10_000, 3000));
    assert!(read(&file, 0, BYTES + 100) == expected);
    // Data written through a mapping behind the end of file does not reappear when the file grows.
    map(&path, BYTES + 50, 50, 4, true);
    expected[BYTES as usize + 50..].copy_from_slice(&pattern(4, BYTES + 50, 50));
    file.set_len(BYTES + 60).unwrap();
    file.set_len(BYTES + 9000).unwrap();
    expected.truncate(BYTES as usize + 60);
    expected.resize(BYTES as usize + 9000, 0);
    assert!(read(&file, 0, BYTES + 9000) == expected);
    drop(file);
    place.remount();
    assert!(fs::read(place.join("file")).unwrap() == expected);
}

/// SEEK_HOLE and SEEK_DATA are correct, also before data is written to the disk.
fn holes_are_found(place: &mut Place) {
    const MIB: u64 = 1 << 20;
    let path = place.join("file");
    let sparse = file(&path);
    sparse.write_all_at(&pattern(1, MIB, 8192), MIB).unwrap();
    sparse.write_all_at(&pattern(1, 3 * MIB, 100), 3 * MIB).unwrap();
    sparse.set_len(5 * MIB).unwrap();
    let data = |file: &File, from| seek(file, SeekFrom::Data(from));
    let hole = |file: &File, from| seek(file, SeekFrom::Hole(from));
    let check = |file: &File, when: &str| {
        // Reported data may be larger than written, but must not omit any.
        assert!(data(file, 0).unwrap() <= MIB, "{when}");
        let end = hole(file, MIB).unwrap();
        assert!((MIB + 8192..=5 * MIB).contains(&end), "{when}: {end}");
        assert!(data(file, MIB + 8192).unwrap() <= 3 * MIB, "{when}");
        assert!(hole(file, 3 * MIB).unwrap() >= 3 * MIB + 100, "{when}");
        assert_eq!(data(file, 5 * MIB), Err(Errno::NXIO), "{when}");
        assert_eq!(hole(file, 5 * MIB), Err(Errno::NXIO), "{when}");
        assert_eq!(data(file, MIB + 7), Ok(MIB + 7), "{when}");
        // Negative offsets are rejected.
        for before in [-1_i64, -4096, i64::MIN] {
            assert_eq!(data(file, before.cast_unsigned()), Err(Errno::NXIO), "{when}");
            assert_eq!(hole(file, before.cast_unsigned()), Err(Errno::NXIO), "{when}");
        }
    };
    check(&sparse, "written");
    sparse.sync_all().unwrap();
    check(&sparse, "synced");
    let exact = |file: &File| {
        assert_eq!(data(file, 0), Ok(MIB));
        assert_eq!(hole(file, MIB), Ok(MIB + 8192));
        assert_eq!(data(file, MIB + 8192), Ok(3 * MIB));
        // The kernel's XFS preallocates more, which stays if the file grows over it.
        assert!([5 * MIB, 3 * MIB + 4096].contains(&hole(file, 3 * MIB).unwrap()));
    };
    exact(&sparse);
    drop(sparse);
    place.remount();
    let sparse = File::open(place.join("file")).unwrap();
    check(&sparse, "mounted again");
    exact(&sparse);
    drop(sparse);
    shell(place.path(), "cp --sparse=always file copy && cmp file copy");
    // Without dirty data in a cache, results are exact.
    place.unmount();
    place.mount_read_only();
    let sparse = File::open(place.join("file")).unwrap();
    exact(&sparse);
    // The kernel's XFS preallocates more, which stays if the file grows over it.
    let exact = place.format() == Format::Ext || place.driver() == Driver::Own;
    assert!(!exact || sparse.metadata().unwrap().blocks() < 64, "a sparse file takes little");
    assert!(fs::metadata(place.join("copy")).unwrap().blocks() < 64);
}

/// Allocating, punching and zeroing: sizes, contents and used space.
fn ranges_are_allocated_and_given_back(place: &mut Place) {
    const MIB: u64 = 1 << 20;
    let file = file(&place.join("file"));
    let call = |flags, offset, len| fallocate(&file, flags, offset, len);
    let taken = || {
        file.sync_all().unwrap();
        file.metadata().unwrap().blocks() * 512
    };
    call(FallocateFlags::empty(), 0, 4 * MIB).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 4 * MIB);
    assert!(taken() >= 4 * MIB);
    assert_eq!(read(&file, 0, 4 * MIB), vec![0; 4 << 20]);
    call(FallocateFlags::KEEP_SIZE, 4 * MIB, 4 * MIB).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 4 * MIB);
    assert!(taken() >= 8 * MIB);
    file.write_all_at(&pattern(1, 0, 3 * MIB), 0).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    call(punch, MIB - 100, MIB + 200).unwrap();
    let mut expected = pattern(1, 0, 3 * MIB);
    expected.resize(4 << 20, 0);
    expected[(1 << 20) - 100..(2 << 20) + 100].fill(0);
    assert!(read(&file, 0, 4 * MIB) == expected);
    assert!(taken() <= 7 * MIB + 16384, "{}", taken());
    call(FallocateFlags::ZERO_RANGE, 10, 5000).unwrap();
    expected[10..5010].fill(0);
    call(FallocateFlags::ZERO_RANGE, 4 * MIB - 10, 1000).unwrap();
    expected.resize((4 << 20) + 990, 0);
    assert_eq!(file.metadata().unwrap().len(), 4 * MIB + 990);
    assert!(read(&file, 0, 4 * MIB + 990) == expected);
    assert_eq!(call(FallocateFlags::PUNCH_HOLE, 0, 4096), Err(Errno::OPNOTSUPP));
    assert_eq!(call(FallocateFlags::empty(), 0, 0), Err(Errno::INVAL));
    // Truncation also frees space behind the end of file.
    file.set_len(100).unwrap();
    expected.truncate(100);
    assert!(taken() <= 8192, "{}", taken());
    drop(file);
    place.remount();
    assert!(fs::read(place.join("file")).unwrap() == expected);
}

/// `copy_file_range`: over existing data, within one file, and with data that is not on the disk
/// yet.
fn ranges_are_copied(place: &mut Place) {
    let (source, target) = (file(&place.join("source")), file(&place.join("target")));
    let copy = |from: &File, mut at: u64, to: &File, mut to_at: u64, len: usize| {
        let mut done = 0;
        while done < len {
            let count = copy_file_range(from, Some(&mut at), to, Some(&mut to_at), len - done);
            match count.unwrap() {
                0 => break,
                count => done += count,
            }
        }
        done
    };
    source.write_all_at(&pattern(1, 0, 2_000_000), 0).unwrap();
    target.write_all_at(&pattern(2, 0, 1_000_000), 0).unwrap();
    assert_eq!(copy(&source, 1234, &target, 77_777, 1_500_000), 1_500_000);
    let mut expected = pattern(2, 0, 1_000_000);
    expected.resize(77_777 + 1_500_000, 0);
    expected[77_777..].copy_from_slice(&pattern(1, 1234, 1_500_000));
    assert!(read(&target, 0, expected.len() as u64) == expected);
    // Up to the end of the source, and nothing beyond it.
    assert_eq!(copy(&source, 1_999_000, &target, 10, 5000), 1000);
    assert_eq!(copy(&source, 3_000_000, &target, 10, 5000), 0);
    expected[10..1010].copy_from_slice(&pattern(1, 1_999_000, 1000));
    // Within one file: disjoint ranges work, overlapping ones are rejected.
    assert_eq!(copy(&target, 0, &target, 500_000, 300_000), 300_000);
    expected.copy_within(0..300_000, 500_000);
    let overlapping = copy_file_range(&target, Some(&mut 0), &target, Some(&mut 100), 1000);
    assert_eq!(overlapping, Err(Errno::INVAL));
    assert!(read(&target, 0, expected.len() as u64) == expected);
    drop((source, target));
    place.remount();
    assert!(fs::read(place.join("target")).unwrap() == expected);
}

/// The kernel's cache and direct I/O are coherent.
fn direct_requests_agree_with_the_cache(place: &mut Place) {
    if !testkit::satisfied("direct_requests_agree_with_the_cache", &[testkit::Need::Tool("xfs_io")])
    {
        return;
    }
    const BLOCKS: u64 = 64;
    let path = place.join("file");
    fs::write(&path, pattern(1, 0, BLOCKS * 4096)).unwrap();
    let cached = File::options().read(true).write(true).open(&path).unwrap();
    let xfs_io = |command: &str| run(tool("xfs_io").args(["-d", "-c", command]).arg(&path));
    let mut expected = pattern(1, 0, BLOCKS * 4096);
    for round in 0..BLOCKS - 1 {
        let (at, byte) = (round * 4096, 0x40 + round as u8 % 64);
        // Dirty in the cache, then half overwritten by direct I/O, then read through the cache.
        cached.write_all_at(&[byte; 8192], at).unwrap();
        expected[at as usize..at as usize + 8192].fill(byte);
        xfs_io(&format!("pwrite -S {} -b 4096 {at} 4096", byte + 1));
        expected[at as usize..at as usize + 4096].fill(byte + 1);
        assert!(read(&cached, at, 8192) == expected[at as usize..at as usize + 8192]);
    }
    xfs_io("pread -q -b 65536 0 65536");
    drop(cached);
    place.remount();
    assert!(fs::read(place.join("file")).unwrap() == expected);
}

/// Pages read during an asynchronous direct write are dropped when the write completes.
fn asynchronous_writes_leave_no_stale_pages(place: &mut Place) {
    if !has_compiler("asynchronous_writes_leave_no_stale_pages") {
        return;
    }
    asynchronous_writes(&place.join("file"), 300);
}

/// Offsets beyond 4 GiB and beyond the maximum of the format.
fn files_are_as_long_as_the_format_allows(place: &mut Place) {
    let far = file(&place.join("far"));
    // The maximum of ext4 with blocks of 4 KiB; XFS supports it as well.
    let last = (1_u64 << 44) - 4096 - 10;
    for (number, offset) in [4_294_967_290, 1 << 40, last].into_iter().enumerate() {
        far.write_all_at(&pattern(number as u64, offset, 10), offset).unwrap();
    }
    far.sync_all().unwrap();
    assert_eq!(far.metadata().unwrap().len(), last + 10);
    if place.format() == Format::Ext {
        // A cache may accept it and report the error on sync.
        let written = far.write_all_at(b"beyond", 1 << 44).and_then(|()| far.sync_all());
        let error = written.unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::FBIG));
        let error = far.set_len((1 << 44) + 1).unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::FBIG));
    }
    drop(far);
    place.remount();
    let mut far = File::open(place.join("far")).unwrap();
    for (number, offset) in [4_294_967_290, 1 << 40, last].into_iter().enumerate() {
        assert_eq!(read(&far, offset, 10), pattern(number as u64, offset, 10));
    }
    assert_eq!(far.seek(From::End(0)).unwrap(), last + 10);
    assert_eq!(far.read(&mut [0; 10]).unwrap(), 0);
}

/// Lines appended while another handle truncates, and writes through two handles of one file.
fn handles_of_a_file_see_each_other(place: &mut Place) {
    let path = place.join("file");
    let mut append = File::options().create(true).append(true).open(&path).unwrap();
    let mut other = File::options().read(true).write(true).open(&path).unwrap();
    append.write_all(b"first ").unwrap();
    other.write_all(b"FIRST").unwrap();
    append.write_all(b"second").unwrap();
    other.set_len(6).unwrap();
    append.write_all(b"third").unwrap();
    let mut found = String::new();
    other.rewind().unwrap();
    other.read_to_string(&mut found).unwrap();
    assert_eq!(found, "FIRST third");
    assert_eq!(append.metadata().unwrap().len(), 11);
}

prove_on_both!(
    mappings_and_files_are_the_same,
    holes_are_found,
    ranges_are_allocated_and_given_back,
    ranges_are_copied,
    direct_requests_agree_with_the_cache,
    asynchronous_writes_leave_no_stale_pages,
    files_are_as_long_as_the_format_allows,
    handles_of_a_file_see_each_other,
);
