//! Inode items: an inode's core, in the writer's byte order, and its changed forks.

use engine::Corruption;
use vfs::Ino;

use super::Lsn;
use super::raw_item::{Parsed, RawItem, le16, le32, le64};
use crate::format::btree::TreeShape;
use crate::format::bytes::{put16, put32, put64};
use crate::format::inode::{CORE_SIZE_V3, MAGIC, NEXT_UNLINKED_OFFSET, flags2};

/// Bits of `ilf_fields`.
pub(crate) mod fields {
    /// The data fork, as in the inode.
    pub(crate) const DATA: u32 = 2 | 4;
    /// The root of the data fork's extent tree.
    pub(crate) const DATA_ROOT: u32 = 8;
    /// The device number.
    pub(crate) const DEVICE: u32 = 0x10;
    /// The attribute fork, as in the inode.
    pub(crate) const ATTR: u32 = 0x40 | 0x80;
    /// The root of the attribute fork's extent tree.
    pub(crate) const ATTR_ROOT: u32 = 0x100;
    /// All blocks of the data fork's extent tree get this inode as owner.
    pub(crate) const DATA_OWNER: u32 = 0x200;
    /// All blocks of the attribute fork's extent tree get this inode as owner.
    pub(crate) const ATTR_OWNER: u32 = 0x400;
}

/// Byte offset of `di_lsn`.
const LSN_OFFSET: usize = 112;
/// Byte offset of `di_flushiter`.
const FLUSHES_OFFSET: usize = 30;
/// Size of a logged core of version 1 or 2, which ends before `di_next_unlinked`.
const LOGGED_CORE_V2: usize = 96;
const STRUCTURE: &str = "log inode item";

/// A logged fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoggedFork<'t> {
    /// Its first bytes, as in the inode.
    Plain(&'t [u8]),
    /// The root of its extent tree, in the form of a tree block.
    Root(&'t [u8]),
}

/// A changed inode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InodeItem<'t> {
    /// The inode.
    pub ino: Ino,
    /// Mask of its logged parts.
    pub fields: u32,
    /// First block of its buffer, in units of 512 bytes.
    pub daddr: u64,
    /// Number of blocks of the buffer.
    pub blocks: u32,
    /// Its byte offset in the buffer.
    pub offset: usize,
    /// Its device number.
    pub device: u32,
    /// Its core.
    pub core: &'t [u8],
    /// Its data fork.
    pub data: Option<LoggedFork<'t>>,
    /// Its attribute fork.
    pub attr: Option<LoggedFork<'t>>,
}

impl<'t> InodeItem<'t> {
    pub(super) fn parse(raw: &RawItem<'t>) -> Parsed<Self> {
        let format = raw.format(STRUCTURE, 52)?;
        // On machines that align 64-bit numbers there are four more bytes before the inode's number.
        let pad = if format.len() >= 56 { 4 } else { 0 };
        let field = |at: usize| le32(format, at + pad).unwrap_or(0);
        let number = |at: usize| le64(format, at + pad).unwrap_or(0);
        let fields = le32(format, 4).unwrap_or(0);
        let mut regions = raw.regions().skip(1);
        let mut next = |problem| {
            regions.next().ok_or_else(|| Corruption::new(STRUCTURE, problem).of_inode(number(12)))
        };
        let core = next("its core is missing")?;
        let mut fork = |plain: u32, root: u32| {
            Ok(match (fields & plain, fields & root) {
                (0, 0) => None,
                (_, 0) => Some(LoggedFork::Plain(next("its fork is missing")?)),
                _ => Some(LoggedFork::Root(next("the root of its map is missing")?)),
            })
        };
        let item = Self {
            ino: Ino(number(12)),
            fields,
            daddr: number(36),
            blocks: field(44),
            offset: field(48) as usize,
            device: field(20),
            core,
            data: fork(fields::DATA, fields::DATA_ROOT)?,
            attr: fork(fields::ATTR, fields::ATTR_ROOT)?,
        };
        item.check_core().map_err(|c| c.of_inode(item.ino.0))?;
        Ok(item)
    }

    fn check_core(&self) -> Parsed<()> {
        let fault = |problem| Corruption::new(STRUCTURE, problem);
        let version = self.core.get(4).copied().unwrap_or(0);
        let size = if (1..=2).contains(&version) { LOGGED_CORE_V2 } else { CORE_SIZE_V3 };
        if self.core.len() < size {
            let damage = fault("its core is truncated");
            return Err(damage.mismatch(size, self.core.len()));
        }
        let magic = le16(self.core, 0).unwrap_or(0);
        if magic != MAGIC || !(1..=3).contains(&version) {
            let found = format!("{magic:#06x}, version {version}");
            let expected = format!("{MAGIC:#06x}, version 1 to 3");
            return Err(fault("magic number and version").mismatch(expected, found));
        }
        if !self.is_v3() {
            return Ok(());
        }
        let ino = le64(self.core, 152).unwrap_or(0);
        if ino != self.ino.0 {
            return Err(fault("its core belongs to another inode").mismatch(self.ino, ino));
        }
        Ok(())
    }

    /// Returns whether the inode has version 3, as all inodes of version 5 of XFS.
    pub(crate) fn is_v3(&self) -> bool {
        self.core[4] == 3
    }

    /// Returns `di_flushiter` of versions 1 and 2: the number of times that the inode was written to its place.
    pub(crate) fn flushes(&self) -> u16 {
        le16(self.core, FLUSHES_OFFSET).unwrap_or(0)
    }

    /// Writes a core of version 1 or 2 into the inode's slot. Its flushes are counted from 0 again.
    fn write_old_core(&self, slot: &mut [u8]) {
        const U16: [usize; 8] = [0, 2, 6, 20, 22, 80, 88, 90];
        const U32: [usize; 13] = [8, 12, 16, 32, 36, 40, 44, 48, 52, 72, 76, 84, 92];
        const U64: [usize; 2] = [56, 64];
        const BYTES: [std::ops::Range<usize>; 3] = [4..6, 24..30, 82..84];
        let core = self.core;
        let _ = U16.map(|at| put16(slot, at, le16(core, at).unwrap_or(0)));
        let _ = U32.map(|at| put32(slot, at, le32(core, at).unwrap_or(0)));
        let _ = U64.map(|at| put64(slot, at, le64(core, at).unwrap_or(0)));
        let _ = BYTES.map(|range| slot[range.clone()].copy_from_slice(&core[range]));
        put16(slot, FLUSHES_OFFSET, 0);
    }

    /// Writes the core into the inode's slot, in on-disk byte order, except for `di_next_unlinked`, which is in other
    /// items. The checksum is not updated.
    pub(crate) fn write_core(&self, slot: &mut [u8], lsn: Lsn) {
        // Offsets of numbers by size; between them are single bytes.
        const U16: [usize; 8] = [0, 2, 6, 20, 22, 80, 88, 90];
        const U32: [usize; 8] = [8, 12, 16, 72, 76, 84, 92, 128];
        const U64: [usize; 6] = [24, 56, 64, 104, 120, 152];
        const TIMES: [usize; 4] = [32, 40, 48, 144];
        const BYTES: [std::ops::Range<usize>; 4] = [4..6, 82..84, 132..144, 160..176];
        if !self.is_v3() {
            self.write_old_core(slot);
            return;
        }
        let core = self.core;
        let _ = U16.map(|at| put16(slot, at, le16(core, at).unwrap_or(0)));
        let _ = U32.map(|at| put32(slot, at, le32(core, at).unwrap_or(0)));
        let _ = U64.map(|at| put64(slot, at, le64(core, at).unwrap_or(0)));
        let _ = BYTES.map(|range| slot[range.clone()].copy_from_slice(&core[range]));
        let is_large = le64(core, 120).unwrap_or(0) & flags2::BIGTIME != 0;
        for at in TIMES {
            if is_large {
                put64(slot, at, le64(core, at).unwrap_or(0));
            } else {
                // Seconds and nanoseconds, each in the machine's byte order.
                put32(slot, at, le32(core, at).unwrap_or(0));
                put32(slot, at + 4, le32(core, at + 4).unwrap_or(0));
            }
        }
        put64(slot, LSN_OFFSET, lsn.to_raw());
        const _: () = assert!(NEXT_UNLINKED_OFFSET == 96);
    }
}

/// Returns `di_flushiter` of the slot of an inode of version 1 or 2.
pub(crate) fn slot_flushes(slot: &[u8]) -> u16 {
    crate::format::bytes::be16(slot, FLUSHES_OFFSET)
}

/// Returns the LSN of the last change of an inode's slot.
pub(crate) fn slot_lsn(slot: &[u8]) -> u64 {
    crate::format::bytes::be64(slot, LSN_OFFSET)
}

/// Writes a logged fork into the inode's fork. The rest of the fork is not changed.
///
/// # Errors
/// If it does not fit.
pub(crate) fn write_fork(logged: LoggedFork<'_>, shape: &TreeShape, fork: &mut [u8]) -> Parsed<()> {
    let too_long = |len: usize, room: usize| {
        let damage = Corruption::new(STRUCTURE, "a fork that does not fit");
        damage.mismatch(format_args!("at most {room} bytes"), len)
    };
    match logged {
        LoggedFork::Plain(bytes) => {
            let room = fork.len();
            let to = fork.get_mut(..bytes.len()).ok_or_else(|| too_long(bytes.len(), room))?;
            to.copy_from_slice(bytes);
        }
        LoggedFork::Root(root) => {
            if !shape.write_logged_root(root, fork) {
                return Err(too_long(root.len(), fork.len()));
            }
        }
    }
    Ok(())
}
