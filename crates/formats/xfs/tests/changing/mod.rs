//! Shared support for tests that change images: small images in memory, how to open them, and their judges.
#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    unused_imports,
    reason = "each test uses a part"
)]

pub mod judges;
pub mod kernel;
pub mod target;
mod worn;

use std::ops::Range;
use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use testkit::MkfsXfs;
use testkit::operation::Mix;
use vfs::Timestamp;
use xfs::format::address::FsBlock;
use xfs::format::checksum;
use xfs::format::geometry::Geometry;
use xfs::format::superblock::{self, RawSuperblock, SUPERBLOCK_SIZE, Superblock};
use xfs::mkfs::{self, FeatureChange, Options, PreviousContents};
use xfs::{DeferPolicy, InsertBuffering, OpenOptions, Xfs};
use zerocopy::{FromBytes, IntoBytes};

pub use target::XfsTarget;
use testkit::crash::read_image;
pub use testkit::crash::write_image;

pub const MIB: u64 = 1 << 20;

/// A small cache, so that blocks are reread frequently.
pub const SMALL_CACHE_BYTES: usize = 512 << 10;

/// All kinds of operations, with frequent syncs.
pub const SYNCING: Mix = Mix { sync: 40, ..Mix::ALL };

/// Mostly operations on names, with frequent syncs, which fills the log.
pub const FILLING: Mix = Mix { names: 60, data: 5, sync: 40, names_per_directory: 60, ..Mix::ALL };

/// A kind of image.
#[derive(Clone, Copy, Debug)]
pub struct TargetLayout {
    pub size: u64,
    pub block_size: u32,
    pub inode_size: u16,
    pub dir_block_size: Option<u32>,
    pub ag_count: Option<u32>,
    /// Changes to the default features of mkfs.
    pub features: &'static str,
    /// Insert buffering of large directories, if not the default.
    pub buffering: Option<InsertBuffering>,
    /// Options of mkfs.xfs, which makes the image if they are given; `block_size` must match.
    pub mkfs: Option<&'static str>,
    /// Size of the log in bytes, if not the default. Other implementations do not accept smaller ones.
    pub log_bytes: Option<u32>,
}

/// All node directories buffer names, but few at a time.
pub const TINY_BUFFERS: InsertBuffering =
    InsertBuffering { leaves_min: 1, buffered_max: 3, bytes_max: 1 << 20 };

impl TargetLayout {
    pub const DEFAULT: Self = Self {
        size: 64 * MIB,
        block_size: 4096,
        inode_size: 512,
        dir_block_size: None,
        ag_count: None,
        features: "",
        buffering: None,
        mkfs: None,
        log_bytes: None,
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

    pub const MKFS: Self = Self { mkfs: Some(""), ..Self::DEFAULT };
    pub const MKFS_SMALL_BLOCKS: Self =
        Self { mkfs: Some("-b size=1024 -n size=8192"), ..Self::SMALL_BLOCKS };
    pub const MKFS_PLAIN: Self = Self {
        mkfs: Some(
            "-m rmapbt=0,reflink=0,bigtime=0,inobtcount=0,finobt=0 -i nrext64=0,sparse=0,exchange=0 \
             -n parent=0",
        ),
        ..Self::DEFAULT
    };
    /// With the smallest log that kernels accept.
    pub const SMALL_LOG: Self = Self { block_size: 1024, size: 32 * MIB, ..Self::PLAIN };
    /// With a log that a few checkpoints fill.
    pub const TINY_LOG: Self = Self { log_bytes: Some(512 << 10), ..Self::DEFAULT };

    /// Opens a device with a new file system of this kind, to fill it.
    pub fn open(&self, device: Arc<dyn BlockDevice>, cache_bytes: usize) -> vfs::Result<Xfs> {
        let fs = Xfs::open_in_progress(device, cache_bytes)?;
        self.tune(&fs);
        Ok(fs)
    }

    /// Opens an image of this kind to change it in place, with its log.
    pub fn open_in_place(
        &self,
        device: Arc<dyn BlockDevice>,
        options: &OpenOptions,
    ) -> vfs::Result<Xfs> {
        let fs = Xfs::open_writable(device, options)?;
        self.tune(&fs);
        Ok(fs)
    }

    /// Returns the byte range of an image's log on the device.
    pub fn log_of(device: &MemoryDevice) -> Range<u64> {
        let mut sector = [0; 4096];
        device.read_at(0, &mut sector).unwrap();
        let sb = Superblock::parse(&sector, device.len()).unwrap();
        let geometry = Geometry::new(&sb);
        let start = FsBlock(sb.raw.logstart.get());
        let start = geometry.byte_of(geometry.device_block(start));
        start..start + (u64::from(sb.raw.logblocks.get()) << sb.raw.blocklog)
    }

    /// Applies the settings of an open file system.
    fn tune(&self, fs: &Xfs) {
        if let Some(buffering) = self.buffering {
            fs.set_insert_buffering(buffering);
        }
    }

    /// Makes a device with a new file system of this kind.
    pub fn make(&self) -> MemoryDevice {
        let device = match self.mkfs {
            Some(options) => self.make_by_others(options),
            None => self.make_here(),
        };
        self.log_bytes.into_iter().for_each(|bytes| cut_log(&device, bytes / self.block_size));
        device
    }

    fn make_by_others(&self, options: &str) -> MemoryDevice {
        let folder = testkit::scratch();
        let path = folder.path().join("image");
        MkfsXfs::default().options(options).create(&path, self.size);
        read_image(&path).expect("mkfs.xfs made it")
    }

    fn make_here(&self) -> MemoryDevice {
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
        mkfs::format(&device, &layout, PreviousContents::Zeros).expect("memory does not fail");
        device
    }
}

/// Changes the first superblock.
fn edit_superblock(device: &MemoryDevice, change: impl FnOnce(&mut RawSuperblock)) {
    let mut sector = [0; 512];
    device.read_at(0, &mut sector).unwrap();
    let mut raw = RawSuperblock::read_from_prefix(&sector).unwrap().0;
    change(&mut raw);
    sector[..SUPERBLOCK_SIZE].copy_from_slice(raw.as_bytes());
    checksum::seal(&mut sector, superblock::CRC_OFFSET);
    device.write_at(0, &sector).unwrap();
}

/// Marks an unfinished image finished, so that it can be opened.
pub fn seem_finished(device: &MemoryDevice) {
    edit_superblock(device, |raw| raw.inprogress = 0);
}

/// Truncates an unused log to `blocks` blocks.
fn cut_log(device: &MemoryDevice, blocks: u32) {
    edit_superblock(device, |raw| raw.logblocks = blocks.into());
}

/// Asserts that xfs_repair reports nothing about an image.
#[track_caller]
pub fn assert_clean(device: &MemoryDevice) {
    testkit::show_image(device, |path| testkit::xfs_repair(path));
}
