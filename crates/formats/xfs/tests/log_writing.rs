//! The written log as read by the kernel: a closed image needs no recovery, and the log of a crashed image is replayed.

use crate::changing;

use std::fs::File;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use changing::kernel::assert_same;
use changing::{SMALL_CACHE_BYTES, TargetLayout, assert_clean, write_image};
use disk::{BlockDevice, MemoryDevice};
use testkit::fs_tree::{FsTree, Rules};
use testkit::model::Model;
use testkit::operation::{Generator, Mix, Session};
use testkit::{KernelMount, MountOptions, require};
use vfs::FileSystem;
use xfs::format::log::buffer::BufferType;
use xfs::format::superblock::Superblock;
use xfs::{LogItem, OpenOptions, Xfs, log_end, log_is_clean};

/// Many changes of few names, so that the log wraps around.
const BUSY: Mix = Mix { data: 20, ..Mix::ALL };

fn open<D: BlockDevice + 'static>(device: &Arc<D>, cache_bytes: usize) -> Xfs {
    let options = OpenOptions { cache_bytes, ..OpenOptions::default() };
    Xfs::open_writable(device.clone(), &options).unwrap()
}

/// Random operations, with occasional syncs.
struct Load {
    model: Model,
    model_session: Session,
    session: Session,
    generator: Generator,
}

impl Load {
    fn new(fs: &dyn FileSystem, block_bytes: u64, seed: u64, mix: Mix) -> Self {
        let model = Model::with_block_bytes(block_bytes);
        Session::prepare(fs).unwrap();
        Session::prepare(&model).unwrap();
        let (session, model_session) = (Session::new(), Session::new());
        Self { model, model_session, session, generator: Generator::new(seed, mix) }
    }

    fn run(&mut self, fs: &dyn FileSystem, steps: usize, sync_every: usize) {
        for number in 1..=steps {
            let step = self.generator.next_step(&self.model, &self.model_session);
            let expected = self.model_session.apply(&self.model, &step);
            let found = self.session.apply(fs, &step);
            assert_eq!(expected.is_ok(), found.is_ok(), "{step:?}: {expected:?} and {found:?}");
            if number % sync_every == 0 {
                fs.sync().unwrap();
            }
        }
    }
}

/// Lets the kernel replay the log of an image, and returns its tree.
fn kernel_replays(path: &Path) -> testkit::Tree {
    let options = MountOptions { extra: "noatime", ..MountOptions::read_write("xfs") };
    let mount = KernelMount::new(path, &options);
    let tree = testkit::Tree::of(mount.path());
    mount.unmount();
    tree
}

fn is_clean(path: &Path) -> bool {
    let device = disk::FileDevice::new(File::open(path).unwrap()).unwrap();
    let mut sector = [0; 512];
    disk::BlockDevice::read_at(&device, 0, &mut sector).unwrap();
    let sb = xfs::format::superblock::Superblock::parse(&sector, disk::BlockDevice::len(&device));
    log_is_clean(&device, &sb.unwrap()).unwrap()
}

/// Asserts that the kernel recovers an image to the state of the model, without damage.
fn assert_replayed_to(left: &MemoryDevice, model: &Model, what: &str) {
    let folder = testkit::scratch();
    let path = folder.path().join("left");
    write_image(left, &path).unwrap();
    let tree = kernel_replays(&path);
    testkit::xfs_repair(&path);
    assert_same(&tree, &path, Default::default());
    let device = disk::FileDevice::new(File::open(&path).unwrap()).unwrap();
    let fs = Xfs::open(Arc::new(device), &OpenOptions::default()).unwrap();
    let list = FsTree::of(model).unwrap().differences(&FsTree::of(&fs).unwrap(), Rules::default());
    assert!(list.is_empty(), "{what}:\n{}", list.join("\n"));
}

fn cycle_of(device: &MemoryDevice) -> u32 {
    let mut sector = [0; 512];
    device.read_at(0, &mut sector).unwrap();
    let sb = Superblock::parse(&sector, device.len()).unwrap();
    log_end(device, &sb).unwrap().and_then(|end| end.last).map_or(0, |last| last.lsn.cycle)
}

/// The operations and syncs of a run write the same bytes with any number of threads.
#[test]
fn the_log_does_not_depend_on_the_number_of_threads() {
    for layout in [TargetLayout::DEFAULT, TargetLayout::LARGE_DIR_BLOCKS] {
        let made = layout.make();
        let written = |threads| {
            let device = Arc::new(made.fork());
            let options = OpenOptions {
                cache_bytes: SMALL_CACHE_BYTES,
                checkpoint_threads: NonZeroUsize::new(threads),
                ..OpenOptions::default()
            };
            let fs = Xfs::open_writable(device.clone(), &options).unwrap();
            Load::new(&fs, layout.block_size.into(), 7, BUSY).run(&fs, 1_000, 40);
            let log = TargetLayout::log_of(&device);
            let mut bytes = vec![0; (log.end - log.start) as usize];
            device.read_at(log.start, &mut bytes).unwrap();
            bytes
        };
        let alone = written(1);
        for threads in [2, 7] {
            let of_threads = written(threads);
            let differs = alone.chunks(512).zip(of_threads.chunks(512)).position(|(a, b)| a != b);
            assert_eq!(differs, None, "{layout:?}, {threads} threads: the first different sector");
        }
    }
}

/// The log wraps around several times, with checkpoints of one operation and of hundreds, and copies are taken at
/// various positions.
#[test]
fn the_kernel_replays_a_log_that_came_round() {
    require!(Mount("xfs"), Tool("xfs_repair"));
    let large_dirs = TargetLayout { size: 64 << 20, ..TargetLayout::LARGE_DIR_BLOCKS };
    for (seed, layout) in
        [(20, TargetLayout::DEFAULT), (21, TargetLayout::SMALL_BLOCKS), (22, large_dirs)]
    {
        let device = Arc::new(layout.make());
        let fs = open(&device, SMALL_CACHE_BYTES);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut load = Load::new(&fs, layout.block_size.into(), seed, BUSY);
        let mut next_copy = 0;
        for round in 0.. {
            let every = [1, 1, 3, 20, 200][random.usize(..5)];
            load.run(&fs, 40.max(every), every);
            fs.sync().unwrap();
            if round >= next_copy {
                next_copy = round + 10 + random.u32(..10);
                // Open unlinked files do not survive the crash.
                load.session.close_all(&fs).unwrap();
                load.model_session.close_all(&load.model).unwrap();
                fs.sync().unwrap();
                let left = device.fork();
                assert_replayed_to(&left, &load.model, &format!("{layout:?}, round {round}"));
                if cycle_of(&left) > 3 {
                    break;
                }
            }
        }
        fs.close().unwrap();
        assert_clean(&device);
    }
}

const LAYOUTS: [TargetLayout; 6] = [
    TargetLayout::DEFAULT,
    TargetLayout::SMALL_BLOCKS,
    TargetLayout::LARGE_DIR_BLOCKS,
    TargetLayout::PLAIN,
    TargetLayout::LARGE_BLOCKS,
    TargetLayout::MANY_GROUPS,
];

#[test]
fn an_image_that_was_closed_is_clean() {
    require!(Mount("xfs"), Tool("xfs_repair"));
    for (seed, layout) in (0..).zip(LAYOUTS) {
        let device = Arc::new(layout.make());
        for round in 0..3 {
            let fs = open(&device, SMALL_CACHE_BYTES);
            let dir = fs.mkdir(fs.root(), format!("round-{round}").as_bytes(), &Default::default());
            assert!(dir.is_ok(), "{layout:?}: {dir:?}");
            fs.close().unwrap();
            assert_clean(&device);
        }
        let fs = open(&device, SMALL_CACHE_BYTES);
        let mut load = Load::new(&fs, layout.block_size.into(), seed, BUSY);
        load.run(&fs, 400, 50);
        load.session.close_all(&fs).unwrap();
        fs.close().unwrap();
        assert_clean(&device);
        let folder = testkit::scratch();
        let path = folder.path().join("image");
        write_image(&device, &path).unwrap();
        let tree = kernel_replays(&path);
        assert_same(&tree, &path, Default::default());
    }
}

#[test]
fn the_kernel_replays_what_was_left() {
    require!(Mount("xfs"), Tool("xfs_repair"));
    for (seed, layout) in (10..).zip(LAYOUTS) {
        for (sync_every, steps) in [(1, 300), (40, 1000)] {
            let device = Arc::new(layout.make());
            let fs = open(&device, SMALL_CACHE_BYTES);
            let mut load = Load::new(&fs, layout.block_size.into(), seed, BUSY);
            load.run(&fs, steps, sync_every);
            load.session.close_all(&fs).unwrap();
            fs.sync().unwrap();
            let left = device.fork();
            fs.close().unwrap();
            let folder = testkit::scratch();
            let (path, closed) = (folder.path().join("left"), folder.path().join("closed"));
            write_image(&left, &path).unwrap();
            write_image(&device, &closed).unwrap();
            assert!(!is_clean(&path) && is_clean(&closed), "{layout:?}");
            let tree = kernel_replays(&path);
            testkit::xfs_repair(&path);
            assert_same(&tree, &closed, Default::default());
        }
    }
}

/// Logs with padded records or larger sectors: made by mkfs.xfs, because this implementation does not make them.
#[test]
fn logs_of_other_shapes_are_written_as_the_kernel_reads_them() {
    require!(Mount("xfs"), Tool("xfs_repair"), Tool("mkfs.xfs"));
    let options = [
        "-l size=64m,su=32k",
        "-l size=64m,su=256k",
        "-l size=64m,su=4096",
        "-s size=4096",
        "-b size=1024 -l size=64m,su=8192 -n size=4096",
    ];
    for (seed, options) in (30..).zip(options) {
        let folder = testkit::scratch();
        let (path, left) = (folder.path().join("image"), folder.path().join("left"));
        testkit::MkfsXfs::default().options(options).create(&path, 320 << 20);
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let device = Arc::new(disk::FileDevice::new(file).unwrap());
        let fs = open(&device, SMALL_CACHE_BYTES);
        let block_bytes = u64::from(fs.statfs().unwrap().block_size);
        let mut load = Load::new(&fs, block_bytes, seed, BUSY);
        for sync_every in [1, 30] {
            load.run(&fs, 150, sync_every);
        }
        load.session.close_all(&fs).unwrap();
        fs.sync().unwrap();
        testkit::copy_image(&path, &left);
        fs.close().unwrap();
        testkit::xfs_repair(&path);
        let tree = kernel_replays(&left);
        testkit::xfs_repair(&left);
        assert_same(&tree, &path, Default::default());
    }
}

/// Returns the byte range of the log's first blocks on the device.
fn log_start(device: &MemoryDevice, blocks: u64) -> (u64, u64) {
    let mut sector = [0; 512];
    device.read_at(0, &mut sector).unwrap();
    let sb = Superblock::parse(&sector, device.len()).unwrap();
    let geometry = xfs::format::geometry::Geometry::new(&sb);
    let start = xfs::format::address::FsBlock(sb.raw.logstart.get());
    (geometry.byte_of(geometry.device_block(start)), blocks * 512)
}

/// Makes a directory, closes the image and opens it again, until the log ends shortly before the end of its ring.
fn wear_until_the_ring_ends(device: &Arc<MemoryDevice>) {
    for number in 0..2000 {
        let fs = open(device, SMALL_CACHE_BYTES);
        for part in 0..number % 7 * (number % 3) {
            let name = format!("{number}-{part}");
            fs.mkdir(fs.root(), name.as_bytes(), &Default::default()).unwrap();
        }
        fs.close().unwrap();
        let mut sector = [0; 512];
        device.read_at(0, &mut sector).unwrap();
        let sb = Superblock::parse(&sector, device.len()).unwrap();
        let blocks = sb.raw.logblocks.get() << (sb.raw.blocklog - 9);
        if log_end(&**device, &sb).unwrap().is_some_and(|end| blocks - end.head < 60) {
            return;
        }
    }
    panic!("the log never ended shortly before the end of the ring");
}

#[test]
fn torn_records_after_a_clean_end_are_cleared() {
    require!(Tool("xfs_repair"));
    let device = Arc::new(TargetLayout::DEFAULT.make());
    wear_until_the_ring_ends(&device);
    let torn = Arc::new(device.fork());
    let fs = open(&device, SMALL_CACHE_BYTES);
    for number in 0..20 {
        let name = format!("last {number}");
        fs.mkdir(fs.root(), name.as_bytes(), &Default::default()).unwrap();
    }
    fs.sync().unwrap();
    // Only the part of the record around the ring's end reached the device.
    let (start, len) = log_start(&device, 16);
    let mut bytes = vec![0; len as usize];
    device.read_at(start, &mut bytes).unwrap();
    let mut before = vec![0; len as usize];
    torn.read_at(start, &mut before).unwrap();
    assert!(bytes != before, "the record went around the end");
    torn.write_at(start, &bytes).unwrap();
    let fs = open(&torn, SMALL_CACHE_BYTES);
    assert!(fs.lookup(fs.root(), b"last 0").is_err());
    fs.close().unwrap();
    assert_clean(&torn);
}

/// Returns the number of items in the log that create inodes, and of those that contain inodes in clusters of several
/// blocks.
fn inode_items(device: &MemoryDevice) -> (usize, usize) {
    let mut sector = [0; 512];
    device.read_at(0, &mut sector).unwrap();
    let sb = Superblock::parse(&sector, device.len()).unwrap();
    let (mut created, mut clusters) = (0, 0);
    xfs::log_contents(device, &sb, |record| {
        for item in record.transactions.iter().flat_map(|transaction| &transaction.items) {
            match item {
                LogItem::Icreate { .. } => created += 1,
                LogItem::Buffer { contents: BufferType::Dinode, .. } => clusters += 1,
                _ => {}
            }
        }
        Ok(())
    })
    .unwrap();
    (created, clusters)
}

/// Inode chunks are added and freed, and directories use their blocks in between: the replay of new inodes must not
/// overwrite later contents, and vice versa.
#[test]
fn the_kernel_makes_the_inodes_that_the_log_names() {
    require!(Mount("xfs"), Tool("xfs_repair"));
    // Without sparse chunks, and if a block is a cluster, everything is logged.
    let with_names =
        [TargetLayout::DEFAULT, TargetLayout::SMALL_BLOCKS].map(|layout| (layout, true));
    let without = [TargetLayout::PLAIN, TargetLayout::LARGE_BLOCKS].map(|layout| (layout, false));
    for (layout, has_names) in with_names.into_iter().chain(without) {
        let device = Arc::new(layout.make());
        let fs = open(&device, 64 << 20);
        let model = Model::with_block_bytes(layout.block_size.into());
        let both: [&dyn FileSystem; 2] = [&fs, &model];
        let name = |number: u32| format!("a file whose name has some forty bytes {number:05}");
        let each = |step: &dyn Fn(&dyn FileSystem)| both.iter().for_each(|fs| step(*fs));
        each(&|fs| Session::prepare(fs).unwrap());
        for round in 0..4 {
            each(&|fs| {
                for number in 0..400 {
                    fs.create(fs.root(), name(number).as_bytes(), &Default::default()).unwrap();
                }
                fs.sync().unwrap();
                for number in (0..400).filter(|number| number % 100 > round * 20) {
                    fs.unlink(fs.root(), name(number).as_bytes(), None).unwrap();
                }
                if round % 2 == 0 {
                    fs.sync().unwrap();
                }
                let dir = fs.mkdir(fs.root(), format!("d{round}").as_bytes(), &Default::default());
                let dir = dir.unwrap();
                let file = fs.create(fs.root(), b"linked", &Default::default()).unwrap();
                for number in 0..300 {
                    fs.link(file, dir, name(number).as_bytes(), None).unwrap();
                }
                fs.unlink(fs.root(), b"linked", None).unwrap();
                fs.sync().unwrap();
            });
            let left = device.fork();
            let (created, clusters) = inode_items(&left);
            assert!(clusters > 0, "{layout:?}");
            assert_eq!(created > 0, has_names, "{layout:?}: {created}");
            assert_replayed_to(&left, &model, &format!("{layout:?}, round {round}"));
            // Recover with this implementation, too.
            let again = Arc::new(device.fork());
            open(&again, SMALL_CACHE_BYTES).close().unwrap();
            assert_clean(&again);
            let replayed = Xfs::open(again, &OpenOptions::default()).unwrap();
            let tree = FsTree::of(&replayed).unwrap();
            let list = FsTree::of(&model).unwrap().differences(&tree, Rules::default());
            assert!(list.is_empty(), "{layout:?}:\n{}", list.join("\n"));
            each(&|fs| {
                for number in (0..400).filter(|number| number % 100 <= round * 20) {
                    fs.unlink(fs.root(), name(number).as_bytes(), None).unwrap();
                }
                fs.sync().unwrap();
            });
        }
        fs.close().unwrap();
        assert_clean(&device);
    }
}

/// Size of the log for a new file: three chunks of 128 bytes of its inode, because its attributes are in one.
#[test]
fn a_new_file_takes_little_of_the_log() {
    require!(Tool("xfs_repair"));
    let device = Arc::new(TargetLayout { size: 512 << 20, ..TargetLayout::DEFAULT }.make());
    let fs = open(&device, 64 << 20);
    let before = fs.log_bytes_written().unwrap();
    let files = 10_000;
    for number in 0..files {
        let name = format!("a file whose name has some forty bytes {number:05}");
        fs.create(fs.root(), name.as_bytes(), &Default::default()).unwrap();
    }
    fs.sync().unwrap();
    let bytes = (fs.log_bytes_written().unwrap() - before) / files;
    assert!((400..510).contains(&bytes), "{bytes} bytes for each file");
    fs.close().unwrap();
    assert_clean(&device);
}
