//! Images of several feature sets with files, and their checkers.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use disk::{BlockDevice, FileDevice};
use ext4::{Ext4, OpenOptions};
use testkit::Mke2fs;
use testkit::fs_tree::{FsTree, Rules};
use vfs::check::{FindingList, Options};

use crate::changing::judges::verdict;

pub(super) const MIB: u64 = 1 << 20;

/// Parameters of mke2fs.
#[derive(Clone, Copy, Debug)]
pub(super) struct MkfsParameters {
    pub(super) name: &'static str,
    pub(super) fs_type: &'static str,
    pub(super) block_size: u32,
    pub(super) features: &'static str,
    pub(super) arguments: &'static [&'static str],
    pub(super) size: u64,
}

pub(super) const fn kind(
    name: &'static str,
    fs_type: &'static str,
    block_size: u32,
    features: &'static str,
) -> MkfsParameters {
    MkfsParameters { name, fs_type, block_size, features, arguments: &[], size: 40 * MIB }
}

/// Old and new feature sets.
pub(super) const KINDS: [MkfsParameters; 14] = [
    kind("ext4", "ext4", 4096, ""),
    kind("ext4 of small blocks", "ext4", 1024, ""),
    MkfsParameters {
        arguments: &["-E", "resize=300000"],
        ..kind("little kept", "ext4", 1024, "^64bit")
    },
    kind("nothing kept", "ext4", 1024, "^resize_inode"),
    kind("meta_bg", "ext4", 1024, "meta_bg,^resize_inode"),
    kind("without checksums", "ext4", 1024, "^metadata_csum,^64bit,uninit_bg"),
    kind("without flex_bg", "ext4", 1024, "^flex_bg"),
    kind("two backups", "ext4", 1024, "sparse_super2,^resize_inode"),
    kind("ext3", "ext3", 1024, ""),
    kind("ext2", "ext2", 1024, ""),
    kind("ext2 with many backups", "ext2", 1024, "^sparse_super,^resize_inode"),
    MkfsParameters {
        arguments: &["-C", "8192"],
        size: 160 * MIB,
        ..kind("clusters", "ext4", 1024, "bigalloc,^resize_inode")
    },
    kind("inline data", "ext4", 1024, "inline_data"),
    MkfsParameters {
        arguments: &["-G", "4", "-g", "1024"],
        ..kind("small groups", "ext4", 1024, "quota")
    },
];

impl MkfsParameters {
    /// Checks whether every kernel can mount such an image for writing. Some kernels have no quotas.
    pub(super) fn is_for_kernels(&self) -> bool {
        !self.features.contains("quota")
    }

    /// Checks whether resize2fs 1.47 keeps the free block counts of such an image correct. With clusters it does not,
    /// even in images of mke2fs.
    pub(super) fn is_for_resize2fs(&self) -> bool {
        !self.features.contains("bigalloc")
    }

    /// Creates an image with some files.
    pub(super) fn make(&self, folder: &Path) -> std::path::PathBuf {
        let source = folder.join("source");
        if !source.exists() {
            fill(&source);
        }
        let image = folder.join(format!("{}.img", self.name.replace(' ', "-")));
        let mke2fs = Mke2fs::new(self.fs_type).block_size(self.block_size).populate(&source);
        let mke2fs = mke2fs.arguments(self.arguments.iter().copied());
        let mke2fs = if self.features.is_empty() { mke2fs } else { mke2fs.features(self.features) };
        mke2fs.create(&image, self.size);
        if !self.is_for_kernels() {
            // mke2fs counts usage before it copies files.
            count_usage(&image);
        }
        image
    }
}

/// Lets e2fsck count the usage; nothing else may need repair.
pub(super) fn count_usage(image: &Path) {
    let done = testkit::command("e2fsck").arg("-fy").arg(image).output().unwrap();
    assert!(matches!(done.status.code(), Some(0 | 1)), "{done:?}");
}

/// Creates some directories, small files, and larger ones.
fn fill(source: &Path) {
    for directory in 0..12 {
        let path = source.join(format!("dir{directory}/sub"));
        fs::create_dir_all(&path).unwrap();
        for file in 0..20_usize {
            let bytes = format!("{directory}/{file} ").repeat(file * 40 + 1);
            fs::write(path.join(format!("file{file}")), bytes).unwrap();
        }
        std::os::unix::fs::symlink("file3", path.join("link")).unwrap();
    }
    let mut random = fastrand::Rng::with_seed(7);
    let bytes: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(3 << 20).collect();
    fs::write(source.join("large"), &bytes).unwrap();
    fs::hard_link(source.join("large"), source.join("dir3/other")).unwrap();
}

pub(super) fn device(image: &Path) -> Arc<FileDevice> {
    let file = File::options().read(true).write(true).open(image).unwrap();
    Arc::new(FileDevice::new(file).unwrap())
}

/// Returns the tree of an image.
pub(super) fn tree(device: Arc<dyn BlockDevice>) -> FsTree {
    FsTree::of(&Ext4::open(device, &OpenOptions::default()).unwrap()).unwrap()
}

/// Asserts that an image has this tree.
#[track_caller]
pub(super) fn assert_shows(image: &Path, expected: &FsTree, what: &str) {
    let list = expected.differences(&tree(device(image)), Rules::default());
    assert!(list.is_empty(), "{what}: {list:#?}");
}

/// Asserts that neither e2fsck nor the check reports anything.
#[track_caller]
pub(super) fn assert_sound(image: &Path, what: &str) {
    verdict(image).unwrap_or_else(|text| panic!("{what}: e2fsck:\n{text}"));
    let found = FindingList::default();
    ext4::check::check(device(image), &Options::default(), &found).unwrap();
    let found = found.into_texts();
    assert!(found.is_empty(), "{what}: {found:#?}");
}
