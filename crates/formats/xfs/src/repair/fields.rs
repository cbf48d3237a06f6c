//! Repairs inode fields that can be derived from others.

use vfs::{FileType, Ino};

use super::inode::Repairer;
use crate::check::fields::is_next_unlinked_right;
use crate::check::realtime::{file_size, group_file_size};
use crate::format::bytes::{be16, be32, be64, put16, put32, put64};
use crate::format::extent::LEN_MAX;
use crate::format::features::{Incompat, RoCompat};
use crate::format::geometry::Geometry;
use crate::format::inode::{Fork, ForkFormat, Inode, NEXT_UNLINKED_OFFSET, flags, flags2};
use crate::format::metafile::{MetafileType, group_of_path};
use crate::format::realtime::Realtime;

/// `XFS_DIFLAG_NEWRTBM`.
pub(super) const NEWRTBM: u16 = 1 << 2;
/// All known bits of `di_flags`.
const FLAGS: u16 = 0x7fff;

impl Repairer<'_, '_> {
    /// Clears invalid bits of `di_flags2`.
    pub(super) fn flags2(&self, inode: &mut Inode) {
        let geometry = self.geometry();
        if !geometry.features.crc() {
            return;
        }
        let mut found = inode.flags2() & flags2_of(&geometry);
        // With large extent counters, these bytes are zero in an inode without them.
        if geometry.features.incompat(Incompat::NREXT64) && found & flags2::NREXT64 == 0 {
            let is_large = be16(inode.as_bytes(), 80) == 0
                && be64(inode.as_bytes(), 24) != 0
                && be64(inode.as_bytes(), 24) < 1 << 48;
            if is_large {
                found |= flags2::NREXT64;
            }
        }
        if inode.file_type().is_some_and(|t| t != FileType::Regular) {
            found &= !flags2::REFLINK;
        }
        if inode.file_type().is_some_and(|t| !may_have_hints(t)) {
            found &= !(flags2::COWEXTSIZE | flags2::DAX);
        }
        if inode.file_type().is_some_and(|t| !may_have_hints(t)) {
            found &= !flags2::METADATA;
        }
        inode.set_flags2(found);
    }

    /// Repairs the fields that all metadata files have in common. A file without a known type becomes an ordinary one.
    pub(super) fn metadata(&self, inode: &mut Inode, ino: Ino, file_type: FileType) {
        if !inode.is_metadata() {
            return;
        }
        let known = MetafileType::from_number(inode.metatype_number());
        let known =
            known.filter(|known| !matches!(known, MetafileType::Unknown | MetafileType::Directory));
        let path = || {
            let files = self.view.metafiles();
            files.into_iter().find(|(_, file)| *file == ino).map(|(path, _)| path)
        };
        let groups = self.view.superblock().raw.rgcount.get();
        let of_path = || {
            MetafileType::of_path_with_groups(&path()?, groups)
                .filter(|found| *found != MetafileType::Directory)
        };
        // The place decides about files of realtime groups, whose contents are derived.
        let is_of_group = |found: &MetafileType| *found >= MetafileType::RtBitmap;
        let fitting = match file_type {
            FileType::Directory => Some(MetafileType::Directory),
            FileType::Regular => match known {
                Some(known) if !is_of_group(&known) => Some(known),
                _ => of_path().or(known),
            },
            _ => None,
        };
        let Some(fitting) = fitting else { return inode.clear_metadata() };
        inode.set_metadata(fitting);
        if fitting.is_quota() {
            inode.set_size(0);
        }
        if fitting < MetafileType::RtBitmap {
            inode.set_projid(0);
        } else if let Some(group) = path().and_then(|path| group_of_path(&path)) {
            inode.set_projid(group);
        }
        let shared = flags2::COWEXTSIZE | flags2::REFLINK;
        inode.set_flags2(inode.flags2() & !shared);
    }

    /// Returns whether the data of an inode may be on the realtime device.
    pub(super) fn may_be_realtime(&self, ino: Ino, inode: &Inode) -> bool {
        self.geometry().realtime.is_some() && !inode.is_metadata() && !self.view.is_special(ino)
    }

    /// Repairs `di_flags` and the extent size hint. Returns the maximum of hints.
    fn flags(&self, inode: &mut Inode, ino: Ino, file_type: FileType) -> u64 {
        let (geometry, raw) = (self.geometry(), &self.view.superblock().raw);
        let is_dir = file_type == FileType::Directory;
        let dir_only =
            flags::RTINHERIT | flags::PROJINHERIT | flags::NOSYMLINKS | flags::EXTSZINHERIT;
        let mut allowed = FLAGS & if is_dir { !flags::EXTSIZE } else { !dir_only };
        if file_type != FileType::Regular || !self.may_be_realtime(ino, inode) {
            allowed &= !flags::REALTIME;
        }
        if !may_have_hints(file_type) {
            allowed &= !flags::EXTSIZE;
        }
        if ino.0 != raw.realtime_inodes()[0] {
            allowed &= !NEWRTBM;
        }
        let mut found = inode.flags() & allowed;
        let realtime = geometry.realtime.filter(|_| found & flags::REALTIME != 0);
        let most = match realtime {
            Some(_) => LEN_MAX,
            None => u64::from(geometry.ag_blocks / 2).min(LEN_MAX),
        };
        let is_hint = |blocks: u32| {
            let is_whole = |it: Realtime| blocks.is_multiple_of(it.extent_blocks());
            blocks > 0 && u64::from(blocks) <= most && realtime.is_none_or(is_whole)
        };
        let hint_flags = flags::EXTSIZE | flags::EXTSZINHERIT;
        if !is_hint(inode.extent_size_hint()) || found & hint_flags == 0 {
            found &= !hint_flags;
            inode.set_extent_size_hint(0);
        }
        inode.set_flags(found);
        most
    }

    /// Repairs the size of quota files, and the size and the project of files of the realtime section.
    fn of_section(&self, inode: &mut Inode, ino: Ino) {
        let (geometry, raw) = (self.geometry(), &self.view.superblock().raw);
        let layout = geometry.realtime.map(|realtime| realtime.space(0));
        let size = match inode.is_metadata() {
            true => group_file_size(inode.metafile_type(), layout.as_ref(), raw.blocklog),
            false if raw.realtime_inodes().contains(&ino.0) => {
                if layout.is_some() {
                    inode.set_projid(0);
                }
                file_size(raw, layout.as_ref(), ino)
            }
            false if raw.quota_inodes().contains(&ino.0) => Some(0),
            false => None,
        };
        if let Some(size) = size {
            inode.set_size(size);
        }
    }

    /// Repairs fields that can be derived from others.
    pub(super) fn fields(&self, inode: &mut Inode, ino: Ino, file_type: FileType) {
        let geometry = self.geometry();
        self.metadata(inode, ino, file_type);
        let is_metadata = inode.is_metadata();
        let is_dir = file_type == FileType::Directory;
        let most = self.flags(inode, ino, file_type);
        let bytes = inode.as_mut_bytes();
        if bytes[4] >= 2 && !is_metadata {
            put16(bytes, 6, 0);
        }
        if geometry.features.crc() {
            self.flags2(inode);
            let mut found = inode.flags2();
            if !(1..=most).contains(&inode.cow_extent_size_hint().into())
                || found & flags2::COWEXTSIZE == 0
            {
                found &= !flags2::COWEXTSIZE;
                inode.set_cow_extent_size_hint(0);
            }
            inode.set_flags2(found);
            let bytes = inode.as_mut_bytes();
            match found & flags2::NREXT64 != 0 {
                true => put16(bytes, 80, 0),
                false => put64(bytes, 24, 0),
            }
        }
        times(inode);
        if is_dir && inode.nlink() == 1 {
            inode.set_nlink(2);
        }
        if !is_next_unlinked_right(&geometry, ino, inode) {
            put32(inode.as_mut_bytes(), NEXT_UNLINKED_OFFSET, u32::MAX);
        }
        self.of_section(inode, ino);
        if !inode.has_attr_fork() {
            inode.set_format(Fork::Attr, ForkFormat::Extents);
        }
    }
}

fn times(inode: &mut Inode) {
    if inode.flags2() & flags2::BIGTIME != 0 {
        return;
    }
    let bytes = inode.as_mut_bytes();
    let places: &[usize] = if bytes[4] == 3 { &[32, 40, 48, 144] } else { &[32, 40, 48] };
    for at in places {
        if be32(bytes, at + 4) >= 1_000_000_000 {
            put32(bytes, at + 4, 0);
        }
    }
}

pub(super) const fn is_special(file_type: FileType) -> bool {
    !matches!(file_type, FileType::Regular | FileType::Directory | FileType::Symlink)
}

const fn may_have_hints(file_type: FileType) -> bool {
    matches!(file_type, FileType::Regular | FileType::Directory)
}

/// Returns the allowed bits of `di_flags2` in the image.
pub(super) fn flags2_of(geometry: &Geometry) -> u64 {
    let features = &geometry.features;
    let mut allowed = flags2::DAX;
    if features.incompat(Incompat::METADIR) {
        allowed |= flags2::METADATA;
    }
    if features.incompat(Incompat::BIGTIME) {
        allowed |= flags2::BIGTIME;
    }
    if features.incompat(Incompat::NREXT64) {
        allowed |= flags2::NREXT64;
    }
    if features.ro_compat(RoCompat::REFLINK) {
        allowed |= flags2::REFLINK | flags2::COWEXTSIZE;
    }
    allowed
}
