//! What the tests that change images share: small images in memory, how they are opened for trials,
//! and their judges.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each user takes a part of it")]

pub mod kernel;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use blockdev::{BlockDevice, MemoryDevice};
use vfs::{FileSystem, Timestamp};
use workload::crash::{Mounted, Target};
use workload::trial::Trial;
use xfs::format::checksum;
use xfs::format::superblock::{self, RawSuperblock};
use xfs::mkfs::{self, Contents, FeatureChange, Options};
use xfs::{LeafBuffering, Xfs};

pub const MIB: u64 = 1 << 20;

/// A small cache, so that blocks are read again and again.
pub const SMALL_CACHE_BYTES: usize = 512 << 10;

/// A kind of image.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub size: u64,
    pub block_size: u32,
    pub inode_size: u16,
    pub dir_block_size: Option<u32>,
    pub ag_count: Option<u32>,
    /// Changes to mkfs's default features.
    pub features: &'static str,
    /// When names of large directories wait for their leaves, if not as usual.
    pub buffering: Option<LeafBuffering>,
}

/// Names wait in all directories that have nodes, but few at a time.
pub const TINY_BUFFERS: LeafBuffering =
    LeafBuffering { leaves_min: 1, waiting_max: 3, bytes_max: 1 << 20 };

impl Layout {
    pub const DEFAULT: Self = Self {
        size: 64 * MIB,
        block_size: 4096,
        inode_size: 512,
        dir_block_size: None,
        ag_count: None,
        features: "",
        buffering: None,
    };
    pub const BUFFERED: Self = Self { buffering: Some(TINY_BUFFERS), ..Self::DEFAULT };
    pub const SMALL_BLOCKS: Self = Self { block_size: 1024, ..Self::DEFAULT };
    pub const LARGE_INODES: Self = Self { inode_size: 2048, ..Self::DEFAULT };
    pub const LARGE_DIR_BLOCKS: Self =
        Self { block_size: 2048, dir_block_size: Some(8192), ..Self::DEFAULT };
    pub const PLAIN: Self = Self {
        features: "-parent,-exchange,-reflink,-rmapbt,-finobt,-inobtcount,-sparse,-nrext64,-bigtime",
        ..Self::DEFAULT
    };
    pub const LARGE_BLOCKS: Self = Self { block_size: 64 << 10, size: 512 * MIB, ..Self::DEFAULT };
    pub const MANY_GROUPS: Self = Self { ag_count: Some(7), size: 128 * MIB, ..Self::DEFAULT };

    /// Opens a device with a new file system of this kind.
    pub fn open(&self, device: Arc<dyn BlockDevice>, cache_bytes: usize) -> vfs::Result<Xfs> {
        let fs = Xfs::open_fresh(device, cache_bytes)?;
        if let Some(buffering) = self.buffering {
            fs.set_leaf_buffering(buffering);
        }
        Ok(fs)
    }

    /// A device with a new file system of this kind.
    pub fn make(&self) -> MemoryDevice {
        let options = Options {
            block_size: self.block_size,
            inode_size: self.inode_size,
            dir_block_size: self.dir_block_size,
            ag_count: self.ag_count,
            uuid: [0x5a; 16],
            features: FeatureChange::parse_list(self.features).expect("known features"),
            allow_small: true,
            time: Timestamp { sec: 1_600_000_000, nsec: 0 },
            ..Options::new(self.size)
        };
        let layout = mkfs::plan(&options).unwrap_or_else(|error| panic!("{self:?}: {error}"));
        let device = MemoryDevice::new(self.size);
        mkfs::format(&device, &layout, Contents::Zeros).expect("memory does not fail");
        device
    }
}

/// XFS images of one kind, as trials see them.
pub struct XfsTarget {
    layout: Layout,
    /// The file system, made once: each run starts from a copy.
    made: MemoryDevice,
}

impl XfsTarget {
    pub fn new(layout: Layout) -> Self {
        Self { layout, made: layout.make() }
    }

    /// What trials need to know of it.
    pub fn trial(&self) -> Trial<'_> {
        let (block_bytes, name) = (self.layout.block_size.into(), format!("{:?}", self.layout));
        Trial { target: self, block_bytes, name, check: &|device| assert_clean(device) }
    }
}

struct Open(Xfs);

impl Target for XfsTarget {
    fn make(&self) -> Result<MemoryDevice, String> {
        Ok(self.made.fork())
    }

    fn open(&self, device: Arc<dyn BlockDevice>) -> vfs::Result<Box<dyn Mounted>> {
        Ok(Box::new(Open(self.layout.open(device, SMALL_CACHE_BYTES)?)))
    }
}

impl Mounted for Open {
    fn file_system(&self) -> &dyn FileSystem {
        &self.0
    }

    fn close(self: Box<Self>) -> vfs::Result<()> {
        self.0.finish(None)
    }
}

/// Writes an image into a new sparse file.
pub fn write_image(device: &MemoryDevice, path: &Path) -> io::Result<()> {
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
    file.set_len(device.len())?;
    device.for_each_part(|offset, bytes| file.write_all_at(bytes, offset))
}

/// Makes an image that was not finished one that can be opened.
pub fn seem_finished(device: &MemoryDevice) {
    let mut sector = [0; 512];
    device.read_at(0, &mut sector).unwrap();
    sector[std::mem::offset_of!(RawSuperblock, inprogress)] = 0;
    checksum::seal(&mut sector, superblock::CRC_OFFSET);
    device.write_at(0, &sector).unwrap();
}

/// Asserts that xfs_repair has nothing to say about an image.
#[track_caller]
pub fn assert_clean(device: &MemoryDevice) {
    let folder = oracle::scratch();
    let path = folder.path().join("image");
    write_image(device, &path).expect("there is room for an image");
    oracle::xfs_repair(&path);
}
