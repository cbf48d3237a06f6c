//! Random operations on ext4 and on the reference model, with one thread and with several: the same
//! answers, the same tree at the end, and nothing for e2fsck or the kernel to object to.

mod changing;

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use blockdev::MemoryDevice;
use changing::watchdog::Watchdog;
use changing::{Layout, SMALL_CACHE_BYTES, assert_clean, open, write_image};
use ext4::{Ext4, OpenOptions};
use oracle::{KernelMount, MountOptions, require};
use vfs::{FileSystem, Ino, NewInode};
use workload::model::Model;
use workload::operation::{Generator, Mix, Session, same_outcome};
use workload::tree::{Rules, Tree};

const LIMIT: Duration = Duration::from_secs(240);

/// Many names in few directories, so that these get indexes.
const LARGE_DIRECTORIES: Mix =
    Mix { names: 80, names_per_directory: 400, depth_max: 1, ..Mix::ALL };

#[track_caller]
fn assert_same(expected: &Tree, found: &Tree, what: &str) {
    let list = expected.differences(found, Rules::default());
    assert!(list.is_empty(), "{what}:\n{}", list.join("\n"));
}

/// Does a run on both, comparing every answer and, now and then, the trees.
fn run(layout: Layout, mix: Mix, seed: u64, steps: usize) -> Arc<MemoryDevice> {
    let what = format!("{layout:?}, seed {seed}");
    let _watchdog = Watchdog::new(LIMIT, what.clone());
    let device = Arc::new(layout.make());
    let mut fs = open(device.clone(), SMALL_CACHE_BYTES).unwrap();
    let model = Model::with_block_bytes(layout.block_size.into());
    Session::prepare(&fs).unwrap();
    Session::prepare(&model).unwrap();
    let (mut session, mut model_session) = (Session::new(), Session::new());
    let mut generator = Generator::new(seed, mix);
    for number in 1..=steps {
        let step = generator.next_step(&model, &model_session);
        let expected = model_session.apply(&model, &step);
        let found = session.apply(&fs, &step);
        let same = same_outcome(&step, &expected, &found);
        assert!(same, "{what}: {step:?}: expected {expected:?}, found {found:?}");
        if number % 97 == 0 {
            assert_same(&Tree::of(&model).unwrap(), &Tree::of(&fs).unwrap(), &what);
        }
        if number % 401 == 0 {
            session.close_all(&fs).unwrap();
            model_session.close_all(&model).unwrap();
            fs.close().unwrap();
            fs = open(device.clone(), SMALL_CACHE_BYTES).unwrap();
        }
    }
    assert_same(&Tree::of(&model).unwrap(), &Tree::of(&fs).unwrap(), &what);
    // What is still open goes when the file system is closed.
    fs.close().unwrap();
    assert_clean(&device);
    device
}

/// The kernel shows what we show.
fn assert_kernel_agrees(device: &MemoryDevice) {
    let folder = oracle::scratch();
    let path = folder.path().join("image");
    write_image(device, &path).unwrap();
    let kernel = {
        let mount = KernelMount::new(&path, &MountOptions::read_only("ext4"));
        oracle::Tree::of(mount.path())
    };
    let fs = Ext4::open(Arc::new(device.fork()), &OpenOptions::default()).unwrap();
    let ours = Tree::of(&fs).unwrap();
    let names = kernel.nodes.keys().filter(|path| *path != b"lost+found").collect::<Vec<_>>();
    assert_eq!(names, ours.paths.keys().collect::<Vec<_>>());
    for (path, node) in kernel.nodes.iter().filter(|(path, _)| *path != b"lost+found") {
        let inode = ours.get(path).unwrap();
        let attributes = &inode.attributes;
        let at = path.escape_ascii();
        assert_eq!(node.permissions, u32::from(attributes.permissions), "{at}");
        assert_eq!((node.uid, node.gid), (attributes.uid, attributes.gid), "{at}");
        let time = (attributes.mtime.sec, i64::from(attributes.mtime.nsec));
        assert_eq!(node.mtime, time, "{at}");
        assert_eq!(node.target, inode.target, "{at}");
        assert_eq!(node.xattrs, inode.xattrs, "{at}");
        if node.kind == oracle::Kind::File {
            assert_eq!((node.size, node.nlink), (attributes.size, attributes.links.into()), "{at}");
            let mut sum = 0;
            for (granule, bytes) in &inode.contents.granules {
                sum = crc32c::crc32c_append(sum, &(granule * 4096).to_le_bytes());
                sum = crc32c::crc32c_append(sum, bytes);
            }
            assert_eq!(node.content, sum, "{at}");
        }
    }
}

#[test]
fn one_thread_does_as_the_model_does() {
    require!(Tool("e2fsck"));
    for seed in 0..6 {
        run(Layout::DEFAULT, Mix::ALL, seed, 1_000);
    }
}

#[test]
fn small_blocks_block_maps_and_old_features_do_as_the_model_does() {
    require!(Tool("e2fsck"));
    for seed in 100..103 {
        for layout in [Layout::SMALL_BLOCKS, Layout::PLAIN, Layout::NO_JOURNAL] {
            run(layout, Mix::ALL, seed, 600);
        }
        run(Layout::BLOCK_MAPS, Mix { preallocates: false, ..Mix::ALL }, seed, 600);
    }
}

#[test]
fn clusters_do_as_the_model_does() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    let small_blocks = Layout { block_size: 1024, ..Layout::CLUSTERS };
    let large_clusters = Layout { cluster_size: Some(64 << 10), ..Layout::CLUSTERS };
    for seed in 400..402 {
        for layout in [Layout::CLUSTERS, small_blocks, large_clusters] {
            run(layout, Mix::ALL, seed, 800);
        }
        run(Layout { inodes: 2_000, ..small_blocks }, LARGE_DIRECTORIES, seed, 1_500);
    }
}

#[test]
fn large_directories_do_as_the_model_does() {
    require!(Tool("e2fsck"));
    for (layout, seed) in [(Layout::SMALL_BLOCKS, 200), (Layout::DEFAULT, 201)] {
        run(Layout { inodes: 2_000, ..layout }, LARGE_DIRECTORIES, seed, 2_500);
    }
}

#[test]
fn the_kernel_shows_what_random_operations_left() {
    require!(Mount("ext4"), Tool("mke2fs"), Tool("e2fsck"));
    for seed in 300..303 {
        assert_kernel_agrees(&run(Layout::DEFAULT, Mix::ALL, seed, 700));
        assert_kernel_agrees(&run(Layout::CLUSTERS, Mix::ALL, seed, 700));
        assert_kernel_agrees(&run(Layout::SMALL_BLOCKS, LARGE_DIRECTORIES, seed, 700));
    }
}

/// One thread's view of a directory, and what should be in it.
struct Corner {
    model: Model,
    model_session: Session,
    session: Session,
    generator: Generator,
}

impl Corner {
    fn new(block_size: u32, dir: Ino, seed: u64, mix: Mix, prefix: String) -> Self {
        let model = Model::with_block_bytes(block_size.into());
        Session::prepare(&model).unwrap();
        let (session, model_session) = (Session::below(dir), Session::new());
        let generator = Generator::new(seed, mix).with_prefix(prefix);
        Self { model, model_session, session, generator }
    }

    fn step(&mut self, fs: &dyn FileSystem) {
        let step = self.generator.next_step(&self.model, &self.model_session);
        let found = self.session.apply(fs, &step);
        let expected = self.model_session.apply(&self.model, &step);
        let same = same_outcome(&step, &expected, &found);
        assert!(same, "{step:?}: expected {expected:?}, found {found:?}");
    }

    fn tree(mut self, fs: &dyn FileSystem) -> Tree {
        self.session.close_all(fs).unwrap();
        Tree::of(&self.model).unwrap()
    }
}

/// Several threads, each in a directory of its own and in one that all share.
fn run_threads(layout: Layout, threads: usize, seed: u64, steps: usize) -> Arc<MemoryDevice> {
    let what = format!("{layout:?}, {threads} threads, seed {seed}");
    let _watchdog = Watchdog::new(LIMIT, what.clone());
    let device = Arc::new(layout.make());
    let fs = open(device.clone(), SMALL_CACHE_BYTES).unwrap();
    let make = |name: String| fs.mkdir(fs.root(), name.as_bytes(), &NewInode::default()).unwrap();
    let shared = make("shared".into());
    let own: Vec<Ino> = (0..threads).map(|number| make(format!("own{number}"))).collect();
    own.iter().for_each(|&dir| Session::prepare_directory(&fs, dir).unwrap());
    let start = Barrier::new(threads);
    let in_shared = Mix { depth_max: 0, names_per_directory: 60, ..Mix::ALL };
    let work = |number: usize| {
        let seed = seed + number as u64 * 1_000;
        let mut mine = Corner::new(layout.block_size, own[number], seed, Mix::ALL, String::new());
        let mut ours =
            Corner::new(layout.block_size, shared, seed + 500, in_shared, format!("t{number}-"));
        start.wait();
        for _ in 0..steps {
            mine.step(&fs);
            ours.step(&fs);
        }
        (mine.tree(&fs), ours.tree(&fs))
    };
    let trees: Vec<(Tree, Tree)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|number| {
                scope.spawn({
                    let work = &work;
                    move || work(number)
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    let all_shared = Tree::below(&fs, shared).unwrap();
    for (number, (mine, ours)) in trees.iter().enumerate() {
        assert_same(mine, &Tree::below(&fs, own[number]).unwrap(), &what);
        let prefix = format!("t{number}-");
        let found = all_shared.filter(|path| path.starts_with(prefix.as_bytes()));
        assert_same(&ours.filter(|path| !path.is_empty()), &found, &what);
    }
    fs.close().unwrap();
    assert_clean(&device);
    device
}

#[test]
fn several_threads_do_as_their_models_do() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    for (seed, threads) in [(1, 2), (2, 4), (3, 8)] {
        run_threads(
            Layout { inodes: 2_000, size: 128 << 20, ..Layout::DEFAULT },
            threads,
            seed,
            250,
        );
    }
    let layout = Layout { inodes: 2_000, size: 128 << 20, ..Layout::CLUSTERS };
    run_threads(layout, 4, 6, 250);
    for (seed, threads) in [(4, 3), (5, 6)] {
        let layout = Layout { inodes: 2_000, size: 128 << 20, ..Layout::SMALL_BLOCKS };
        run_threads(layout, threads, seed, 250);
    }
}

#[test]
fn the_kernel_shows_what_several_threads_left() {
    require!(Mount("ext4"), Tool("e2fsck"));
    let layout = Layout { inodes: 2_000, size: 128 << 20, ..Layout::DEFAULT };
    assert_kernel_agrees(&run_threads(layout, 4, 77, 250));
}
