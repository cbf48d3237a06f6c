//! Images with `bigalloc`: file contents compared with a model, names, attributes and links in separate blocks, lack of
//! space, and the results of e2fsck and the kernel.

use crate::files;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use disk::{BlockDevice, FileDevice};
use ext4::{Ext4, OpenOptions};
use fastrand::Rng;
use files::{FileChange, FileModel, FileParameters, MIB, bytes_of, check, create, open};
use testkit::{KernelMount, Mke2fs, MountOptions, Tree, populate_with_kernel, require, scratch};
use vfs::{AllocateMode, Error, FileSystem, Ino, NewInode};

const NEW: NewInode = NewInode {
    permissions: 0o755,
    uid: 0,
    gid: 0,
    time: vfs::Timestamp { sec: 1_700_000_000, nsec: 0 },
    parent_time: None,
};
const MODES: [AllocateMode; 5] = [
    AllocateMode::Unwritten,
    AllocateMode::UnwrittenKeepSize,
    AllocateMode::PunchHole,
    AllocateMode::Zero,
    AllocateMode::ZeroKeepSize,
];

/// Block size and cluster size in bytes.
const SIZES: [(u32, u32); 4] =
    [(4096, 16 << 10), (4096, 64 << 10), (1024, 16 << 10), (1024, 2 << 10)];

/// Creates an image that contains garbage except for what mke2fs writes.
fn make(path: &Path, size: u64, (block, cluster): (u32, u32), features: &str) -> Arc<FileDevice> {
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path);
    let file = file.unwrap();
    let garbage = vec![0xee; MIB as usize];
    (0..size / MIB).for_each(|at| file.write_all_at(&garbage, at * MIB).unwrap());
    let mut mke2fs = testkit::command("mke2fs");
    let features = format!("bigalloc,^has_journal,^orphan_file{features}");
    mke2fs.args(["-q", "-F", "-t", "ext4", "-O", &features, "-N", "256"]);
    mke2fs.args(["-E", "nodiscard,lazy_itable_init=0", "-b", &block.to_string()]);
    let made = mke2fs.args(["-C", &cluster.to_string()]).arg(path).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Arc::new(FileDevice::new(file).unwrap())
}

fn shape((block_size, _): (u32, u32)) -> FileParameters {
    FileParameters { block_size, extents: true }
}

/// Returns a random change in a few windows, so that changes overlap in clusters.
fn change(rng: &mut Rng, block: u64) -> FileChange {
    let base = [0, 300_000, 90_000_000][rng.usize(..3)] * block;
    let at = base + rng.u64(..400 * block);
    let offset = if rng.bool() { at / block * block } else { at };
    let len = if rng.u8(..8) == 0 { rng.u64(1..150 * block) } else { rng.u64(1..3 * block) };
    match rng.u8(..100) {
        0 => FileChange::Truncate(offset),
        1..50 => FileChange::Write { offset, len, seed: rng.u8(..) },
        _ => FileChange::Allocate { offset, len, mode: MODES[rng.usize(..MODES.len())] },
    }
}

/// Lets the kernel change a file that we wrote, and continues with the result.
fn kernel_round(image: &Path, rng: &mut Rng, model: &mut FileModel) {
    let block = u64::from(model.shape.block_size);
    populate_with_kernel(image, "ext4", |root| {
        let file = File::options().write(true).open(root.join("file")).unwrap();
        for _ in 0..20 {
            let change = FileChange::Write {
                offset: rng.u64(..400) * block,
                len: rng.u64(1..3 * block),
                seed: rng.u8(..),
            };
            let FileChange::Write { offset, len, seed } = change else { continue };
            file.write_all_at(&bytes_of(len, seed), offset).unwrap();
            model.apply(&change);
        }
    });
}

fn run_changes(sizes: (u32, u32), features: &str, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let dir = scratch();
    let image = dir.path().join("image");
    let device = make(&image, 64 * MIB, sizes, features);
    let mut fs = open(&device);
    let ino = create(&fs, "file");
    let mut model = FileModel::new(shape(sizes));
    for step in 1..=900 {
        let change = change(&mut rng, sizes.0.into());
        let context = || format!("{sizes:?}, seed {seed}, step {step}, {change:?}");
        change.apply(&fs, ino).unwrap_or_else(|error| panic!("{}: {error}", context()));
        model.apply(&change);
        let map = model.compare_map(&fs, ino);
        map.unwrap_or_else(|problem| panic!("{}: {problem}", context()));
        if step % 300 == 0 {
            model.assert_same(&fs, ino, &context());
            fs.close().unwrap();
            check(&image);
            model.assert_same_in_kernel(&image, "file");
            if step == 300 && testkit::missing(testkit::Need::Mount("ext4")).is_none() {
                kernel_round(&image, &mut rng, &mut model);
            }
            fs = open(&device);
        }
    }
    let free = fs.statfs().unwrap().blocks_free;
    let used = fs.attributes(ino).unwrap().blocks_512 / (u64::from(sizes.0) / 512);
    fs.unlink(fs.root(), b"file", None).unwrap();
    assert_eq!(fs.statfs().unwrap().blocks_free, free + used);
    fs.close().unwrap();
    check(&image);
}

#[test]
fn contents_are_as_the_model_has_them() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    for (number, sizes) in SIZES.into_iter().enumerate() {
        for seed in 0..testkit::effort(1, 2, 50) {
            run_changes(sizes, "", seed + 10 * number as u64);
        }
    }
    run_changes(SIZES[0], ",^metadata_csum,^64bit", 50);
}

fn blocks_of(fs: &dyn FileSystem, ino: Ino) -> u64 {
    fs.attributes(ino).unwrap().blocks_512 * 512
}

#[test]
fn a_cluster_is_taken_once_and_freed_with_its_last_block() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    for sizes in SIZES {
        let dir = scratch();
        let image = dir.path().join("image");
        let device = make(&image, 32 * MIB, sizes, "");
        let fs = open(&device);
        let (block, cluster) = (u64::from(sizes.0), u64::from(sizes.1));
        let ino = create(&fs, "file");
        let free = fs.statfs().unwrap().blocks_free;
        let taken = |clusters: u64| {
            assert_eq!(blocks_of(&fs, ino), clusters * cluster);
            let free_now = fs.statfs().unwrap().blocks_free;
            assert_eq!(free - free_now, clusters * cluster / block);
        };
        let punch = |at: u64, len| fs.allocate(ino, at, len, AllocateMode::PunchHole).unwrap();
        fs.write(ino, cluster - block, b"last of the first", None).unwrap();
        taken(1);
        fs.write(ino, 0, b"first of the first", None).unwrap();
        taken(1);
        // With more extents, the tree would need a cluster.
        punch(0, block);
        taken(1);
        fs.allocate(ino, 3 * cluster + block, block, AllocateMode::Unwritten).unwrap();
        taken(2);
        // Covers an allocated cluster, a hole, and another allocated cluster.
        fs.write(ino, cluster - block, &vec![7; (2 * cluster + 2 * block) as usize], None).unwrap();
        taken(4);
        punch(0, cluster - block);
        taken(4);
        punch(cluster - block, block);
        taken(3);
        punch(cluster + block, cluster - block);
        taken(3);
        fs.truncate(ino, cluster + 1, None).unwrap();
        taken(1);
        punch(cluster, block);
        taken(0);
        fs.close().unwrap();
        check(&image);
    }
}

/// Creates and partly removes names in large directories, links and attributes that need blocks.
fn change_names(fs: &dyn FileSystem) {
    let root = fs.root();
    let many = fs.mkdir(root, b"many", &NEW).unwrap();
    let other = fs.mkdir(root, b"other", &NEW).unwrap();
    for number in 0..120 {
        let name = format!("{number:0>200}");
        let ino = fs.create(many, name.as_bytes(), &NEW).unwrap();
        match number % 6 {
            0 => fs.set_xattr(ino, b"user.big", &[b'x'; 700]).unwrap(),
            1 => fs.write(ino, 0, &vec![5; 9000], None).unwrap(),
            2 => fs
                .rename(
                    (many, name.as_bytes()),
                    (other, name.as_bytes()),
                    vfs::RenameMode::Replace,
                    None,
                )
                .unwrap(),
            3 => fs.unlink(many, name.as_bytes(), None).unwrap(),
            4 => {
                let target = vec![b't'; 100 + number];
                let name = format!("link{number}");
                fs.symlink(other, name.as_bytes(), &target, &NEW).map(drop).unwrap();
            }
            _ => {}
        }
        if number % 12 == 0 {
            fs.remove_xattr(ino, b"user.big").unwrap();
        }
    }
}

fn remove_all(fs: &dyn FileSystem) {
    for dir in [&b"many"[..], b"other"] {
        let ino = fs.lookup(fs.root(), dir).unwrap();
        for number in 0..120 {
            for name in [format!("{number:0>200}"), format!("link{number}")] {
                match fs.unlink(ino, name.as_bytes(), None) {
                    Ok(()) | Err(Error::NotFound) => {}
                    Err(error) => panic!("{name}: {error}"),
                }
            }
        }
        fs.rmdir(fs.root(), dir, None).unwrap();
    }
}

#[test]
fn names_links_and_attributes_take_clusters_and_give_them_back() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Mount("ext4"));
    for (sizes, features) in
        [(SIZES[0], ""), (SIZES[1], ",ea_inode"), (SIZES[2], ",inline_data"), (SIZES[3], "")]
    {
        let dir = scratch();
        let image = dir.path().join("image");
        let device = make(&image, 64 * MIB, sizes, features);
        let fs = open(&device);
        let free = fs.statfs().unwrap().blocks_free;
        change_names(&fs);
        if features == ",ea_inode" {
            let ino = create(&fs, "valued");
            fs.set_xattr(ino, b"user.value", &vec![b'v'; 30_000]).unwrap();
        }
        fs.close().unwrap();
        check(&image);
        let tree = {
            let mount = KernelMount::new(&image, &MountOptions::read_only("ext4"));
            Tree::of(mount.path())
        };
        assert!(tree.nodes.len() > 100);
        let fs = open(&device);
        remove_all(&fs);
        if features == ",ea_inode" {
            fs.unlink(fs.root(), b"valued", None).unwrap();
        }
        assert_eq!(fs.statfs().unwrap().blocks_free, free);
        fs.close().unwrap();
        check(&image);
    }
}

/// We change and remove files that the kernel created.
#[test]
fn files_of_the_kernel_can_be_changed_and_removed() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Mount("ext4"));
    for sizes in SIZES {
        let dir = scratch();
        let image = dir.path().join("image");
        let device = make(&image, 64 * MIB, sizes, "");
        let block = u64::from(sizes.0);
        let fs = open(&device);
        let free = fs.statfs().unwrap().blocks_free;
        fs.close().unwrap();
        populate_with_kernel(&image, "ext4", |root| {
            let file = File::create(root.join("file")).unwrap();
            for piece in 0..700 {
                file.write_all_at(&[9; 100], (piece * 3 + piece % 2) * block).unwrap();
            }
        });
        let fs = open(&device);
        let ino = fs.lookup(fs.root(), b"file").unwrap();
        for piece in (0..700).step_by(5) {
            fs.allocate(ino, piece * 3 * block, 2 * block, AllocateMode::PunchHole).unwrap();
            fs.write(ino, (piece * 3 + 2) * block, &vec![8; block as usize], None).unwrap();
        }
        fs.close().unwrap();
        check(&image);
        let fs = open(&device);
        fs.truncate(ino, 1000 * block + 3, None).unwrap();
        fs.close().unwrap();
        check(&image);
        let fs = open(&device);
        fs.unlink(fs.root(), b"file", None).unwrap();
        assert_eq!(fs.statfs().unwrap().blocks_free, free);
        fs.close().unwrap();
        check(&image);
    }
}

/// Makes one change of a fragmented file while `left` clusters are free. Returns whether there was room.
fn attempt(sizes: (u32, u32), pieces: u64, change: &FileChange, left: u64) -> bool {
    let dir = scratch();
    let image = dir.path().join("image");
    let device = make(&image, 16 * MIB, sizes, "");
    let fs = open(&device);
    let (block, cluster) = (u64::from(sizes.0), u64::from(sizes.1));
    let (ino, filler) = (create(&fs, "file"), create(&fs, "filler"));
    let mut model = FileModel::new(shape(sizes));
    for piece in 0..pieces {
        let write = FileChange::Write { offset: piece * 2 * block, len: block, seed: piece as u8 };
        write.apply(&fs, ino).unwrap();
        model.apply(&write);
    }
    let mut size = 0;
    for step in [64, 8, 1] {
        while fs.allocate(filler, size, step * cluster, AllocateMode::Unwritten).is_ok() {
            size += step * cluster;
        }
    }
    fs.truncate(filler, size - left * cluster, None).unwrap();
    let context = format!("{sizes:?}, {pieces} pieces, {left} left, {change:?}");
    let done = model.change_if_space(&fs, ino, change, &context);
    fs.close().unwrap();
    check(&image);
    done
}

#[test]
fn a_change_without_space_leaves_no_trace() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    let mut refused = 0;
    for sizes in [SIZES[2], SIZES[0]] {
        let (block, cluster) = (u64::from(sizes.0), u64::from(sizes.1));
        // The root of the tree is full, or a leaf is.
        for pieces in [4, 84 * block / 1024 + block / 1024 - 1] {
            let after = pieces * 2 * block;
            let allocate = |mode, offset, len| FileChange::Allocate { offset, len, mode };
            let changes = [
                FileChange::Write { offset: after, len: 3 * cluster, seed: 1 },
                FileChange::Write { offset: block / 2, len: 4 * block, seed: 2 },
                FileChange::Write { offset: after + 1000 * cluster, len: 10, seed: 3 },
                allocate(
                    AllocateMode::Unwritten,
                    after.saturating_sub(80 * block),
                    after.min(80 * block) + cluster,
                ),
                allocate(AllocateMode::PunchHole, 2 * block, block),
                allocate(AllocateMode::Zero, 2 * block, 3 * block),
                FileChange::Truncate(block),
            ];
            for change in changes {
                let mut left = 0;
                while !attempt(sizes, pieces, &change, left) {
                    (refused, left) = (refused + 1, left + 1);
                    assert!(left < 8, "{change:?} never has room");
                }
            }
        }
    }
    assert!(refused > 10, "{refused}");
}

/// A run longer than one extent, cut in the middle of clusters.
#[test]
fn long_runs_are_split_inside_of_clusters() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    for sizes in [SIZES[2], SIZES[3]].into_iter().take(testkit::effort(1, 2, 2)) {
        let dir = scratch();
        let image = dir.path().join("image");
        let device = make(&image, 128 * MIB, sizes, "");
        let fs = open(&device);
        let ino = create(&fs, "file");
        let mut model = FileModel::new(shape(sizes));
        let allocate = |mode, offset, len| FileChange::Allocate { offset, len, mode };
        for change in [
            allocate(AllocateMode::Unwritten, 5000, 70 * MIB),
            FileChange::Write { offset: 33 * MIB - 1, len: 20_000, seed: 1 },
            allocate(AllocateMode::PunchHole, 10_000, 40 * MIB),
            allocate(AllocateMode::UnwrittenKeepSize, 3000, 41 * MIB),
            FileChange::Truncate(35 * MIB + 1025),
        ] {
            change.apply(&fs, ino).unwrap();
            model.apply(&change);
            model.assert_same(&fs, ino, &format!("{change:?}"));
        }
        fs.close().unwrap();
        check(&image);
    }
}

/// Creates an image without checksums, with a file of one block after a hole of one block. Returns the position of its
/// extent.
fn image_with_extent(image: &Path) -> (Arc<FileDevice>, u64) {
    let device = make(image, 32 * MIB, SIZES[0], ",^metadata_csum,^64bit");
    let fs = open(&device);
    let ino = create(&fs, "file");
    fs.write(ino, 4096, &[3; 4096], None).unwrap();
    fs.close().unwrap();
    let mut extent = [0; 12];
    extent[0] = 1;
    extent[4] = 1;
    let bytes = std::fs::read(image).unwrap();
    let is_it = |at: &usize| {
        let found = &bytes[*at..at + 12];
        // After the header of a root, and in the second block of a cluster.
        bytes[at - 12..at - 8] == [0x0a, 0xf3, 1, 0]
            && found[..8] == extent[..8]
            && found[8] % 4 == 1
    };
    let at = (4096..bytes.len() - 12).step_by(4).find(is_it).expect("it has the extent");
    (device, at as u64)
}

#[test]
fn damage_of_clusters_is_found() {
    require!(Tool("mke2fs"));
    let is_corrupt = |result: Result<(), Error>| {
        assert!(matches!(result, Err(Error::Corrupt(_))), "{result:?}");
    };
    let dir = scratch();
    let image = dir.path().join("image");
    let (device, extent) = image_with_extent(&image);
    let file = File::options().read(true).write(true).open(&image).unwrap();
    let attempts = || {
        let fs = open(&device);
        let ino = fs.lookup(fs.root(), b"file").unwrap();
        let free = fs.statfs().unwrap().blocks_free;
        is_corrupt(fs.write(ino, 2 * 4096, b"beside it", None));
        is_corrupt(fs.allocate(ino, 4096, 4096, AllocateMode::PunchHole));
        is_corrupt(fs.truncate(ino, 0, None));
        assert_eq!(fs.statfs().unwrap().blocks_free, free);
        fs.close().unwrap();
    };
    // A block at another offset of its cluster.
    let mut start = [0];
    file.read_exact_at(&mut start, extent + 8).unwrap();
    file.write_all_at(&[start[0] + 1], extent + 8).unwrap();
    attempts();
    file.write_all_at(&start, extent + 8).unwrap();
    // A block map.
    let flags = extent - 12 - 0x28 + 0x20;
    let mut old = [0; 4];
    file.read_exact_at(&mut old, flags).unwrap();
    file.write_all_at(&(u32::from_le_bytes(old) & !0x8_0000).to_le_bytes(), flags).unwrap();
    attempts();
    file.write_all_at(&old, flags).unwrap();
    // No extents at all.
    let incompat = 1024 + 0x60;
    file.read_exact_at(&mut old, incompat).unwrap();
    file.write_all_at(&(u32::from_le_bytes(old) & !0x40).to_le_bytes(), incompat).unwrap();
    let opened = Ext4::open_writable(device.clone(), &OpenOptions::default());
    is_corrupt(opened.map(drop));
}

#[test]
fn fast_commits_are_refused_and_nothing_is_written() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Mount("ext4"));
    let dir = scratch();
    let place = |name| dir.path().join(name);
    let (live, image, synced) = (place("live"), place("image"), place("synced"));
    let mke2fs = Mke2fs::new("ext4").features("bigalloc,fast_commit").block_size(4096);
    mke2fs.arguments(["-C", "16384"]).create(&live, 64 * MIB);
    let options = MountOptions { extra: "commit=600", ..MountOptions::read_write("ext4") };
    let mount = KernelMount::new(&live, &options);
    std::fs::write(mount.path().join("file"), vec![6; 5000]).unwrap();
    assert!(
        std::process::Command::new("sync").arg("-f").arg(mount.path()).status().unwrap().success()
    );
    testkit::copy_image(&live, &synced);
    std::fs::write(mount.path().join("file"), vec![7; 5000]).unwrap();
    File::open(mount.path().join("file")).unwrap().sync_all().unwrap();
    testkit::copy_image(&live, &image);
    mount.unmount();
    let before = std::fs::read(&image).unwrap();
    let file = File::options().read(true).write(true).open(&image).unwrap();
    let device = Arc::new(FileDevice::new(file).unwrap());
    let refused = Ext4::open_writable(device, &OpenOptions::default()).map(drop).unwrap_err();
    assert!(matches!(refused, Error::Unsupported(_)), "{refused}");
    assert!(std::fs::read(&image).unwrap() == before);
    // Without fast commits in its journal, it can be changed like any other image.
    for path in [live, synced] {
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let fs = open(&Arc::new(FileDevice::new(file).unwrap()));
        let ino = fs.lookup(fs.root(), b"file").unwrap();
        fs.write(ino, 5000, &[8; 50_000], None).unwrap();
        fs.close().unwrap();
        check(&path);
    }
}

/// A device that checks that no sector is written partly.
struct WholeSectors(Arc<FileDevice>);

impl BlockDevice for WholeSectors {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let is_whole = offset.is_multiple_of(512) && data.len().is_multiple_of(512);
        assert!(is_whole, "{} bytes at {offset}", data.len());
        self.0.write_at(offset, data)
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.0.zero_range(offset, len)
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }
}

/// After a crash, a range that was punched out of a cluster may reappear. So a write there must not leave a sector that
/// mixes old and new bytes.
#[test]
fn reused_cluster_parts_are_written_in_whole_sectors() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    let dir = scratch();
    let image = dir.path().join("image");
    let device = make(&image, 32 * MIB, SIZES[0], "");
    let whole = Arc::new(WholeSectors(device.clone()));
    let fs = Ext4::open_writable(whole, &OpenOptions::default()).unwrap();
    let ino = create(&fs, "file");
    let mut model = FileModel::new(shape(SIZES[0]));
    let write = |offset, len| FileChange::Write { offset, len, seed: len as u8 };
    let parts = [(8192, 1), (8193, 510), (8700, 7), (8700, 600), (8703, 4100), (9000, 3288)];
    let mut changes = vec![write(0, 16384)];
    for (offset, len) in parts.into_iter().chain([(8192, 8192), (8191 + 512, 1), (8704, 513)]) {
        let mode = AllocateMode::PunchHole;
        changes.push(FileChange::Allocate { offset: 8192, len: 8192, mode });
        changes.push(write(offset, len));
    }
    for change in changes {
        change.apply(&fs, ino).unwrap();
        model.apply(&change);
        model.assert_same(&fs, ino, &format!("{change:?}"));
        assert_eq!(blocks_of(&fs, ino), 16384);
    }
    fs.close().unwrap();
    check(&image);
}
