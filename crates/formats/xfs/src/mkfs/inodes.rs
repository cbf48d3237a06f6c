//! The first inodes.

use vfs::{FileType, Ino};

use super::layout::{INODES_USED, Layout};
use crate::format::bytes::{put16, put32, put64};
use crate::format::features::Incompat;
use crate::format::inode::{self, CORE_SIZE_V3, Fork, Format, Inode, Time, flags, flags2};
use crate::format::realtime::space::SpaceFile;

/// Flag in `di_flags` for the newer format of the realtime bitmap's inode (`XFS_DIFLAG_NEWRTBM`).
const NEW_REALTIME_BITMAP: u16 = 1 << 2;
/// Size of an empty shortform directory whose parent has a 32-bit number, in bytes.
const EMPTY_DIRECTORY_SIZE: u64 = 6;

impl Layout {
    /// Returns the first chunk of inodes.
    pub(super) fn inode_chunk(&self) -> Vec<u8> {
        let size = self.geometry.inode_size();
        let mut chunk = vec![0; size * self.inodes_made() as usize];
        let first = self.superblock.rootino.get();
        for (slot, ino) in chunk.chunks_exact_mut(size).zip(first..) {
            put16(slot, 0, inode::MAGIC);
            slot[4] = 3;
            put32(slot, inode::NEXT_UNLINKED_OFFSET, u32::MAX);
            put64(slot, 152, ino);
            slot[160..176].copy_from_slice(&self.geometry.meta_uuid);
            if ino - first < u64::from(INODES_USED) {
                let made = self.used_inode(slot, Ino(ino), ino - first);
                slot.copy_from_slice(made.as_bytes());
            }
            inode::seal_slot(slot);
        }
        chunk
    }

    /// Returns inode number `nth` of the chunk: root directory, realtime bitmap, realtime summary.
    fn used_inode(&self, slot: &[u8], ino: Ino, nth: u64) -> Inode {
        let mut inode = Inode::from_slot(slot);
        let (file_type, permissions) = match nth {
            0 => (FileType::Directory, self.root.permissions),
            _ => (FileType::Regular, 0),
        };
        inode.reset(file_type, permissions, 0);
        inode.set_flags2(self.new_inode_flags2());
        inode.set_nlink(1);
        for time in [Time::Access, Time::Modify, Time::Change, Time::Create] {
            inode.set_time(time, self.root.time);
        }
        inode.bump_changecount();
        match nth {
            0 => self.fill_root(&mut inode, ino),
            1 => {
                inode.set_flags(NEW_REALTIME_BITMAP);
                // In this inode the access time contains the sequence number for allocations on the realtime device,
                // initially 0.
                inode.as_mut_bytes()[32..40].fill(0);
                self.fill_space_inode(&mut inode, SpaceFile::Bitmap);
            }
            _ => self.fill_space_inode(&mut inode, SpaceFile::Summary),
        }
        inode
    }

    /// Returns the flags of new inodes.
    fn new_inode_flags2(&self) -> u64 {
        let features = &self.geometry.features;
        let flag = |feature, bit| if features.incompat(feature) { bit } else { 0 };
        flag(Incompat::BIGTIME, flags2::BIGTIME) | flag(Incompat::NREXT64, flags2::NREXT64)
    }

    /// Sets the attributes of the root that new files inherit.
    fn set_inherited(&self, inode: &mut Inode) {
        let from = self.root.inherited;
        let flag = |is_set: bool, bit: u16| if is_set { bit } else { 0 };
        inode.set_flags(
            flag(from.realtime, flags::RTINHERIT)
                | flag(from.extent_blocks != 0, flags::EXTSZINHERIT)
                | flag(from.project != 0, flags::PROJINHERIT),
        );
        inode.set_extent_size_hint(from.extent_blocks);
        inode.set_projid(from.project);
        let flag = |is_set: bool, bit: u64| if is_set { bit } else { 0 };
        let own =
            flag(from.dax, flags2::DAX) | flag(from.cow_extent_blocks != 0, flags2::COWEXTSIZE);
        inode.set_flags2(inode.flags2() | own);
        if from.cow_extent_blocks != 0 {
            inode.set_cow_extent_size_hint(from.cow_extent_blocks);
        }
    }

    /// Makes an inode the root: a directory without entries that is its own parent.
    fn fill_root(&self, inode: &mut Inode, ino: Ino) {
        inode.set_nlink(2);
        inode.set_uid(self.root.uid);
        inode.set_gid(self.root.gid);
        self.set_inherited(inode);
        inode.set_format(Fork::Data, Format::Local);
        inode.set_size(EMPTY_DIRECTORY_SIZE);
        // Number of entries, number of 64-bit entries, then the parent. Group 0 has 32-bit numbers.
        put32(inode.as_mut_bytes(), CORE_SIZE_V3 + 2, ino.0 as u32);
    }
}
