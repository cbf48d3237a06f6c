//! File contents through requests, compared with a byte vector.

use crate::common::NewImage;
use crate::serving;

use fuse::Options;
use linux::abi::{AttrOut, GetattrIn, ROOT_ID, SetattrIn, WRITE_CACHE, WRITE_KILL_SUIDGID};
use linux::{Errno, Operation};
use proptest::prelude::*;
use serving::{
    CONTENT_KINDS, Client, KINDS, MIB, SEEK_DATA, SEEK_HOLE, ServedImage, on_each, pattern,
};
use vfs::FileSystem;
use zerocopy::FromBytes;

// Bits of a mode of fallocate(2).
const KEEP_SIZE: u32 = 0x01;
const PUNCH_HOLE: u32 = 0x02;
const ZERO_RANGE: u32 = 0x10;

const FILES: usize = 2;

/// Maximum size of the files.
const REACH: u64 = 300_000;

#[derive(Clone, Debug)]
enum FileOperation {
    Write { file: usize, offset: u64, len: usize, seed: u8, cached: bool },
    Truncate { file: usize, size: u64 },
    Fallocate { file: usize, mode: u32, offset: u64, len: u64 },
    Copy { from: usize, to: usize, off_in: u64, off_out: u64, len: u64, wide: bool },
}

fn step() -> impl Strategy<Value = FileOperation> {
    let modes = [0, KEEP_SIZE, PUNCH_HOLE | KEEP_SIZE, ZERO_RANGE, ZERO_RANGE | KEEP_SIZE];
    let small = 1..10_000_u64;
    let long = 1..200_000_u64;
    let len = prop_oneof![small, long].boxed();
    let offset = prop_oneof![Just(0), 0..REACH, (0..REACH / 4096).prop_map(|block| block * 4096)];
    let offset = offset.boxed();
    let file = 0..FILES;
    prop_oneof![
        3 => (file.clone(), offset.clone(), 0..20_000_usize, any::<u8>(), any::<bool>()).prop_map(
            |(file, offset, len, seed, cached)| FileOperation::Write { file, offset, len, seed, cached }
        ),
        1 => (file.clone(), offset.clone()).prop_map(|(file, size)| FileOperation::Truncate { file, size }),
        2 => (file.clone(), proptest::sample::select(modes.to_vec()), offset.clone(), len.clone())
            .prop_map(|(file, mode, offset, len)| FileOperation::Fallocate { file, mode, offset, len }),
        2 => (file.clone(), file, offset.clone(), offset, len, any::<bool>()).prop_map(
            |(from, to, off_in, off_out, len, wide)| FileOperation::Copy {
                from, to, off_in, off_out, len, wide,
            }
        ),
    ]
}

/// Writes bytes into a byte vector.
fn put(file: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let end = offset as usize + data.len();
    if !data.is_empty() && file.len() < end {
        file.resize(end, 0);
    }
    if !data.is_empty() {
        file[offset as usize..end].copy_from_slice(data);
    }
}

fn run(client: &Client<'_>, nodes: &[u64], model: &mut [Vec<u8>], step: &FileOperation) {
    match *step {
        FileOperation::Write { file, offset, len, seed, cached } => {
            let data = pattern(seed, len);
            let flags = if cached { WRITE_CACHE } else { 0 };
            client.write(nodes[file], offset, &data, flags).unwrap();
            put(&mut model[file], offset, &data);
        }
        FileOperation::Truncate { file, size } => {
            client.truncate(nodes[file], size).unwrap();
            model[file].resize(size as usize, 0);
        }
        FileOperation::Fallocate { file, mode, offset, len } => {
            let outcome = client.fallocate(nodes[file], mode, offset, len);
            if outcome == Err(Errno::OPNOTSUPP) && mode & KEEP_SIZE != 0 {
                // Files without extents have no space past their end.
                return;
            }
            outcome.unwrap();
            let (model, end) = (&mut model[file], (offset + len) as usize);
            if mode & KEEP_SIZE == 0 && model.len() < end {
                model.resize(end, 0);
            }
            if mode & (PUNCH_HOLE | ZERO_RANGE) != 0 {
                let size = model.len();
                model[size.min(offset as usize)..size.min(end)].fill(0);
            }
        }
        FileOperation::Copy { from, to, off_in, off_out, len, wide } => {
            if from == to && off_in < off_out + len && off_out < off_in + len {
                return;
            }
            let size = model[from].len();
            let range = size.min(off_in as usize)..size.min((off_in + len) as usize);
            let data = model[from][range].to_vec();
            let copied = client.copy((nodes[from], off_in), (nodes[to], off_out), len, wide);
            assert_eq!(copied, Ok(data.len() as u64));
            put(&mut model[to], off_out, &data);
        }
    }
}

/// Moves from data to hole to data, and checks that holes contain only zeros.
fn assert_map_is_sound(client: &Client<'_>, node: u64, bytes: &[u8]) {
    let size = bytes.len() as u64;
    let mut at = 0;
    while at < size {
        let data = client.lseek(node, at, SEEK_DATA);
        let hole_end = *data.as_ref().unwrap_or(&size);
        assert!(bytes[at as usize..hole_end as usize].iter().all(|&byte| byte == 0));
        let Ok(data) = data else {
            assert_eq!(data, Err(Errno::NXIO));
            assert_eq!(client.lseek(node, at, SEEK_HOLE), Ok(at), "the rest is a hole");
            break;
        };
        let hole = client.lseek(node, data, SEEK_HOLE).unwrap();
        assert!(data < hole && hole <= size);
        at = hole;
    }
    assert_eq!(client.lseek(node, size, SEEK_DATA), Err(Errno::NXIO));
    assert_eq!(client.lseek(node, size, SEEK_HOLE), Err(Errno::NXIO));
    assert_eq!(client.lseek(node, u64::MAX, SEEK_HOLE), Err(Errno::NXIO));
}

fn assert_contents(client: &Client<'_>, node: u64, bytes: &[u8]) {
    assert_eq!(client.getattr(node).size, bytes.len() as u64);
    for (at, piece) in (0..).step_by(1 << 20).zip(bytes.chunks(1 << 20)) {
        assert!(client.read(node, at, 1 << 20).unwrap() == piece, "contents differ from {at} on");
    }
    let from = bytes.len() / 3;
    let expected = &bytes[from..bytes.len().min(from + 1000)];
    assert!(client.read(node, from as u64, 1000).unwrap() == expected, "a part differs");
    assert!(client.read(node, bytes.len() as u64, 10).unwrap().is_empty());
}

/// Answers SEEK_DATA and SEEK_HOLE, which a writable mount answers only in late requests.
fn reader(fs: &dyn FileSystem) -> Client<'_> {
    Client::new(fs, Options { read_only: true, ..Options::default() })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: testkit::effort(12, 24, 2_000), ..ProptestConfig::default() })]
    #[test]
    fn files_hold_what_plain_bytes_do(steps in proptest::collection::vec(step(), 1..24)) {
        for kind in CONTENT_KINDS {
            let image = ServedImage::new(kind);
            let client = Client::new(image.fs(), Options::default());
            let nodes: Vec<_> = (0..FILES).map(|at| client.file(&format!("f{at}"))).collect();
            let mut model = vec![Vec::new(); FILES];
            for step in &steps {
                run(&client, &nodes, &mut model, step);
                let reader = reader(image.fs());
                for (node, bytes) in nodes.iter().zip(&model) {
                    assert_contents(&client, *node, bytes);
                    assert_map_is_sound(&reader, *node, bytes);
                }
            }
        }
    }
}

#[test]
fn seeking_is_exact_without_cached_data() {
    on_each(&KINDS, |image| {
        let kind = image.kind;
        let client = Client::new(image.fs(), Options::default());
        let node = client.file("f");
        client.write(node, MIB, &pattern(1, 8192), 0).unwrap();
        client.truncate(node, 4 * MIB).unwrap();
        client.fallocate(node, 0, 2 * MIB, 4096).unwrap();
        assert_eq!(client.lseek(node, 0, SEEK_DATA), Err(Errno::NOSYS));
        let reader = reader(image.fs());
        for (offset, whence, expected) in [
            (0, SEEK_DATA, Ok(MIB)),
            (0, SEEK_HOLE, Ok(0)),
            (MIB + 5, SEEK_DATA, Ok(MIB + 5)),
            (MIB, SEEK_HOLE, Ok(MIB + 8192)),
            // Allocated space is not data.
            (MIB + 8192, SEEK_DATA, Err(Errno::NXIO)),
            (2 * MIB, SEEK_HOLE, Ok(2 * MIB)),
            (4 * MIB, SEEK_HOLE, Err(Errno::NXIO)),
        ] {
            assert_eq!(reader.lseek(node, offset, whence), expected, "{kind:?} {offset} {whence}");
        }
        assert_eq!(reader.lseek(node, 0, 0), Err(Errno::INVAL));
    });
}

#[test]
fn modes_of_fallocate_that_are_not_there_are_refused() {
    on_each(&KINDS, |image| {
        let client = Client::new(image.fs(), Options::default());
        let node = client.file("f");
        client.write(node, 0, b"contents", 0).unwrap();
        for mode in [PUNCH_HOLE, 0x08, 0x20, 0x40, 0x41, 0x80, PUNCH_HOLE | ZERO_RANGE, u32::MAX] {
            assert_eq!(client.fallocate(node, mode, 0, 4096), Err(Errno::OPNOTSUPP), "{mode:#x}");
        }
        assert_eq!(client.fallocate(node, 0, u64::MAX - 5, 4096), Err(Errno::FBIG));
        assert_eq!(client.fallocate(node, 0, 0, 0), Err(Errno::INVAL));
        assert_eq!(client.read(node, 0, 100).unwrap(), b"contents");
        let blocks = client.getattr(node).blocks;
        client.fallocate(node, KEEP_SIZE, 0, MIB).unwrap();
        assert_eq!(client.getattr(node).size, 8);
        assert!(client.getattr(node).blocks >= blocks + 1000 * 2);
    });
}

#[test]
fn copies_keep_holes() {
    on_each(&KINDS, |image| {
        let kind = image.kind;
        let client = Client::new(image.fs(), Options::default());
        let (source, target) = (client.file("source"), client.file("target"));
        client.write(source, 8 * MIB, &pattern(3, 5000), 0).unwrap();
        client.truncate(source, 20 * MIB).unwrap();
        // A hole in the target, with data on both sides.
        client.write(target, 0, &pattern(4, 4096), 0).unwrap();
        client.write(target, 2 * MIB, &pattern(5, 4096), 0).unwrap();
        let len = client.copy((source, 0), (target, 0), u64::MAX, true).unwrap();
        assert_eq!(len, 20 * MIB);
        let (from, to) = (client.getattr(source), client.getattr(target));
        assert_eq!(to.size, 20 * MIB);
        // The target keeps its space, and gets only the space for the data.
        assert!(
            to.blocks <= from.blocks + 2 * 8 + 16,
            "{kind:?}: {} of {}",
            to.blocks,
            from.blocks
        );
        let reader = reader(image.fs());
        assert_eq!(reader.lseek(target, 0, SEEK_DATA), Ok(8 * MIB), "{kind:?}");
        assert_eq!(reader.lseek(target, 8 * MIB + 8192, SEEK_DATA), Err(Errno::NXIO));
        assert!(client.read(target, 8 * MIB, 5000).unwrap() == pattern(3, 5000));
    });
}

#[test]
fn a_copy_ends_at_the_end_of_the_source_or_the_request_limit() {
    on_each(&KINDS, |image| {
        let client = Client::new(image.fs(), Options::default());
        let (source, target) = (client.file("source"), client.file("target"));
        client.write(source, 0, &pattern(1, 10_000), 0).unwrap();
        assert_eq!(client.copy((source, 4000), (target, 7), 1 << 40, false), Ok(6000));
        assert_eq!(client.copy((source, 10_000), (target, 7), 10, false), Ok(0));
        assert_eq!(client.copy((source, u64::MAX), (target, 7), 10, true), Ok(0));
        assert_eq!(client.copy((source, 0), (target, u64::MAX - 3), 10, true), Err(Errno::FBIG));
        assert_eq!(client.read(target, 0, 100_000).unwrap()[7..], pattern(1, 10_000)[4000..]);
        // More than the answer of the old request can represent.
        client.truncate(source, 6 << 30).unwrap();
        assert_eq!(
            client.copy((source, 1 << 20), (target, 1 << 20), u64::MAX, false),
            Ok(u64::from(u32::MAX))
        );
    });
}

/// Offsets whose difference is a multiple of the block size share all whole blocks, and the last one if both files end in
/// it.
#[test]
fn aligned_copies_share_blocks_in_xfs() {
    let image = NewImage::xfs();
    {
        let client = Client::new(image.fs(), Options::default());
        let (source, target) = (client.file("source"), client.file("target"));
        let data = pattern(5, 8_000_000);
        for (at, piece) in (0..).step_by(1_000_000).zip(data.chunks(1_000_000)) {
            client.write(source, at, piece, 0).unwrap();
        }
        let free = || image.fs().statfs().unwrap().blocks_free;
        let mut expected = Vec::new();
        let mut copy = |from: u64, to: u64, len: u64, blocks_max: u64| {
            let before = free();
            assert_eq!(client.copy((source, from), (target, to), len, true), Ok(len));
            let bytes = &data[from as usize..][..len as usize];
            put(&mut expected, to, bytes);
            assert_contents(&client, target, &expected);
            let taken = before.saturating_sub(free());
            assert!(taken <= blocks_max, "{taken} blocks for {len} bytes from {from} to {to}");
        };
        // Whole and to the end; then parts of blocks at both ends, which are copied; then over existing data.
        copy(0, 0, 8_000_000, 3);
        copy(100, 1_048_676, 3_000_000, 5);
        copy(4096, 8_003_584, 1_000_000, 5);
        copy(8192, 0, 3 << 20, 3);
        // No blocks can be shared.
        copy(0, 1, 10_000, 5);
    }
    image.judge();
}

#[test]
fn a_copy_without_space_reports_its_progress() {
    on_each(&KINDS, |image| {
        let kind = image.kind;
        let client = Client::new(image.fs(), Options::default());
        let (source, target) = (client.file("source"), client.file("target"));
        let data = pattern(9, 1 << 20);
        let mut size = 0;
        while client.write(source, size, &data, 0).is_ok() {
            size += MIB;
            if size == 40 * MIB {
                break;
            }
        }
        // Shifted, so that no blocks can be shared.
        let copied = client.copy((source, 0), (target, 512), size, true).unwrap();
        assert!(copied > 0 && copied < size, "{kind:?}: {copied} of {size}");
        let outcome = client.copy((source, copied), (target, 512 + copied), size, true);
        assert!(matches!(outcome, Err(Errno::NOSPC) | Ok(1..)), "{kind:?}: {outcome:?}");
        let at = copied - copied % MIB - MIB;
        assert!(client.read(target, 512 + at, 1 << 20).unwrap() == data);
    });
}

#[test]
fn only_what_the_kernel_does_not_cache_sets_times() {
    on_each(&KINDS, |image| {
        let kind = image.kind;
        let client = Client::new(image.fs(), Options::default());
        let (node, other) = (client.file("f"), client.file("other"));
        client.write(other, 0, b"other", 0).unwrap();
        let changes = |change: &dyn Fn()| {
            client.set_times(node, 1, 2, 3);
            change();
            let attr = client.getattr(node);
            assert_eq!(attr.mtime != 2, attr.ctime != 3, "{kind:?}");
            attr.mtime != 2
        };
        let copy = |from, to| {
            client.copy(from, to, 5, false).unwrap();
        };
        assert!(!changes(&|| client.write(node, 0, b"cached", WRITE_CACHE).unwrap()));
        assert!(changes(&|| client.write(node, 0, b"direct", 0).unwrap()));
        assert!(!changes(&|| client.write(node, 0, b"", 0).unwrap()));
        assert!(changes(&|| client.fallocate(node, 0, 0, 4096).unwrap()));
        assert!(changes(&|| copy((other, 0), (node, 0))));
        assert!(!changes(&|| copy((other, 5), (node, 0))));
        assert!(!changes(&|| copy((node, 0), (other, 0))));
    });
}

#[test]
fn changes_take_privileges_away() {
    const CAPABILITY: &[u8] = b"security.capability";
    on_each(&KINDS, |image| {
        let mut client = Client::new(image.fs(), Options::default());
        let (node, other) = (client.file("f"), client.file("other"));
        client.write(other, 0, b"other", 0).unwrap();
        // The remaining mode, and whether the capabilities remain.
        let after = |client: &Client<'_>, mode: u32, change: &dyn Fn()| {
            client.setxattr(node, CAPABILITY, b"some").unwrap();
            client.chmod(node, mode);
            change();
            (client.getattr(node).mode & 0o7777, client.getxattr(node, CAPABILITY).is_ok())
        };
        let write = |flags| client.write(node, 0, b"x", flags).unwrap();
        assert_eq!(after(&client, 0o6777, &|| write(WRITE_CACHE)), (0o6777, true));
        assert_eq!(after(&client, 0o6777, &|| write(0)), (0o6777, false));
        assert_eq!(after(&client, 0o6777, &|| write(WRITE_KILL_SUIDGID)), (0o777, false));
        // Without execute permission of the group, the bit has another meaning.
        assert_eq!(after(&client, 0o6767, &|| write(WRITE_KILL_SUIDGID)), (0o2767, false));
        let killed = WRITE_KILL_SUIDGID | WRITE_CACHE;
        assert_eq!(after(&client, 0o4755, &|| write(killed)), (0o755, true));

        let allocate = |client: &Client<'_>| client.fallocate(node, 0, 0, 4096).unwrap();
        let copy = |client: &Client<'_>| {
            client.copy((other, 0), (node, 0), 5, false).unwrap();
        };
        assert_eq!(after(&client, 0o6777, &|| allocate(&client)), (0o6777, false));
        assert_eq!(after(&client, 0o6777, &|| copy(&client)), (0o6777, false));
        client.0.uid = 1000;
        assert_eq!(after(&client, 0o6777, &|| allocate(&client)), (0o777, false));
        assert_eq!(after(&client, 0o6777, &|| copy(&client)), (0o777, false));
    });
}

#[test]
fn the_kernel_learns_of_lost_privileges_before_contents_change() {
    on_each(&KINDS, |image| {
        let mut client = Client::new(image.fs(), Options::default());
        let (node, dir) = (client.file("f"), client.directory(ROOT_ID, "d"));
        // The request that Linux sends first, which sets nothing.
        let asked = |client: &Client<'_>, node, mode| {
            client.chmod(node, mode);
            let attr = client.setattr(node, SetattrIn::default()).unwrap();
            assert_eq!(attr, client.getattr(node));
            attr.mode & 0o7777
        };
        assert_eq!(asked(&client, node, 0o6777), 0o6777);
        client.0.uid = 1000;
        assert_eq!(asked(&client, node, 0o6777), 0o777);
        assert_eq!(asked(&client, dir, 0o2777), 0o2777, "new files get its group");
    });
}

#[test]
fn attributes_of_a_file_without_space_are_invalidated() {
    on_each(&KINDS, |image| {
        let client = Client::new(image.fs(), Options::default());
        let reader = reader(image.fs());
        let (node, dir) = (client.file("f"), client.directory(ROOT_ID, "d"));
        let is_kept = |client: &Client<'_>, node| {
            let answer = client.ask(node, Operation::Getattr(GetattrIn::default())).unwrap();
            AttrOut::read_from_bytes(&answer).unwrap().attr_valid > 1_000_000
        };
        assert!(!is_kept(&client, node) && is_kept(&reader, node) && is_kept(&client, dir));
        client.write(node, 0, &pattern(1, 5000), WRITE_CACHE).unwrap();
        assert!(is_kept(&client, node));
    });
}

#[test]
fn failed_reads_and_writes_report_the_reason() {
    on_each(&KINDS, |image| {
        let client = Client::new(image.fs(), Options::default());
        let (node, dir) = (client.file("f"), client.directory(1, "d"));
        assert_eq!(client.read(dir, 0, 10), Err(Errno::ISDIR));
        assert_eq!(client.write(dir, 0, b"x", 0), Err(Errno::ISDIR));
        assert_eq!(client.read(node, 0, u32::MAX), Err(Errno::IO), "no answer has such room");
        assert_eq!(client.write(node, u64::MAX - 1, b"xyz", 0), Err(Errno::FBIG));
        let reader = reader(image.fs());
        assert_eq!(reader.write(node, 0, b"x", 0), Err(Errno::ROFS));
        assert_eq!(reader.fallocate(node, 0, 0, 1), Err(Errno::ROFS));
        assert_eq!(reader.copy((node, 0), (node, 9), 1, false), Err(Errno::ROFS));
        assert_eq!(reader.fsync(node), Ok(()));
    });
}
