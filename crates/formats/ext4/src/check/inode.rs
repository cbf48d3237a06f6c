//! Checks of one inode in use: flags, fields, size, contents.

use vfs::FileType;
use vfs::check::Finding;

use super::codes::{
    INLINE_DATA, INODE_BLOCKS, INODE_DELETION_TIME, INODE_FIELD, INODE_FLAGS, INODE_SIZE, SYMLINK,
    XATTR_BLOCK,
};
use super::contents::Claimed;
use super::context::{Context, InodeUnderCheck};
use super::survey::{Scanner, SymlinkTarget, target_problem};
use super::tally::Values;
use crate::format::address::Block;
use crate::format::encryption::Policy;
use crate::format::extent::ExtentNode;
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::inode::{self, I_BLOCK_SIZE, flags};

/// `i_flags`: inode of an AFS server.
const IMAGIC: u32 = 0x2000;
/// Byte range of `obso_faddr`, the address of a fragment. Fragments are not used.
const FADDR: std::ops::Range<usize> = 0x70..0x74;
/// Inode of the blocks reserved for descriptors.
pub(super) const RESIZE_INO: u32 = 7;

/// Space and properties of an inode's attributes.
#[derive(Clone, Copy, Default)]
pub(super) struct AttributeSpace {
    /// True if there is an attribute block.
    pub(super) has_block: bool,
    /// True if there is an encryption context.
    pub(super) has_context: bool,
    /// The encryption policy, if it can be read.
    pub(super) policy: Option<Policy>,
    /// Size of `system.data` in bytes, if it exists.
    pub(super) inline: Option<usize>,
    /// True if the attributes could not be read, so that the other fields are unknown.
    pub(super) is_damaged: bool,
    /// 512-byte units of values in separate inodes. The block count may include them.
    pub(super) value_units: u64,
    /// Number of values in separate inodes.
    pub(super) values: u64,
}

impl Scanner<'_, '_> {
    /// Checks an inode in use.
    pub(super) fn inode(&mut self, subject: &InodeUnderCheck, file_type: FileType, slot: &[u8]) {
        let context = self.context;
        let inode = &subject.inode;
        if inode.dtime() != 0 && !subject.is_orphan {
            let finding = Finding::new(INODE_DELETION_TIME).of_inode(subject.ino.into());
            context.tell(finding.mismatch(0, inode.dtime()));
        }
        self.check_fields(subject, slot);
        let space = self.attributes(subject, slot);
        self.check_flags(subject, file_type, &space);
        if let Some(policy) = space.policy.filter(|_| subject.has(flags::ENCRYPT)) {
            context.policies.lock().insert(subject.ino, policy);
        }
        let claimed = self.contents(subject, file_type, &space, slot);
        self.check_blocks(subject, &space, &claimed);
        let is_mapped = (claimed.end > 0 || claimed.has_nodes) && !subject.has(flags::EXTENTS);
        let needs_extents =
            context.params.sb.features.ro_compat(RoCompat::BIGALLOC) && subject.ino != RESIZE_INO;
        if is_mapped && needs_extents {
            let finding = Finding::new(INODE_FLAGS).of_inode(subject.ino.into()).field("flags");
            context.tell(finding.detail("extents is not set, but bigalloc requires it"));
        }
        if let Some(translator) = subject.translator(context) {
            context.claim(subject.ino, context.claims.clusters(translator, 1));
        }
        if subject.has(flags::EA_INODE) {
            context.check_value(subject, &claimed);
        }
        self.counted.add(context, subject, self.values_to_pay(subject, &space, &claimed));
    }

    fn check_fields(&self, subject: &InodeUnderCheck, slot: &[u8]) {
        let tell = |field: &'static str, expected: &str, found: u32| {
            let finding = Finding::new(INODE_FIELD).of_inode(subject.ino.into()).field(field);
            self.context.tell(finding.mismatch(expected, found));
        };
        let faddr = slot.get(FADDR).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        if faddr != 0 {
            tell("faddr", "0", faddr);
        }
        if subject.has_translator(self.context) && subject.translator(self.context).is_none() {
            tell("translator", "a block of the file system", subject.inode.translator());
        }
        if let Some(at) = inode::early_times(slot).first() {
            tell("times", "an epoch that matches the seconds", slot[*at].into());
        }
        if let Err(most) = inode::check_extra_isize(slot) {
            let expected = format!("a multiple of 4 from 4 to {most}");
            tell("extra_isize", &expected, inode::stored_extra_isize(slot).into());
        }
    }

    /// Checks that flags match the type and the features.
    fn check_flags(&self, subject: &InodeUnderCheck, file_type: FileType, space: &AttributeSpace) {
        let context = self.context;
        let features = &context.params.sb.features;
        let (is_dir, is_file) = (file_type == FileType::Directory, file_type == FileType::Regular);
        let has_map = is_dir || is_file || file_type == FileType::Symlink;
        let wrong = [
            (flags::EXTENTS, features.incompat(Incompat::EXTENTS) && has_map, "extents"),
            (
                flags::INLINE_DATA,
                features.incompat(Incompat::INLINE_DATA) && has_map,
                "inline_data",
            ),
            (flags::INDEX, features.compat(Compat::DIR_INDEX) && is_dir, "index"),
            (flags::CASEFOLD, features.incompat(Incompat::CASEFOLD) && is_dir, "casefold"),
            (flags::ENCRYPT, features.incompat(Incompat::ENCRYPT) && has_map, "encrypt"),
            (flags::VERITY, features.ro_compat(RoCompat::VERITY) && is_file, "verity"),
            (flags::EA_INODE, features.incompat(Incompat::EA_INODE) && is_file, "ea_inode"),
            (IMAGIC, features.compat(Compat::IMAGIC_INODES), "imagic"),
            (flags::IMMUTABLE | flags::APPEND, is_dir || is_file, "immutable or append"),
        ];
        let tell = |detail: String| {
            let finding = Finding::new(INODE_FLAGS).of_inode(subject.ino.into()).field("flags");
            context.tell(finding.detail(detail));
        };
        for (flag, is_allowed, name) in wrong {
            if subject.has(flag) && !is_allowed {
                tell(format!("{name} is set"));
            }
        }
        let inode = subject.inode.flags();
        if inode & flags::EXTENTS != 0 && inode & flags::INLINE_DATA != 0 {
            tell("extents and inline_data are both set".to_owned());
        }
        let is_map = || ExtentNode::parse(subject.inode.i_block(), None).is_ok();
        if inode & (flags::EXTENTS | flags::INLINE_DATA) == flags::INLINE_DATA && is_map() {
            tell("inline_data is set, but the inode has an extent map".to_owned());
        }
        if inode & flags::INDEX != 0 && inode & flags::INLINE_DATA != 0 {
            tell("index and inline_data are both set".to_owned());
        }
        if inode & flags::ENCRYPT != 0 && !space.has_context && !space.is_damaged {
            tell("encrypt is set, but there is no encryption context".to_owned());
        }
    }

    fn contents(
        &mut self,
        subject: &InodeUnderCheck,
        file_type: FileType,
        space: &AttributeSpace,
        slot: &[u8],
    ) -> Claimed {
        if subject.ino == RESIZE_INO && self.context.params.sb.features.compat(Compat::RESIZE_INODE)
        {
            return self.context.check_resize_inode(subject);
        }
        let is_inline = subject.has(flags::INLINE_DATA);
        match file_type {
            FileType::Directory if is_inline => {
                self.check_inline_size(subject, space, Some(true));
                self.add_directory(subject, &[]);
                Claimed::default()
            }
            FileType::Directory => self.claim_directory(subject),
            FileType::Regular if is_inline => {
                // A size beyond the inline data reads as zeros: mke2fs creates such files from holes.
                self.check_inline_size(subject, space, None);
                let most = self.context.largest_mapped();
                if subject.inode.size() > most {
                    self.tell_size(subject, format_args!("at most {most}"));
                }
                Claimed::default()
            }
            FileType::Regular => self.claim_file(subject),
            FileType::Symlink => self.symlink(subject, space, is_inline, slot),
            _ => {
                if subject.inode.size() != 0 {
                    self.tell_size(subject, "0, because it has no contents");
                }
                Claimed::default()
            }
        }
    }

    /// Checks that there is inline data and that it is large enough for the size. With `is_whole`, it must match the
    /// size exactly; `None` ignores the size.
    fn check_inline_size(
        &self,
        subject: &InodeUnderCheck,
        space: &AttributeSpace,
        is_whole: Option<bool>,
    ) {
        if space.is_damaged {
            return;
        }
        let tell = |finding: Finding| self.context.tell(finding.of_inode(subject.ino.into()));
        let size = subject.inode.size();
        let Some(rest) = space.inline else {
            return tell(Finding::new(INLINE_DATA).detail("it has no attribute system.data"));
        };
        let Some(is_whole) = is_whole else { return };
        let room = (I_BLOCK_SIZE + rest) as u64;
        if size > room || is_whole && size != room {
            let expected = if is_whole { room.to_string() } else { format!("at most {room}") };
            tell(Finding::new(INLINE_DATA).field("size").mismatch(expected, size));
        }
    }

    fn symlink(
        &mut self,
        subject: &InodeUnderCheck,
        space: &AttributeSpace,
        is_inline: bool,
        _slot: &[u8],
    ) -> Claimed {
        let size = subject.inode.size();
        let tell = |detail: &str| {
            let finding = Finding::new(SYMLINK).of_inode(subject.ino.into());
            self.context.tell(finding.detail(detail));
        };
        let is_encrypted = subject.has(flags::ENCRYPT);
        if is_inline {
            // A shorter target would be stored in `i_block` without this feature.
            self.check_inline_size(subject, space, Some(true));
            return Claimed::default();
        }
        if size < I_BLOCK_SIZE as u64 {
            // An orphan that is being freed may have size 0.
            if size == 0 && !subject.is_orphan {
                tell("its size is 0");
            } else if subject.has(flags::EXTENTS) {
                tell("its target is in the inode, but its flags say otherwise");
            } else if size > 0
                && let Some(problem) = target_problem(subject.inode.i_block(), size, is_encrypted)
            {
                tell(problem);
            }
            return Claimed::default();
        }
        let claimed = self.claim_symlink(subject);
        match claimed.first {
            _ if claimed.is_cut => {}
            // The block must be mapped in the inode itself, without pointer blocks or tree nodes.
            Some(block)
                if size < self.context.block_size() as u64
                    && claimed.end == 1
                    && !claimed.has_nodes =>
            {
                self.targets.push(SymlinkTarget { block, ino: subject.ino, size, is_encrypted });
            }
            _ if subject.is_orphan => {}
            _ => tell("its target is not in one block"),
        }
        claimed
    }

    pub(super) fn tell_size(&self, subject: &InodeUnderCheck, expected: impl std::fmt::Display) {
        let finding = Finding::new(INODE_SIZE).of_inode(subject.ino.into()).field("size");
        self.context.tell(finding.mismatch(expected, subject.inode.size()));
    }

    /// Compares the block count with the claimed blocks.
    fn check_blocks(&self, subject: &InodeUnderCheck, space: &AttributeSpace, claimed: &Claimed) {
        if claimed.is_cut {
            return;
        }
        let units = self.units(space, claimed);
        let found = subject.inode.blocks_512(self.context.geometry().block_size());
        let translator = subject.translator(self.context).map_or(0, |_| self.units_of(1));
        // Kernels count values in separate inodes, other programs do not. The Hurd counts translators, e2fsck does not.
        let possible = [units, units + space.value_units, units + translator];
        if !possible.contains(&found) {
            let finding = Finding::new(INODE_BLOCKS).of_inode(subject.ino.into()).field("blocks");
            self.context.tell(finding.mismatch(units, found));
        }
    }

    /// Returns the values in other inodes that the owner's quota must include beyond `i_blocks`.
    fn values_to_pay(
        &self,
        subject: &InodeUnderCheck,
        space: &AttributeSpace,
        claimed: &Claimed,
    ) -> Values {
        let found = subject.inode.blocks_512(self.context.geometry().block_size());
        let is_counted = found >= self.units(space, claimed).saturating_add(space.value_units);
        let bytes = if is_counted { 0 } else { space.value_units.saturating_mul(512) };
        Values { count: space.values, bytes }
    }

    /// Returns the 512-byte units of an inode's own clusters.
    fn units(&self, space: &AttributeSpace, claimed: &Claimed) -> u64 {
        self.units_of(claimed.clusters + u64::from(space.has_block))
    }

    fn units_of(&self, clusters: u64) -> u64 {
        let geometry = self.context.geometry();
        clusters << (geometry.cluster_blocks_log + geometry.block_size_log - 9)
    }

    /// Returns the position of an inode's attribute block, if it is valid.
    pub(super) fn attribute_block(&self, subject: &InodeUnderCheck) -> Option<Block> {
        let block = Block(subject.inode.file_acl());
        if block.0 == 0 {
            return None;
        }
        let context: &Context<'_> = self.context;
        if context.geometry().contains(block, 1) && !context.system.overlaps(block, 1) {
            context.has_attribute_block.store(true, std::sync::atomic::Ordering::Relaxed);
            return Some(block);
        }
        let finding = Finding::new(XATTR_BLOCK).of_inode(subject.ino.into()).field("file_acl");
        let expected = format!("a block below {}", context.geometry().blocks_count);
        context.tell(finding.mismatch(expected, block));
        None
    }
}
