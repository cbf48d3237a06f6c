//! Shared code of the tests that change images at random and of the crash explorer's example: small images in memory,
//! and their judges.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test uses a part")]

pub mod crashing;
pub mod judges;

use std::ops::Range;
use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use ext4::format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use ext4::log::JournalMap;
use ext4::mkfs::{self, FeatureChange, InodeCount, Options, PreviousContents};
use ext4::{DeferPolicy, Ext4, OpenOptions};
use testkit::Mke2fs;
use testkit::crash::read_image;
use vfs::{FileAttributesChange, FileSystem, InodeFlags, NewInode, Timestamp};

pub const MIB: u64 = 1 << 20;

/// A small cache, so that blocks are read repeatedly.
pub const SMALL_CACHE_BYTES: usize = 512 << 10;

/// A kind of image.
#[derive(Clone, Copy, Debug)]
pub struct ImageParameters {
    pub size: u64,
    pub block_size: u32,
    /// Changes to mkfs's default features.
    pub features: &'static str,
    pub inodes: u32,
    /// Size of the journal in bytes; `None` for mkfs's default.
    pub journal_bytes: Option<u64>,
    /// Cluster size in bytes. If set, mke2fs creates the image with `bigalloc` and these features. It also creates
    /// images with `casefold`.
    pub cluster_size: Option<u32>,
}

impl ImageParameters {
    pub const DEFAULT: Self = Self {
        size: 24 * MIB,
        block_size: 4096,
        features: "",
        inodes: 512,
        journal_bytes: None,
        cluster_size: None,
    };
    pub const SMALL_BLOCKS: Self = Self { block_size: 1024, size: 16 * MIB, ..Self::DEFAULT };
    pub const BLOCK_MAPS: Self =
        Self { features: "^extents,^64bit,^flex_bg", ..Self::SMALL_BLOCKS };
    pub const PLAIN: Self =
        Self { features: "^metadata_csum,^orphan_file,^64bit", ..Self::DEFAULT };
    pub const CLUSTERS: Self =
        Self { size: 64 * MIB, cluster_size: Some(16 << 10), ..Self::DEFAULT };
    pub const NO_JOURNAL: Self = Self { features: "^has_journal,^orphan_file", ..Self::DEFAULT };

    /// All directories are case-insensitive.
    pub const FOLDED: Self = Self { features: "casefold", ..Self::DEFAULT };
    pub const FOLDED_SMALL_BLOCKS: Self = Self { features: "casefold", ..Self::SMALL_BLOCKS };

    /// Returns a device with a new file system of this kind.
    pub fn make(&self) -> MemoryDevice {
        if let Some(bytes) = self.cluster_size {
            return self.make_with_clusters(bytes);
        }
        if self.features.contains("casefold") {
            return fold_names(self.make_by_others(self.features, &["-E", "encoding=utf8"]));
        }
        let options = Options {
            block_size: Some(self.block_size),
            inodes: InodeCount::Count(self.inodes),
            journal_bytes: self.journal_bytes,
            uuid: [0x5a; 16],
            hash_seed: [0xc3; 16],
            features: FeatureChange::parse_list(self.features).expect("known features"),
            time: Timestamp { sec: 1_600_000_000, nsec: 0 },
            ..Options::new(self.size)
        };
        let layout = mkfs::plan(&options).unwrap_or_else(|error| panic!("{self:?}: {error}"));
        let device = MemoryDevice::new(self.size);
        mkfs::format(&device, &layout, PreviousContents::Zeros).expect("memory does not fail");
        device
    }

    /// Returns the byte ranges of an image's journal on the device.
    pub fn journal_of(device: &MemoryDevice) -> Vec<Range<u64>> {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        device.read_at(SUPERBLOCK_OFFSET, &mut bytes).unwrap();
        let sb = Superblock::parse(&bytes, device.len()).unwrap();
        let map = JournalMap::read(device, &sb).unwrap().expect("a journal");
        let (mut parts, mut block) = (Vec::new(), 0);
        while let Some((start, together)) = map.place_of(block) {
            parts.push(start..start + u64::from(together) * map.block_size() as u64);
            block += together;
        }
        parts
    }

    fn make_with_clusters(&self, bytes: u32) -> MemoryDevice {
        let features = ["bigalloc", self.features].join(",");
        let features = features.trim_end_matches(',');
        self.make_by_others(features, &["-C", &bytes.to_string(), "-J", "size=4"])
    }

    fn make_by_others(&self, features: &str, arguments: &[&str]) -> MemoryDevice {
        let folder = testkit::scratch();
        let path = folder.path().join("image");
        let mke2fs = Mke2fs::new("ext4").block_size(self.block_size).inode_count(self.inodes);
        let mke2fs = mke2fs.features(features).arguments(arguments.iter().copied());
        mke2fs.create(&path, self.size);
        read_image(&path).expect("mke2fs made it")
    }
}

/// Makes all directories of a new file system case-insensitive. The root must be empty for this.
fn fold_names(device: MemoryDevice) -> MemoryDevice {
    let device = Arc::new(device);
    let fs = open(device.clone(), SMALL_CACHE_BYTES).unwrap();
    let (root, lost) = (fs.root(), b"lost+found");
    let attributes = fs.attributes(fs.lookup(root, lost).unwrap()).unwrap();
    fs.rmdir(root, lost, None).unwrap();
    let change =
        FileAttributesChange { set: InodeFlags::CASEFOLD, ..FileAttributesChange::default() };
    fs.set_file_attributes(root, &change).unwrap();
    let new = NewInode { permissions: 0o700, time: attributes.mtime, ..NewInode::default() };
    fs.mkdir(root, lost, &new).unwrap();
    fs.close().unwrap();
    Arc::into_inner(device).expect("the file system is closed")
}

/// Opens an image for writing, with a cache of this size.
pub fn open(device: Arc<dyn BlockDevice>, cache_bytes: usize) -> vfs::Result<Ext4> {
    open_with(device, cache_bytes, None)
}

/// Like [`open`], with a policy for deferred files.
pub fn open_with(
    device: Arc<dyn BlockDevice>,
    cache_bytes: usize,
    defer_creates: Option<DeferPolicy>,
) -> vfs::Result<Ext4> {
    Ext4::open_writable(
        device,
        &OpenOptions { cache_bytes, defer_creates, ..OpenOptions::default() },
    )
}

/// Asserts that e2fsck finds nothing in an image.
#[track_caller]
pub fn assert_clean(device: &MemoryDevice) {
    testkit::show_image(device, judges::verdict)
        .unwrap_or_else(|text| panic!("e2fsck does not accept it:\n{text}"));
}
