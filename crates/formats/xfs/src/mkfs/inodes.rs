//! The first inodes.

use vfs::{FileType, Ino};

use super::layout::Layout;
use crate::format::address::{AgIno, AgNumber};
use crate::format::attr::leaf::parent_value;
use crate::format::attr::{flags, shortform};
use crate::format::bytes::{put16, put32, put64};
use crate::format::dir::file_type_code;
use crate::format::features::Incompat;
use crate::format::inode::{self, Fork, ForkFormat, Inode, Time, flags as inode_flags, flags2};
use crate::format::metafile::{MetafileType, RTGROUPS_DIRECTORY};
use crate::format::realtime::space::SpaceFile;
use crate::xattr::forkoff;

/// Flag in `di_flags` for the newer format of the realtime bitmap's inode (`XFS_DIFLAG_NEWRTBM`).
const NEW_REALTIME_BITMAP: u16 = 1 << 2;
/// Byte offset of the first entry after `.` and `..` in a directory's first data block.
const FIRST_ENTRY: usize = 0x60;
/// Name of the attribute of the root directory for preventive maintenance, in the namespace `trusted`.
const AUTOFSCK_NAME: &[u8] = b"xfs:autofsck";

/// An inode of the file system itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Own {
    RootDirectory,
    RealtimeBitmap,
    RealtimeSummary,
    /// The root of the metadata directory.
    MetadataRoot,
    /// The directory `rtgroups` below it.
    RealtimeGroups,
}

impl Layout {
    /// Returns the inodes of the file system itself in a group, in their order.
    fn own_inodes(&self, ag: AgNumber) -> &'static [Own] {
        match self.metadir_ag {
            None => &[Own::RootDirectory, Own::RealtimeBitmap, Own::RealtimeSummary],
            Some(AgNumber(0)) => &[Own::RootDirectory, Own::MetadataRoot, Own::RealtimeGroups],
            Some(_) if ag.0 == 0 => &[Own::RootDirectory, Own::MetadataRoot],
            Some(_) => &[Own::RealtimeGroups],
        }
    }

    /// Returns the number of inodes in use in a group with a chunk.
    pub(super) fn inodes_used(&self, ag: AgNumber) -> u32 {
        self.own_inodes(ag).len() as u32
    }

    /// Returns the directory `rtgroups`.
    fn realtime_groups_ino(&self, ag: AgNumber) -> Ino {
        let nth = self.own_inodes(ag).iter().position(|own| *own == Own::RealtimeGroups);
        let first = self.first_inode(ag);
        self.geometry.ino(ag, AgIno(first.0 + nth.unwrap_or_default() as u32))
    }

    /// Returns the chunk of inodes of a group.
    pub(super) fn inode_chunk(&self, ag: AgNumber) -> Vec<u8> {
        let size = self.geometry.inode_size();
        let mut chunk = vec![0; size * self.inodes_made() as usize];
        let Ino(first) = self.geometry.ino(ag, self.first_inode(ag));
        let mut own = self.own_inodes(ag).iter();
        for (slot, ino) in chunk.chunks_exact_mut(size).zip(first..) {
            put16(slot, 0, inode::MAGIC);
            slot[4] = 3;
            put32(slot, inode::NEXT_UNLINKED_OFFSET, u32::MAX);
            put64(slot, 152, ino);
            slot[160..176].copy_from_slice(&self.geometry.meta_uuid);
            if let Some(own) = own.next() {
                let made = self.used_inode(slot, Ino(ino), *own);
                slot.copy_from_slice(made.as_bytes());
            }
            inode::seal_slot(slot);
        }
        chunk
    }

    fn used_inode(&self, slot: &[u8], ino: Ino, own: Own) -> Inode {
        let mut inode = Inode::from_slot(slot);
        let (file_type, permissions) = match own {
            Own::RootDirectory => (FileType::Directory, self.root.permissions),
            Own::MetadataRoot | Own::RealtimeGroups => (FileType::Directory, 0),
            Own::RealtimeBitmap | Own::RealtimeSummary => (FileType::Regular, 0),
        };
        inode.reset(file_type, permissions, 0);
        inode.set_flags2(self.new_inode_flags2());
        inode.set_nlink(1);
        for time in [Time::Access, Time::Modify, Time::Change, Time::Create] {
            inode.set_time(time, self.root.time);
        }
        inode.bump_changecount();
        match own {
            Own::RootDirectory => self.fill_root(&mut inode, ino),
            Own::RealtimeBitmap => {
                inode.set_flags(NEW_REALTIME_BITMAP);
                // In this inode the access time contains the sequence number for allocations on the realtime device,
                // initially 0.
                inode.as_mut_bytes()[32..40].fill(0);
                self.fill_space_inode(&mut inode, SpaceFile::Bitmap);
            }
            Own::RealtimeSummary => self.fill_space_inode(&mut inode, SpaceFile::Summary),
            Own::MetadataRoot => self.fill_metadata_root(&mut inode, ino),
            Own::RealtimeGroups => self.fill_realtime_groups(&mut inode),
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
            flag(from.realtime, inode_flags::RTINHERIT)
                | flag(from.extent_blocks != 0, inode_flags::EXTSZINHERIT)
                | flag(from.project != 0, inode_flags::PROJINHERIT),
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
        inode.set_uid(self.root.uid);
        inode.set_gid(self.root.gid);
        self.set_inherited(inode);
        if let Some(autofsck) = self.root.autofsck {
            let boundary = forkoff::highest(inode);
            let value = autofsck.value().as_bytes();
            add_attribute(inode, boundary, flags::ROOT, AUTOFSCK_NAME, value);
        }
        fill_directory(inode, ino, None);
    }

    /// Makes an inode the root of the metadata directory, which contains `rtgroups`.
    fn fill_metadata_root(&self, inode: &mut Inode, ino: Ino) {
        inode.set_metadata(MetafileType::Directory);
        let child = self.realtime_groups_ino(self.metadir_ag.unwrap_or(AgNumber(0)));
        fill_directory(inode, ino, Some((RTGROUPS_DIRECTORY, child)));
    }

    /// Makes an inode the empty directory `rtgroups`.
    fn fill_realtime_groups(&self, inode: &mut Inode) {
        inode.set_metadata(MetafileType::Directory);
        let parent = Ino(self.superblock.metadirino.get());
        if self.geometry.features.incompat(Incompat::PARENT) {
            let (name, value) = (RTGROUPS_DIRECTORY.as_bytes(), parent_value(parent.0, 0));
            add_attribute(inode, forkoff::OF_KERNELS, flags::PARENT, name, &value);
        }
        fill_directory(inode, parent, None);
    }
}

/// Makes an inode a directory of the short form, with at most one directory in it. The parent's number has 32 bits.
fn fill_directory(inode: &mut Inode, parent: Ino, child: Option<(&str, Ino)>) {
    inode.set_nlink(2 + u32::from(child.is_some()));
    inode.set_format(Fork::Data, ForkFormat::Local);
    // If one number has 64 bits, all take as many.
    let is_large = child.is_some_and(|(_, ino)| ino.0 > u32::MAX.into());
    let number = |ino: Ino| ino.0.to_be_bytes()[if is_large { 0 } else { 4 }..].to_vec();
    // Number of entries, number of 64-bit numbers, then the parent.
    let mut contents = vec![u8::from(child.is_some()), u8::from(is_large)];
    contents.extend(number(parent));
    if let Some((name, ino)) = child {
        // Length of the name, its position in the data block that the directory may become, name, type, inode.
        contents.push(name.len() as u8);
        contents.extend_from_slice(&(FIRST_ENTRY as u16).to_be_bytes());
        contents.extend_from_slice(name.as_bytes());
        contents.push(file_type_code(FileType::Directory));
        contents.extend(number(ino));
    }
    inode.set_size(contents.len() as u64);
    inode.fork_mut(Fork::Data)[..contents.len()].copy_from_slice(&contents);
}

/// Adds the only attribute to an inode without attributes. `boundary` is the size of its data fork.
fn add_attribute(inode: &mut Inode, boundary: usize, namespace: u8, name: &[u8], value: &[u8]) {
    inode.set_forkoff_bytes(boundary);
    inode.set_format(Fork::Attr, ForkFormat::Local);
    let fork = inode.fork_mut(Fork::Attr);
    shortform::init(fork);
    let is_added = shortform::append(fork, shortform::HEADER_SIZE, namespace, name, value);
    debug_assert!(is_added, "the fork has room for one attribute");
}
