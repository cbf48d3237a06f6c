//! XMI: two files exchange ranges of blocks.
//!
//! The item describes the rest of the exchange: it is logged again each time a part is done.

use engine::Corruption;
use vfs::Ino;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Intent;
use crate::format::address::FileBlock;
use crate::format::features::Incompat;
use crate::format::geometry::Geometry;
use crate::format::inode::Fork;
use crate::format::log::item::ItemType;

/// An XMI (`xfs_xmi_log_format`).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawXmi {
    item_type: U16,
    size: U16,
    pad: U32,
    id: U64,
    inode1: U64,
    inode2: U64,
    igen1: U32,
    igen2: U32,
    startoff1: U64,
    startoff2: U64,
    blockcount: U64,
    flags: U64,
    isize1: U64,
    isize2: U64,
}

const _: () = assert!(size_of::<RawXmi>() == 88);

/// Bits of `flags` (`XFS_EXCHMAPS_*`).
mod flag {
    pub(super) const ATTR_FORK: u64 = 1;
    pub(super) const SET_SIZES: u64 = 1 << 1;
    pub(super) const INO1_WRITTEN: u64 = 1 << 2;
    pub(super) const CLEAR_INO1_REFLINK: u64 = 1 << 3;
    pub(super) const CLEAR_INO2_REFLINK: u64 = 1 << 4;
    pub(super) const ALL: u64 =
        ATTR_FORK | SET_SIZES | INO1_WRITTEN | CLEAR_INO1_REFLINK | CLEAR_INO2_REFLINK;
}

/// One of the files that exchange blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangeFile {
    /// The inode.
    pub ino: Ino,
    /// Its generation.
    pub generation: u32,
    /// The first logical block.
    pub offset: FileBlock,
    /// Its final size in bytes, if sizes are set.
    pub size: u64,
    /// True if it shares no blocks afterwards, so that the reflink flag is cleared.
    pub clear_reflink: bool,
}

/// The remaining part of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The two files.
    pub files: [ExchangeFile; 2],
    /// Number of blocks of each. 0 if only the final changes are left.
    pub blocks: u64,
    /// Which fork.
    pub fork: Fork,
    /// True to set the final sizes of the files.
    pub set_sizes: bool,
    /// True to exchange only written blocks of the first file.
    pub written_only: bool,
}

impl Intent {
    pub(super) fn exchange_work(&self, geometry: &Geometry) -> Result<Exchange, Corruption> {
        if !geometry.features.incompat(Incompat::EXCHRANGE) {
            return Err(self.damage("the file system does not support range exchange"));
        }
        let region = self.only_region()?;
        let raw = RawXmi::ref_from_bytes(region)
            .map_err(|_| self.damage("length").mismatch(size_of::<RawXmi>(), region.len()))?;
        if raw.pad.get() != 0 {
            return Err(self.damage("padding").mismatch(0, raw.pad));
        }
        let flags = raw.flags.get();
        if flags & !flag::ALL != 0 {
            let found = format_args!("{flags:#x}");
            return Err(self
                .damage("unknown flags")
                .mismatch(format_args!("{:#x}", flag::ALL), found));
        }
        let is_set = |bit: u64| flags & bit != 0;
        let fork = if is_set(flag::ATTR_FORK) { Fork::Attr } else { Fork::Data };
        let files = [
            ExchangeFile {
                ino: Ino(raw.inode1.get()),
                generation: raw.igen1.get(),
                offset: FileBlock(raw.startoff1.get()),
                size: raw.isize1.get(),
                clear_reflink: is_set(flag::CLEAR_INO1_REFLINK),
            },
            ExchangeFile {
                ino: Ino(raw.inode2.get()),
                generation: raw.igen2.get(),
                offset: FileBlock(raw.startoff2.get()),
                size: raw.isize2.get(),
                clear_reflink: is_set(flag::CLEAR_INO2_REFLINK),
            },
        ];
        let (blocks, set_sizes) = (raw.blockcount.get(), is_set(flag::SET_SIZES));
        for file in &files {
            self.check_ino(geometry, file.ino)?;
            if blocks > 0 {
                self.check_offsets(file.offset, blocks)?;
            }
            if set_sizes && (file.size > i64::MAX as u64 || fork == Fork::Attr) {
                return Err(self.damage("size").mismatch("one of a file", file.size));
            }
        }
        if files[0].ino == files[1].ino && files[0].offset.0.abs_diff(files[1].offset.0) < blocks {
            return Err(self.damage("a file that exchanges a range with itself"));
        }
        let written_only = is_set(flag::INO1_WRITTEN);
        Ok(Exchange { files, blocks, fork, set_sizes, written_only })
    }

    /// Returns an intent to exchange ranges of two files.
    pub(crate) fn exchange(id: u64, exchange: &Exchange) -> Self {
        let [one, two] = &exchange.files;
        let bit = |is_set: bool, bit: u64| if is_set { bit } else { 0 };
        let flags = bit(exchange.fork == Fork::Attr, flag::ATTR_FORK)
            | bit(exchange.set_sizes, flag::SET_SIZES)
            | bit(exchange.written_only, flag::INO1_WRITTEN)
            | bit(one.clear_reflink, flag::CLEAR_INO1_REFLINK)
            | bit(two.clear_reflink, flag::CLEAR_INO2_REFLINK);
        let raw = RawXmi {
            item_type: (ItemType::Xmi as u16).into(),
            size: 1.into(),
            pad: 0.into(),
            id: id.into(),
            inode1: one.ino.0.into(),
            inode2: two.ino.0.into(),
            igen1: one.generation.into(),
            igen2: two.generation.into(),
            startoff1: one.offset.0.into(),
            startoff2: two.offset.0.into(),
            blockcount: exchange.blocks.into(),
            flags: flags.into(),
            isize1: one.size.into(),
            isize2: two.size.into(),
        };
        Self { id, item: ItemType::Xmi, regions: vec![raw.as_bytes().to_vec()] }
    }
}
