//! XFS images created by several releases of mkfs.xfs. The kernel fills them if it can mount them, otherwise mkfs.xfs
//! does.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, XattrFlags, fallocate, ioctl_ficlone, lsetxattr};

use crate::mount::KernelMount;
use crate::{MkfsXfs, MountOptions, Sample, Tree, effort, sample_tree};

/// The program that fills a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// The kernel, with every kind of entry.
    ByKernel,
    /// mkfs.xfs copies a directory with its attributes.
    FromDirectory,
    /// mkfs.xfs reads a prototype file: names, modes, owners, contents, devices and symbolic links. For images that the
    /// kernel cannot mount, made by releases that cannot copy directories.
    FromPrototype,
}

/// An image created by other programs.
#[derive(Clone, Copy, Debug)]
pub struct XfsSample {
    /// Its distinctive feature.
    pub name: &'static str,
    /// The mkfs.xfs that creates it.
    pub program: &'static str,
    /// Options of mkfs.xfs.
    pub options: &'static str,
    /// The program that fills it.
    pub filled: Filled,
}

const V6: &str = "xfsprogs-6.1/bin/mkfs.xfs";
const V5: &str = "xfsprogs-5.10/bin/mkfs.xfs";
const NEW: &str = "mkfs.xfs";

const fn sample(
    name: &'static str,
    program: &'static str,
    options: &'static str,
    filled: Filled,
) -> XfsSample {
    XfsSample { name, program, options, filled }
}

/// Images of every kind that must be read correctly. Kernels without support for version 4 or ASCII-CI cannot mount
/// such images, so mkfs.xfs fills them.
pub const XFS_SAMPLES: &[XfsSample] = &[
    sample("new", NEW, "", Filled::ByKernel),
    sample("new-1k", NEW, "-b size=1024", Filled::ByKernel),
    sample("new-2k-dir8k", NEW, "-b size=2048 -n size=8192", Filled::ByKernel),
    sample("new-dir64k", NEW, "-n size=65536", Filled::ByKernel),
    sample("new-inode2k", NEW, "-i size=2048", Filled::ByKernel),
    sample("new-agcount9", NEW, "-d agcount=9", Filled::ByKernel),
    sample(
        "new-plain",
        NEW,
        "-m rmapbt=0,reflink=0,bigtime=0,inobtcount=0,finobt=0 -i nrext64=0,sparse=0,exchange=0 -n parent=0",
        Filled::ByKernel,
    ),
    sample("new-64k-blocks", NEW, "-b size=65536", Filled::FromDirectory),
    sample("new-ascii-ci", NEW, "-n version=ci", Filled::FromDirectory),
    sample("6.1", V6, "", Filled::ByKernel),
    sample("6.1-nrext64-rmap", V6, "-i nrext64=1 -m rmapbt=1", Filled::ByKernel),
    sample("5.10", V5, "", Filled::ByKernel),
    sample("5.10-plain", V5, "-m finobt=0,reflink=0 -i sparse=0", Filled::ByKernel),
    sample("6.1-v4", V6, "-m crc=0", Filled::FromPrototype),
    sample("6.1-v4-ftype-2k", V6, "-m crc=0 -n ftype=1 -b size=2048", Filled::FromPrototype),
    sample("6.1-v4-ci-dir16k", V6, "-m crc=0 -n version=ci,size=16384", Filled::FromPrototype),
    sample("5.10-v4", V5, "-m crc=0", Filled::FromPrototype),
    sample(
        "5.10-v4-attr1",
        V5,
        "-m crc=0 -i attr=1,projid32bit=0 -l lazy-count=0",
        Filled::FromPrototype,
    ),
];

/// A selection that has every form of blocks, trees, directories and inodes.
const QUICK: &[&str] = &[
    "new-1k",
    "new-2k-dir8k",
    "new-plain",
    "new-64k-blocks",
    "new-ascii-ci",
    "6.1-nrext64-rmap",
    "6.1-v4-ci-dir16k",
    "5.10-v4-attr1",
];

/// Size of each sample's image in bytes. The newest releases refuse images below 300 MiB.
const IMAGE_BYTES: u64 = 512 << 20;

impl XfsSample {
    /// Returns the samples that are filled in this way: a selection with *quick*, all otherwise.
    pub fn all(filled: Filled) -> impl Iterator<Item = &'static Self> {
        let is_wanted = |sample: &&Self| effort(QUICK.contains(&sample.name), true, true);
        XFS_SAMPLES.iter().filter(move |sample| sample.filled == filled).filter(is_wanted)
    }

    /// Returns the sample with this name.
    ///
    /// # Panics
    /// If it does not exist.
    #[track_caller]
    pub fn named(name: &str) -> Self {
        *XFS_SAMPLES.iter().find(|s| s.name == name).unwrap_or_else(|| panic!("no sample {name}"))
    }

    /// Creates the image and returns its tree. `work` is an empty directory.
    ///
    /// # Panics
    /// If a program fails.
    #[track_caller]
    pub fn create(&self, image: &Path, work: &Path) -> Tree {
        let mkfs = MkfsXfs::of(self.program).options(self.options);
        match self.filled {
            Filled::ByKernel => {
                mkfs.create(image, IMAGE_BYTES);
                let mount = KernelMount::new(image, &MountOptions::read_write("xfs"));
                sample_tree(mount.path(), &Sample { wide_names: 3000, ..times(self.options) });
                everything_xfs(mount.path(), self);
                // Blocks of new files are not allocated before a sync, and holes are visible only afterwards.
                sync(mount.path());
                let tree = Tree::of(mount.path());
                mount.unmount();
                tree
            }
            Filled::FromDirectory => {
                sample_tree(work, &Sample { huge_sparse: false, ..times(self.options) });
                // mkfs.xfs opens the files that it copies, which fails for sockets and for devices without a driver. It
                // copies ACLs as user attributes, and does not copy empty values.
                for name in ["char-", "block-", "socket"] {
                    remove_named(&work.join("types"), name);
                }
                remove_named(&work.join("xattrs"), "value-of-0");
                fs::remove_dir_all(work.join("acls")).expect("a directory to remove");
                mkfs.prototype(work).create(image, IMAGE_BYTES);
                Tree::of(work)
            }
            Filled::FromPrototype => {
                let tree = work.join("tree");
                fs::create_dir(&tree).expect("a directory");
                prototype_tree(&tree);
                let file = work.join("prototype");
                fs::write(&file, prototype(&tree)).expect("a file");
                mkfs.prototype(&file).create(image, IMAGE_BYTES);
                Tree::of(&tree)
            }
        }
    }
}

/// Without bigtime, times end in 2038.
fn times(options: &str) -> Sample {
    Sample { wide_times: !options.contains("bigtime=0"), ..Sample::for_xfs() }
}

/// Removes the files of a directory whose names start with `start`.
fn remove_named(dir: &Path, start: &str) {
    for entry in fs::read_dir(dir).expect("a directory").map(|e| e.expect("an entry")) {
        if entry.file_name().to_string_lossy().starts_with(start) {
            fs::remove_file(entry.path()).expect("a file to remove");
        }
    }
}

fn sync(root: &Path) {
    let root = File::open(root).expect("a directory");
    rustix::fs::syncfs(root).expect("a file system to sync");
}

/// Creates files that a general sample lacks: every form of directories, attributes and maps.
fn everything_xfs(root: &Path, sample: &XfsSample) {
    let at = |name: &str| root.join("xfs").join(name);
    fs::create_dir(root.join("xfs")).expect("a directory");
    directories(&at("directories"), name_counts(sample));
    attributes(&at("attributes"));
    maps(&at("maps"));
    // Reservations of delayed allocation would leave too little space for the links.
    sync(root);
    fs::write(at("linked"), "of many names").expect("a file");
    fs::create_dir(at("links")).expect("a directory");
    for number in 0..1500 {
        let name = format!("{number:04}-{}", "n".repeat(number % 200));
        fs::hard_link(at("linked"), at("links").join(name)).expect("a link");
    }
    if !sample.options.contains("reflink=0") {
        reflinks(&at("reflinks"));
    }
}

/// Returns the numbers of names of directories. Samples of all shapes have them in the inode, in a block, with one leaf
/// and with several. The largest ones, whose map is a tree, are in images that differ in the size of blocks.
fn name_counts(sample: &XfsSample) -> &'static [usize] {
    const COUNTS: &[usize] = &[1, 5, 40, 200, 700, 2500, 12000];
    let is_large = ["new", "new-1k", "new-dir64k"].contains(&sample.name);
    if effort(is_large, is_large, true) { COUNTS } else { &COUNTS[..COUNTS.len() - 1] }
}

/// Creates directories of one to many blocks, some with holes where names were removed.
fn directories(root: &Path, name_counts: &[usize]) {
    fs::create_dir(root).expect("a directory");
    for &count in name_counts {
        for removed in [false, true] {
            let dir = root.join(format!("{count}-{removed}"));
            fs::create_dir(&dir).expect("a directory");
            let name = |n: usize| dir.join(format!("{n:05}-{}", "x".repeat(n * 7 % 60)));
            let first = dir.join("first");
            File::create(&first).expect("a file");
            for n in 0..count {
                fs::hard_link(&first, name(n)).expect("a link");
            }
            for n in (0..count).filter(|n| removed && n % 3 != 1) {
                fs::remove_file(name(n)).expect("a name to remove");
            }
        }
    }
}

/// Creates attributes in the inode, in a leaf, in a tree, and with values in separate blocks. All names of one file
/// must fit into the 64 KiB that Linux can list.
fn attributes(root: &Path) {
    fs::create_dir(root).expect("a directory");
    for count in [1, 4, 30, 400, 1400] {
        for (size, times) in [(10, 1), (300, 1), (5000, 20), (65536, 100)] {
            let file = root.join(format!("{count}-of-{size}"));
            File::create(&file).expect("a file");
            for n in 0..(count / times).max(1) {
                let value: Vec<u8> = (0..size).map(|at| (at * 31 + n * 7) as u8).collect();
                let name = format!("user.{n:04}-{}", "a".repeat(n % 50));
                lsetxattr(&file, &name, &value, XattrFlags::empty()).expect("an attribute");
            }
        }
    }
}

/// Creates files with many extents, with unwritten ones, and with extents past the end.
fn maps(root: &Path) {
    fs::create_dir(root).expect("a directory");
    for count in [3_u64, 30, 400, 5000] {
        let file = File::create(root.join(format!("extents-{count}"))).expect("a file");
        for n in 0..count {
            file.write_all_at(format!("at {n}").as_bytes(), n << 17).expect("written");
        }
    }
    let file = File::create(root.join("unwritten")).expect("a file");
    fallocate(&file, FallocateFlags::empty(), 0, 1 << 20).expect("space");
    file.write_all_at(&[7; 5000], 300_000).expect("written");
    let file = File::create(root.join("past-the-end")).expect("a file");
    file.write_all_at(b"short", 0).expect("written");
    fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 1 << 20).expect("space");
    let file = File::create(root.join("far")).expect("a file");
    file.write_all_at(b"end", (1 << 62) - 3).expect("written");
}

/// Creates files that share all or some of their blocks.
fn reflinks(root: &Path) {
    fs::create_dir(root).expect("a directory");
    let bytes: Vec<u8> = (0..1_u32 << 20).map(|at| (at / 7) as u8).collect();
    fs::write(root.join("original"), bytes).expect("a file");
    for n in 0..5_u64 {
        let original = File::open(root.join("original")).expect("a file");
        let copy = File::create(root.join(format!("copy-{n}"))).expect("a file");
        ioctl_ficlone(&copy, &original).expect("a shared copy");
        for part in 0..n {
            copy.write_all_at(&[n as u8; 6000], part * 200_000).expect("written");
        }
    }
}

/// Creates a tree that a prototype file can describe.
fn prototype_tree(root: &Path) {
    fs::create_dir(root.join("sub")).expect("a directory");
    for (name, size) in [("empty", 0), ("small", 100), ("larger", 300_000)] {
        let bytes: Vec<u8> = (0..size).map(|at| (at * 13 / 5) as u8).collect();
        fs::write(root.join("sub").join(name), bytes).expect("a file");
    }
    for (name, len) in [("short", 20), ("inline", 150), ("remote", 900)] {
        std::os::unix::fs::symlink("t".repeat(len), root.join(name)).expect("a symlink");
    }
    for count in [3, 60, 400, 2000, 6000] {
        let dir = root.join(format!("of-{count}"));
        fs::create_dir(&dir).expect("a directory");
        for n in 0..count {
            File::create(dir.join(format!("Name-{n:05}-{}", "y".repeat(n % 40)))).expect("a file");
        }
    }
}

/// Returns a prototype file for a tree of directories, files and symbolic links owned by root.
fn prototype(root: &Path) -> String {
    let mut text = String::from("/stand/diag\n0 0\nd--755 0 0\n");
    prototype_entries(root, &mut text);
    text.push_str("$\n");
    text
}

fn prototype_entries(dir: &Path, text: &mut String) {
    let mut entries: Vec<_> =
        fs::read_dir(dir).expect("a directory").map(|e| e.expect("an entry").path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let kind = path.symlink_metadata().expect("a file").file_type();
        let written = if kind.is_dir() {
            let begun = writeln!(text, "{name} d--755 0 0");
            prototype_entries(&path, text);
            text.push_str("$\n");
            begun
        } else if kind.is_symlink() {
            let target = fs::read_link(&path).expect("a symlink");
            writeln!(text, "{name} l--777 0 0 {}", target.display())
        } else {
            writeln!(text, "{name} ---644 0 0 {}", path.display())
        };
        written.expect("text grows");
    }
}
