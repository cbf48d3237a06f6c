//! Extended attributes: in the inode, in a block that inodes may share, and values in separate inodes.

use engine::Corruption;
use vfs::FileType;
use vfs::check::{Code, Finding};

use super::codes::{
    ACL, ENCRYPTION_CONTEXT, XATTR_BLOCK, XATTR_CHECKSUM, XATTR_ENTRY, XATTR_HASH, XATTR_INODE,
    XATTR_VALUE,
};
use super::context::{Context, InodeUnderCheck};
use super::inode::AttributeSpace;
use super::survey::Scanner;
use crate::format::address::Block;
use crate::format::encryption;
use crate::format::features::Incompat;
use crate::format::inode::{GOOD_OLD_INODE_SIZE, Inode, Time, flags};
use crate::format::xattr::{
    self, Area, AttributeName, INDEX_SYSTEM, Value, XattrEntry, entry_hash, entry_hash_signed,
    is_acl_index,
};

/// Location of attributes.
#[derive(Clone, Copy)]
struct Home<'h> {
    subject: &'h InodeUnderCheck,
    /// The attribute block; `None` for the inode.
    block: Option<Block>,
    /// True if references to values are counted here. For a shared block they are counted once.
    counts: bool,
}

impl Home<'_> {
    fn finding(&self, code: &'static Code) -> Finding {
        let finding = Finding::new(code).of_inode(self.subject.ino.into());
        match self.block {
            Some(block) => finding.at_block(block.0),
            None => finding,
        }
    }
}

impl Scanner<'_, '_> {
    /// Checks the attributes of an inode.
    pub(super) fn attributes(&mut self, subject: &InodeUnderCheck, slot: &[u8]) -> AttributeSpace {
        let mut space = AttributeSpace::default();
        let extra = usize::from(subject.inode.extra_isize());
        let tail = slot.get(GOOD_OLD_INODE_SIZE + extra..).filter(|_| extra > 0);
        match tail.map(Area::in_inode) {
            Some(Ok(Some(area))) => {
                let home = Home { subject, block: None, counts: true };
                self.context.check_area(area, home, &mut space);
            }
            Some(Err(damage)) => {
                space.is_damaged = true;
                self.context.tell_damage(subject.ino, XATTR_INODE, &damage);
            }
            Some(Ok(None)) | None => {}
        }
        if let Some(block) = self.attribute_block(subject) {
            space.has_block = true;
            self.check_attribute_block(subject, block, &mut space);
        }
        space
    }

    fn check_attribute_block(
        &self,
        subject: &InodeUnderCheck,
        block: Block,
        space: &mut AttributeSpace,
    ) {
        let context = self.context;
        let is_first = context.claims.meet_attributes(block);
        if is_first {
            context.claim(subject.ino, context.claims.clusters(block, 1));
        } else {
            context.references.share(block);
            let features = &context.params.sb.features;
            // The contents were already checked, but references and policies count for each inode.
            if !features.incompat(Incompat::EA_INODE) && !subject.has(flags::ENCRYPT) {
                return;
            }
        }
        let Some(bytes) = context.block(block) else {
            space.is_damaged = true;
            return;
        };
        let tell = |code, damage: &Corruption| {
            let finding = Finding::of_damage(code, damage).of_inode(subject.ino.into());
            context.tell(finding.at_block(block.0));
        };
        if let Err(damage) = xattr::verify_block_structure(&bytes) {
            space.is_damaged = true;
            if is_first {
                tell(XATTR_BLOCK, &damage);
            }
            return;
        }
        if is_first {
            let seed = context.params.checksums.then_some(context.params.sb.checksum_seed);
            if let Err(damage) = xattr::verify_block(&bytes, block, seed) {
                tell(XATTR_CHECKSUM, &damage);
            }
            context.references.own(block, xattr::block_refcount(&bytes));
        }
        let home = Home { subject, block: Some(block), counts: is_first };
        context.check_area(Area::in_block(&bytes), home, space);
        if is_first {
            context.check_block_hash(&bytes, home);
        }
    }
}

impl Context<'_> {
    /// Checks that values do not overlap, that names are unique and in order, and each attribute by itself.
    fn check_area(&self, area: Area<'_>, home: Home<'_>, space: &mut AttributeSpace) {
        let mut values: Vec<(usize, usize)> = Vec::new();
        let mut names: Vec<(u8, usize, &[u8])> = Vec::new();
        for entry in area.entries() {
            names.push((entry.name_index, entry.name.len(), entry.name));
            if let Value::Here(value) = entry.value
                && !value.is_empty()
            {
                let start = value.as_ptr().addr();
                values.push((start, start + xattr::value_size(value.len())));
            }
            self.check_entry(&entry, home, space);
        }
        if !area.has_room_for_values() {
            self.tell(home.finding(XATTR_ENTRY).detail("a value runs past the end"));
        }
        values.sort_unstable();
        if values.windows(2).any(|pair| pair[0].1 > pair[1].0) {
            self.tell(home.finding(XATTR_ENTRY).detail("two values overlap"));
        }
        if home.block.is_none() {
            names.sort_unstable();
        }
        // Lookups in blocks expect this order.
        if let Some(pair) = names.windows(2).find(|pair| pair[0] >= pair[1]) {
            let problem =
                if pair[0] == pair[1] { "it is a duplicate" } else { "it is out of order" };
            self.tell(home.finding(XATTR_ENTRY).named(pair[1].2).detail(problem));
        }
    }

    fn check_entry(&self, entry: &XattrEntry<'_>, home: Home<'_>, space: &mut AttributeSpace) {
        let name = AttributeName { index: entry.name_index, suffix: entry.name };
        let is_nameless = entry.name.is_empty() && !is_acl_index(entry.name_index);
        if is_nameless || entry.name_index == 0 && home.block.is_some() {
            self.tell(home.finding(XATTR_ENTRY).named(entry.name).detail("it has no such name"));
        }
        if entry.name.contains(&0) {
            self.tell(
                home.finding(XATTR_ENTRY).named(entry.name).detail("its name has a zero byte"),
            );
        }
        if (entry.name_index, entry.name) == encryption::NAME {
            space.has_context = true;
            self.check_context(entry, home, space);
        }
        match entry.value {
            Value::Here(value) => {
                if name == AttributeName::INLINE_DATA && home.block.is_none() {
                    space.inline = Some(value.len());
                }
                let is_hashed = home.block.is_some() || entry.hash != 0;
                if is_hashed && home.counts {
                    self.check_hash(entry, value, home);
                }
                if is_acl_index(entry.name_index) && xattr::acl_to_linux(value).is_none() {
                    self.tell(home.finding(ACL).named(entry.name));
                }
            }
            Value::Inode { ino, size } => {
                let cluster =
                    u64::from(self.geometry().block_size()) << self.geometry().cluster_blocks_log;
                space.values += 1;
                space.value_units += u64::from(size).next_multiple_of(cluster) / 512;
                self.check_reference(entry, (ino, size), home);
            }
        }
        let is_own =
            entry.name_index == INDEX_SYSTEM && entry.name == AttributeName::INLINE_DATA.suffix;
        if is_own && home.block.is_some() {
            self.tell(
                home.finding(XATTR_ENTRY).named(entry.name).detail("it belongs into the inode"),
            );
        }
    }

    /// Checks the encryption context.
    fn check_context(&self, entry: &XattrEntry<'_>, home: Home<'_>, space: &mut AttributeSpace) {
        let Value::Here(value) = entry.value else { return };
        match encryption::read(value) {
            encryption::Context::Known(policy) => space.policy = Some(policy),
            encryption::Context::Unknown => {}
            encryption::Context::Damaged if home.subject.has(flags::ENCRYPT) => {
                let found = format!("version {:?}, {} bytes", value.first(), value.len());
                let expected = "version 1 in 28 bytes, or version 2 in 40";
                self.tell(home.finding(ENCRYPTION_CONTEXT).mismatch(expected, found));
            }
            encryption::Context::Damaged => {}
        }
    }

    fn check_hash(&self, entry: &XattrEntry<'_>, value: &[u8], home: Home<'_>) {
        let expected = entry_hash(entry.name, value);
        if entry.hash != expected && entry.hash != entry_hash_signed(entry.name, value) {
            let show = |hash| format!("{hash:#010x}");
            let finding = home.finding(XATTR_HASH).named(entry.name);
            self.tell(finding.mismatch(show(expected), show(entry.hash)));
        }
    }

    fn check_block_hash(&self, bytes: &[u8], home: Home<'_>) {
        let (computed, stored) = xattr::block_hashes(bytes);
        // A block without a hash is valid; it just cannot be found for sharing.
        if computed != stored && stored != 0 {
            let show = |hash| format!("{hash:#010x}");
            let finding = home.finding(XATTR_HASH).field("h_hash");
            self.tell(finding.mismatch(show(computed), show(stored)));
        }
    }

    /// Checks that an attribute's value is in the inode that the entry names.
    fn check_reference(&self, entry: &XattrEntry<'_>, (ino, size): (u32, u32), home: Home<'_>) {
        let tell = |detail: &str| {
            let finding = home.finding(XATTR_VALUE).named(entry.name);
            self.tell(finding.detail(format!("its value is in inode {ino}: {detail}")));
        };
        if !self.params.sb.features.incompat(Incompat::EA_INODE) {
            return tell("the feature ea_inode is off");
        }
        if ino < self.params.sb.first_ino || ino > self.params.sb.inodes_count {
            return tell("the inode does not exist or is reserved");
        }
        let Some(slot) = self.slot(ino) else { return };
        let holder = Inode::from_slot(&slot);
        let is_file = holder.file_type() == Some(FileType::Regular) && holder.links_count() > 0;
        if !is_file || !holder.has_flag(flags::EA_INODE) || holder.has_flag(flags::INLINE_DATA) {
            return tell("which does not store an attribute value");
        }
        if holder.size() != u64::from(size) {
            return tell("which has another size");
        }
        let referrer = home.subject;
        let is_plain = holder.time(Time::Modify).sec as u64 & 0xffff_ffff
            == u64::from(referrer.ino)
            && holder.generation() == referrer.inode.generation();
        if home.counts {
            self.references.value(ino, is_plain);
        }
        let hash = holder.value_hash().to_le_bytes();
        let hashes = [entry_hash(entry.name, &hash), entry_hash_signed(entry.name, &hash)];
        if !is_plain && home.counts && !hashes.contains(&entry.hash) {
            self.tell(home.finding(XATTR_HASH).named(entry.name));
        }
    }
}
