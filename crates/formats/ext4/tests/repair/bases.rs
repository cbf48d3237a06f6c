//! Images with all kinds of structures, created by mke2fs and filled by the kernel, to be damaged.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{XattrFlags, setxattr};
use testkit::{HarmTarget, KernelMount, MountOptions, debugfs, populate_with_kernel, scratch};

use crate::check::victim::Victim;
use crate::common::image::{GOLDEN, golden};
use crate::common::layout::ImageStructures;

/// Size of an image in bytes.
const BYTES: u64 = 12 << 20;
/// UUID of the images, and seed of their hashes, so that each run puts a name into the same block of a directory.
const UUID: &str = "6f0f9c5a-9c0e-4c6b-8f6e-3d1f6a4b2c10";
/// Number of blocks at the start of a journal that contain transactions.
const JOURNAL_BLOCKS: usize = 24;

/// An image, and the structures that can be damaged.
pub(super) struct Base {
    pub(super) name: &'static str,
    pub(super) image: Vec<u8>,
    pub(super) layout: ImageStructures,
    pub(super) targets: Vec<HarmTarget>,
}

impl Base {
    pub(super) fn new(name: &'static str, image: Vec<u8>) -> Self {
        let Victim { image, layout, targets } = Victim::of(image);
        let to_target = |target: crate::check::victim::DamageTarget| {
            let (name, range) = (target.name, target.range);
            HarmTarget { name, range }
        };
        Self { name, image, layout, targets: targets.into_iter().map(to_target).collect() }
    }

    /// Creates a base from an image whose journal contains transactions.
    fn crashed(name: &'static str, image: Vec<u8>, journal: &[usize]) -> Self {
        let mut base = Self::new(name, image);
        let block_size = base.layout.geometry.block_size() as usize;
        base.targets.extend(journal.iter().map(|block| HarmTarget {
            name: format!("journal block {block}"),
            range: block * block_size..(block + 1) * block_size,
        }));
        base
    }
}

/// Names and arguments of mke2fs.
const KINDS: &[(&str, &str)] = &[
    ("quota", "-t ext4 -b 1024 -O quota,project"),
    ("ext2-map", "-t ext2 -b 1024 -I 128"),
    ("ext3-map", "-t ext3 -b 1024 -J size=1"),
    ("inline", "-t ext4 -b 1024 -I 512 -O inline_data,orphan_file"),
    ("ea-inode", "-t ext4 -b 1024 -O ea_inode,^metadata_csum"),
    ("bigalloc", "-t ext4 -b 1024 -O bigalloc,^has_journal,^resize_inode -C 4096"),
    ("large-blocks", "-t ext4 -b 4096 -O orphan_file"),
    ("group-sums", "-t ext4 -b 1024 -O ^metadata_csum,uninit_bg,^64bit -g 2048"),
];

/// Names and arguments of mke2fs for formats that not every kernel mounts. mke2fs fills them.
const NEWER: &[(&str, &str)] = &[
    ("blocks-16k", "-t ext4 -b 16384 -O ^has_journal"),
    ("blocks-64k", "-t ext4 -b 65536 -O ^has_journal,inline_data -I 512"),
    ("blocks-8k", "-t ext4 -b 8192 -O ^has_journal,ea_inode"),
];

/// Names and arguments of mke2fs for formats with protection against several hosts. Each use by a kernel takes seconds, so
/// mke2fs fills them.
const PROTECTED: &[(&str, &str)] =
    &[("mmp", "-t ext4 -b 1024 -O mmp"), ("mmp-4k", "-t ext4 -b 4096 -O mmp,^has_journal")];

/// Returns the images with multiple mount protection.
pub(super) fn protected() -> Vec<Base> {
    let folder = scratch();
    let image = folder.path().join("image");
    PROTECTED.iter().map(|(name, arguments)| made(name, arguments, &image)).collect()
}

/// Returns the images that mke2fs fills.
pub(super) fn newer() -> Vec<Base> {
    let folder = scratch();
    let image = folder.path().join("image");
    NEWER.iter().map(|(name, arguments)| made(name, arguments, &image)).collect()
}

/// Returns all images.
pub(super) fn all() -> Vec<Base> {
    let folder = scratch();
    let image = folder.path().join("image");
    let mut bases: Vec<Base> =
        GOLDEN.iter().map(|(name, _)| Base::new(name, golden(name))).collect();
    bases.extend(KINDS.iter().map(|(name, arguments)| made(name, arguments, &image)));
    let (bytes, journal) = crashed(&image);
    bases.push(Base::crashed("crashed", bytes, &journal));
    bases
}

/// Returns one of the images that mke2fs creates.
pub(super) fn one(name: &str) -> Base {
    let folder = scratch();
    let (name, arguments) = KINDS.iter().find(|(known, _)| *known == name).expect("a known image");
    made(name, arguments, &folder.path().join("image"))
}

fn made(name: &'static str, arguments: &str, image: &Path) -> Base {
    let by_mke2fs = NEWER.iter().chain(PROTECTED);
    if name == "quota" || by_mke2fs.into_iter().any(|(known, _)| *known == name) {
        // Filled by mke2fs, because not every kernel writes images with quotas or large blocks.
        let tree = scratch();
        fill(tree.path(), name);
        format(image, &format!("{arguments} -d {}", tree.path().display()));
    } else {
        format(image, arguments);
        populate_with_kernel(image, fs_type(arguments), |root| fill(root, name));
    }
    // The kernel leaves counts in the superblock that e2fsck corrects.
    crate::check::victim::settled(image);
    Base::new(name, fs::read(image).unwrap())
}

fn format(image: &Path, arguments: &str) {
    File::create(image).unwrap().set_len(BYTES).unwrap();
    let made = testkit::command("mke2fs")
        .args(["-q", "-F", "-U", UUID, "-E", &format!("hash_seed={UUID}")])
        .args(arguments.split(' '))
        .arg(image)
        .output();
    let made = made.expect("mke2fs");
    assert!(made.status.success(), "{arguments}: {}", String::from_utf8_lossy(&made.stderr));
}

fn fs_type(arguments: &str) -> &'static str {
    if arguments.contains("ext2") { "ext2" } else { "ext4" }
}

/// Creates an image as after a crash, with transactions in its journal, and with files and directories that were
/// removed while open. Also returns the blocks of the journal.
fn crashed(image: &Path) -> (Vec<u8>, Vec<usize>) {
    format(image, "-t ext4 -b 1024 -J size=1 -O orphan_file,^fast_commit");
    let mount = KernelMount::new(image, &MountOptions::read_write("ext4"));
    let root = mount.path();
    fill(root, "crashed");
    rustix::fs::syncfs(File::open(root).unwrap()).unwrap();
    let mut open = Vec::new();
    for at in 0..5 {
        let path = root.join(format!("deleted{at}"));
        fs::write(&path, vec![at; 3000]).unwrap();
        open.push(File::open(&path).unwrap());
        fs::remove_file(path).unwrap();
        let path = root.join(format!("removed{at}"));
        fs::create_dir(&path).unwrap();
        open.push(File::open(&path).unwrap());
        fs::remove_dir(path).unwrap();
        fs::write(root.join(format!("late{at}")), vec![at; 900]).unwrap();
        open[0].sync_all().unwrap();
    }
    let bytes = fs::read(image).unwrap();
    drop(open);
    mount.unmount();
    let place = |at: usize| {
        debugfs(image, &format!("bmap <8> {at}")).split_whitespace().next()?.parse().ok()
    };
    (bytes, (0..JOURNAL_BLOCKS).filter_map(place).collect())
}

/// Creates files of all kinds.
pub(super) fn fill(root: &Path, name: &str) {
    let mut random = fastrand::Rng::with_seed(name.len() as u64);
    let mut contents = |len: usize| -> Vec<u8> { (0..len).map(|_| random.u8(..)).collect() };
    for (at, len) in [0, 1, 50, 150, 1000, 1024, 5000, 70_000, 400_000].into_iter().enumerate() {
        fs::write(root.join(format!("file{at}")), contents(len)).unwrap();
    }
    // Only every eighth block is written, so that the extent tree needs blocks.
    let many = File::create(root.join("extents")).unwrap();
    for at in 0..250 {
        many.write_all_at(&contents(700), at * 8192).unwrap();
    }
    let sparse = File::create(root.join("sparse")).unwrap();
    for at in [0, 30_000_000, 90_000_000] {
        sparse.write_all_at(&contents(2000), at).unwrap();
    }
    let large = root.join("large");
    fs::create_dir(&large).unwrap();
    for at in 0..160 {
        let path = large.join(format!("a rather long name of entry number {at}"));
        if at % 40 == 7 {
            fs::create_dir(path).unwrap();
        } else {
            fs::write(path, at.to_string()).unwrap();
        }
    }
    let mut deep = root.join("deep");
    for at in 0..6 {
        fs::create_dir(&deep).unwrap();
        fs::write(deep.join("inner"), contents(300 * (at + 1))).unwrap();
        deep.push(format!("level{at}"));
    }
    std::os::unix::fs::symlink("file1", root.join("short")).unwrap();
    std::os::unix::fs::symlink("d/".repeat(90), root.join("slow")).unwrap();
    fs::hard_link(root.join("file6"), root.join("deep/link")).unwrap();
    set_xattrs(root, name, &contents(3000));
}

fn set_xattrs(root: &Path, name: &str, bytes: &[u8]) {
    let set = |path: &str, name: &str, value: &[u8]| {
        setxattr(root.join(path), format!("user.{name}"), value, XattrFlags::empty())
            .unwrap_or_else(|error| panic!("{path} {name}: {error}"));
    };
    for path in ["file3", "file4", "large", "deep/inner"] {
        set(path, "one", b"small");
        // The same attributes in several files, which then share a block.
        set(path, "two", &bytes[..300]);
        set(path, "three", &bytes[300..340]);
    }
    set("file5", "own", &bytes[100..500]);
    if name == "ea-inode" {
        set("file6", "value", &bytes[1..]);
        set("file7", "value", bytes);
        set("file7", "other", &bytes[..2000]);
    }
}

/// Returns the names in each block of the largest directory of an image.
fn names_by_block(base: &Base) -> Vec<Vec<Vec<u8>>> {
    let block_size = base.layout.geometry.block_size() as usize;
    let is_name = |bytes: &[u8]| bytes.starts_with(b"a rather long name of entry number ");
    let mut blocks = Vec::new();
    for block in base.image.chunks_exact(block_size) {
        let names = block.windows(38).step_by(4).filter(|bytes| is_name(bytes));
        let names: Vec<Vec<u8>> = names.map(<[u8]>::to_vec).collect();
        if names.len() > 1 {
            blocks.push(names);
        }
    }
    blocks.sort_unstable();
    blocks
}

/// A seed of a damage means the same in each run.
#[test]
fn each_run_puts_names_into_the_same_blocks() {
    testkit::require!(Root, Tool("mke2fs"), Mount("ext4"));
    // An image without a journal, which would contain some blocks again.
    let images = [(); 2].map(|()| names_by_block(&one("bigalloc")));
    assert!(images[0].len() > 4, "{}", images[0].len());
    assert_eq!(images[0], images[1]);
}
