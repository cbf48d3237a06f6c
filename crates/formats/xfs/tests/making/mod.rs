//! Makes file systems in two ways, and compares them byte by byte.
#![allow(missing_docs, unreachable_pub, reason = "used only by tests")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use disk::FileDevice;
use rustix::fs::{SeekFrom, seek};
use testkit::MkfsXfs;
use vfs::Timestamp;
use xfs::format::features::Incompat;
use xfs::format::superblock::{RawSuperblock, Superblock};
use xfs::mkfs::{self, FeatureChange, Layout, Options, PreviousContents, Stripe};

pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;
pub const TIB: u64 = 1 << 40;
const UUID: [u8; 16] = [0x5a; 16];
const UUID_TEXT: &str = "5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5a";
/// All features that can be disabled.
pub const PARENTLESS: &str =
    "-parent,-exchange,-reflink,-rmapbt,-finobt,-inobtcount,-sparse,-nrext64,-bigtime";

/// Parameters of one file system.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub size: u64,
    pub block_size: u32,
    pub inode_size: u16,
    /// 0 for the default.
    pub dir_block_size: u32,
    pub sector_size: u32,
    pub ag_count: Option<u32>,
    pub log_bytes: Option<u64>,
    /// Stripe unit in KiB, and units of a stripe.
    pub stripe: Option<(u32, u32)>,
    pub label: &'static str,
    /// Features to disable, or `+metadir`.
    pub features: &'static str,
}

pub const fn case(size: u64) -> Case {
    Case {
        size,
        block_size: 4096,
        inode_size: 512,
        dir_block_size: 0,
        sector_size: 512,
        ag_count: None,
        log_bytes: None,
        stripe: None,
        label: "",
        features: "",
    }
}

impl Case {
    fn layout(&self) -> vfs::Result<Layout> {
        mkfs::plan(&Options {
            block_size: self.block_size,
            inode_size: self.inode_size,
            dir_block_size: (self.dir_block_size != 0).then_some(self.dir_block_size),
            sector_size: self.sector_size,
            ag_count: self.ag_count,
            log_bytes: self.log_bytes,
            stripe: self.stripe.map(|(kib, units)| Stripe { unit_bytes: kib << 10, units }),
            label: self.label.into(),
            uuid: UUID,
            features: FeatureChange::parse_list(self.features)?,
            allow_small: true,
            time: Timestamp { sec: 1_700_000_000, nsec: 5 },
            ..Options::new(self.size)
        })
    }

    /// Makes it with Diskwright.
    #[track_caller]
    pub fn make(&self, image: &Path) {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(image);
        let file = file.unwrap();
        file.set_len(self.size).unwrap();
        let layout = self.layout().unwrap_or_else(|error| panic!("{self:?}: {error}"));
        mkfs::format(&FileDevice::new(file).unwrap(), &layout, PreviousContents::Zeros).unwrap();
    }

    /// Returns the equivalent options of mkfs.xfs.
    fn mkfs(&self) -> MkfsXfs {
        let mut metadata = format!("uuid={UUID_TEXT}");
        let mut inodes = format!("size={}", self.inode_size);
        let mut names = format!("size={}", self.dir_block_size.max(self.block_size.max(4096)));
        if self.features.contains("+metadir") {
            metadata.push_str(",metadir=1");
        }
        for name in self.features.split(',').filter_map(|change| change.strip_prefix('-')) {
            let option = match name {
                "parent" => &mut names,
                "exchange" | "sparse" | "nrext64" => &mut inodes,
                _ => &mut metadata,
            };
            write!(option, ",{name}=0").unwrap();
        }
        let mut mkfs = MkfsXfs::default()
            .arguments(["-b", &format!("size={}", self.block_size)])
            .arguments(["-s", &format!("size={}", self.sector_size)])
            .arguments(["-m", &metadata, "-i", &inodes, "-n", &names, "-L", self.label]);
        if let Some(count) = self.ag_count {
            mkfs = mkfs.arguments(["-d", &format!("agcount={count}")]);
        }
        if let Some((kib, units)) = self.stripe {
            mkfs = mkfs.arguments(["-d", &format!("su={kib}k,sw={units}")]);
        }
        if let Some(bytes) = self.log_bytes {
            mkfs = mkfs.arguments(["-l", &format!("size={bytes}")]);
        }
        mkfs
    }

    /// Makes it with mkfs.xfs.
    #[track_caller]
    pub fn make_with_mkfs(&self, image: &Path) {
        self.mkfs().create(image, self.size);
    }

    /// Asserts that mkfs.xfs plans the same layout, or also refuses.
    #[track_caller]
    pub fn compare_plans(&self) {
        let theirs = self.mkfs().plan(self.size);
        match (self.layout(), &theirs) {
            (Ok(layout), Ok(theirs)) => {
                let ours = layout.superblock();
                let ours = [
                    ours.agcount.into(),
                    ours.agblocks.into(),
                    ours.dblocks.get(),
                    ours.imax_pct.into(),
                    ours.logblocks.into(),
                ];
                assert_eq!(ours, numbers(theirs), "{self:?}\n{theirs}");
            }
            (Err(_), Err(_)) => {}
            (ours, _) => panic!("{self:?}: {ours:?}, but mkfs.xfs says {theirs:?}"),
        }
    }
}

/// Parses groups, blocks of a group, blocks, inode percentage and log blocks in the output of mkfs.xfs.
fn numbers(text: &str) -> [u64; 5] {
    let after = |section: &str, key: &str| {
        let rest = &text[text.find(section).unwrap()..];
        let rest = &rest[rest.find(key).unwrap() + key.len()..];
        rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
    };
    [
        after("meta-data", "agcount="),
        after("meta-data", "agsize="),
        after("data   ", "blocks="),
        after("data   ", "imaxpct="),
        after("log   ", "blocks="),
    ]
}

/// Opens an image as a device.
pub fn open(image: &Path) -> Arc<FileDevice> {
    let file = File::options().read(true).write(true).open(image).unwrap();
    Arc::new(FileDevice::new(file).unwrap())
}

/// Read size in bytes. Most parts of a log are written with zeros.
const READ_BYTES: usize = 64 << 10;

/// Returns all non-zero 512-byte pieces of a file, by offset. An incomplete piece at the end is omitted.
fn pieces(image: &Path) -> BTreeMap<u64, [u8; 512]> {
    let file = File::open(image).unwrap();
    let mut found = BTreeMap::new();
    let (zeros, mut buffer) = (vec![0; READ_BYTES], vec![0; READ_BYTES]);
    let mut at = 0;
    while let Ok(start) = seek(&file, SeekFrom::Data(at)) {
        at = seek(&file, SeekFrom::Hole(start)).unwrap();
        for begin in (start..at).step_by(READ_BYTES) {
            let bytes = &mut buffer[..READ_BYTES.min((at - begin) as usize)];
            file.read_exact_at(bytes, begin).unwrap();
            if *bytes == zeros[..bytes.len()] {
                continue;
            }
            for (offset, piece) in (begin..).step_by(512).zip(bytes.as_chunks::<512>().0) {
                if *piece != [0; 512] {
                    found.insert(offset, *piece);
                }
            }
        }
    }
    found
}

/// Parts of an inode that differ deliberately: times, checksum, generation and change count.
const INODE_DIFFERENCES: [Range<usize>; 5] = [32..56, 92..96, 100..104, 104..112, 144..152];
/// Additionally for the root: offset and format of the attribute fork, because mkfs.xfs adds an attribute.
const ROOT_DIFFERENCE: Range<usize> = 82..84;
/// Parts of a superblock that differ without parent pointers: version bits, because this implementation always sets the
/// attribute flag, and checksum.
const SUPERBLOCK_DIFFERENCES: [Range<usize>; 2] = [100..102, 224..228];

/// Asserts that two images differ only in the parts listed here.
#[track_caller]
pub fn assert_same_but_for_times(case: &Case, ours: &Path, theirs: &Path) {
    let mut pair = [pieces(ours), pieces(theirs)];
    let size = std::fs::metadata(ours).unwrap().len();
    for image in &mut pair {
        let sector: Vec<u8> = image.range(..32 << 10).flat_map(|(_, piece)| *piece).collect();
        let superblock = Superblock::parse(&padded(&sector), size).unwrap();
        forget(case, image, &superblock);
    }
    let [ours, theirs] = pair;
    let offsets: std::collections::BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
    let differ: Vec<_> = offsets.into_iter().filter(|at| ours.get(at) != theirs.get(at)).collect();
    assert!(differ.is_empty(), "{case:?} differs at {differ:?}");
}

/// Returns the first sectors; all except the first few are zero.
fn padded(sector: &[u8]) -> Vec<u8> {
    let mut bytes = sector[..512].to_vec();
    bytes.resize(32 << 10, 0);
    bytes
}

/// Returns the byte offset of the inode of `rtgroups`, the only entry of the metadata directory.
fn directory_of_groups(image: &BTreeMap<u64, [u8; 512]>, raw: &RawSuperblock) -> Option<u64> {
    let slot = image.get(&(raw.metadirino.get() << raw.inodelog))?;
    let has_metadir = raw.features().incompat(Incompat::METADIR);
    // The entry's inode is after a header, its name and its type, with 4 or 8 bytes.
    let is_large = slot[177] != 0;
    let at = 176 + 2 + if is_large { 8 } else { 4 } + 3 + "rtgroups".len() + 1;
    let number = &slot[at..at + if is_large { 8 } else { 4 }];
    let ino = number.iter().fold(0, |ino, byte| ino << 8 | u64::from(*byte));
    let bits = u32::from(raw.agblklog + raw.inopblog);
    let group = (ino >> bits) * (u64::from(raw.agblocks.get()) << raw.blocklog);
    has_metadir.then(|| group + ((ino & ((1 << bits) - 1)) << raw.inodelog))
}

/// Zeroes the parts of the inodes of a chunk that may differ, and the generation in the parent pointer of the first one.
fn forget_inode(image: &mut BTreeMap<u64, [u8; 512]>, first: u64) {
    for (offset, piece) in image.range_mut(first..first + 256 * 2048) {
        if piece.starts_with(b"IN") {
            INODE_DIFFERENCES.into_iter().for_each(|range| piece[range].fill(0));
            if *offset == first {
                piece[391..395].fill(0);
            }
        }
    }
}

/// Zeroes the parts that may differ.
fn forget(case: &Case, image: &mut BTreeMap<u64, [u8; 512]>, superblock: &Superblock) {
    let raw = &superblock.raw;
    let (inode_size, chunk) = (u64::from(raw.inodesize.get()), raw.icount.get());
    let root = raw.rootino.get() * inode_size;
    // With a metadata directory there are usually two chunks, and the others are free space.
    let inodes = root..root + inode_size * chunk;
    if let Some(groups) = directory_of_groups(image, raw) {
        forget_inode(image, groups);
    }
    let group = u64::from(raw.agblocks.get()) << raw.blocklog;
    for (offset, piece) in image.iter_mut() {
        if inodes.contains(offset) {
            if !(offset - root).is_multiple_of(inode_size) {
                continue;
            }
            INODE_DIFFERENCES.into_iter().for_each(|range| piece[range].fill(0));
            if *offset == root {
                piece[ROOT_DIFFERENCE].fill(0);
                // The attribute fork follows the empty directory.
                piece[190..].fill(0);
            }
        } else if offset % group == 0 && case.features.contains("parent") {
            SUPERBLOCK_DIFFERENCES.into_iter().for_each(|range| piece[range].fill(0));
        }
    }
    let root_rest = root + 512..root + inode_size;
    image.retain(|offset, _| !root_rest.contains(offset));
}
