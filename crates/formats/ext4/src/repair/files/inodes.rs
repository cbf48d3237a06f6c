//! Repairs single inodes: makes the fields match the contents, as far as that does not depend on other inodes.

use operations::repair::Action;
use vfs::check::{Code, Finding};
use vfs::{FileType, Result, S_IFMT};

use super::attributes::{self, Repaired};
use super::draft::Draft;
use super::inode_draft::{BAD_BLOCKS_INO, InodeDraft};
use super::map::{self, Map};
use super::repair_context::{RepairContext, by_inode};
use super::words;
use crate::check::codes::*;
use crate::format::dirent::{self, INLINE_PARENT_SIZE};
use crate::format::extent::ExtentNode;
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::inode::{self, EXTRA_ISIZE, GOOD_OLD_INODE_SIZE, I_BLOCK_SIZE, flags};
use crate::format::xattr::VALUE_SIZE_MAX;
use crate::repair::RepairJob;
use crate::repair::image::now;

/// Inode of the root directory.
pub(super) const ROOT: u32 = 2;
/// Inode of the blocks reserved for descriptors.
pub(super) const RESIZE_INO: u32 = 7;
/// Offset of `obso_faddr`.
const FADDR: usize = 0x70;
/// `i_flags`: inode of an AFS server.
const IMAGIC: u32 = 0x2000;
/// Maximum number of faults of a real inode with a wrong checksum.
const FAULTS_MAX: usize = 2;

/// Findings that are typical of slots that never contained an inode or were overwritten.
const FAULTS: &[&Code] = &[
    INODE_MODE,
    INODE_FIELD,
    INODE_FLAGS,
    INODE_DELETION_TIME,
    INODE_SIZE,
    INODE_BLOCKS,
    SYMLINK,
    EXTENT_NODE,
    EXTENT_PLACE,
    INDIRECT_PLACE,
    BLOCK_METADATA,
    XATTR_BLOCK,
];

/// Findings about an inode's map.
pub(super) const OF_MAP: &[&Code] = &[
    INODE_FLAGS,
    INODE_MODE,
    EXTENT_NODE,
    EXTENT_CHECKSUM,
    EXTENT_PLACE,
    EXTENT_START,
    EXTENT_UNWRITTEN,
    INDIRECT_PLACE,
];

/// Findings about attributes in an inode.
pub(super) const OF_ATTRIBUTES: &[&Code] = &[
    XATTR_INODE,
    XATTR_BLOCK,
    XATTR_CHECKSUM,
    XATTR_ENTRY,
    XATTR_HASH,
    XATTR_VALUE,
    ACL,
    ENCRYPTION_CONTEXT,
];

/// Repairs inodes.
pub(super) fn repair(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let Some(mut context) = RepairContext::new(job)? else { return Ok(()) };
    let mut all = by_inode(findings);
    // Inodes that refer to values come first: they contain more about the values than the value inodes.
    all.sort_by_key(|(_, findings)| {
        !findings.iter().any(|f| f.code == XATTR_VALUE && f.place.name.is_some())
    });
    for (ino, findings) in all {
        repair_one(&mut context, ino, &findings)?;
    }
    Ok(())
}

/// Makes the root a directory. The file system's other inodes are repaired elsewhere.
pub(super) fn repair_root_only(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let of_root = |finding: &&&Finding| finding.place.inode == Some(ROOT.into());
    let findings: Vec<&Finding> = findings.iter().filter(of_root).copied().collect();
    if findings.is_empty() { Ok(()) } else { repair(job, &findings) }
}

fn repair_one(context: &mut RepairContext<'_>, ino: u32, findings: &[&Finding]) -> Result<()> {
    let Some(subject) = context.subject(ino) else { return Ok(()) };
    let mut case =
        InodeRepair { context, subject, findings, draft: Draft::default(), cleared: None };
    case.treat();
    let InodeRepair { context, subject, draft, cleared, .. } = case;
    let mut draft = draft;
    subject.store(&mut draft);
    let action = |finding: &&Finding| {
        let what = cleared.map_or_else(|| words::of_inode(finding), ToOwned::to_owned);
        Action::about(finding, what)
    };
    context.end(draft, findings.iter().map(action).collect())?;
    Ok(())
}

/// An inode that is being repaired.
pub(super) struct InodeRepair<'c, 'j, 'f> {
    pub(super) context: &'c mut RepairContext<'j>,
    pub(super) subject: InodeDraft,
    findings: &'c [&'f Finding],
    pub(super) draft: Draft,
    /// Report sentence if the inode is freed.
    pub(super) cleared: Option<&'static str>,
}

impl InodeRepair<'_, '_, '_> {
    /// Returns whether there is a finding with one of these codes.
    pub(super) fn has(&self, codes: &[&'static Code]) -> bool {
        self.findings.iter().any(|finding| codes.contains(&finding.code))
    }

    /// Returns whether the file system needs the inode, so that it is recreated instead of freed.
    fn is_own(&self) -> bool {
        let (checked, ino) = (&self.context.checked, self.subject.ino);
        ino == ROOT || checked.is_hidden(ino) && !checked.is_reserved_for_nothing(ino)
    }

    fn treat(&mut self) {
        let ino = self.subject.ino;
        if ino == BAD_BLOCKS_INO {
            return self.repair_bad_blocks();
        }
        let is_free = self.subject.inode.links_count() == 0 && !self.context.checked.is_orphan(ino);
        if is_free && ino != ROOT && !self.revive() {
            return;
        }
        if ino == ROOT {
            self.repair_root();
        } else if self.is_beyond_help() && (!self.is_own() || ino == RESIZE_INO) {
            if !self.is_named_without_contents() {
                self.cleared = Some("The inode is freed, because it is not a valid inode.");
                return self.subject.clear();
            }
            inode_reset(&mut self.subject);
            self.subject.inode.i_block_mut().fill(0);
        }
        if self.has(&[ENCRYPTION_CONTEXT]) && ino != ROOT && !self.is_own() {
            self.cleared = Some("The inode is freed, because no key can decrypt it.");
            return self.subject.clear();
        }
        self.repair_fields();
        self.repair_attributes();
        if self.subject.file_type().is_none() && !self.guess_type() {
            // The check then reports inodes that the file system needs as missing, and they are recreated.
            self.cleared = Some("The inode is freed, because its type cannot be determined.");
            return self.subject.clear();
        }
        self.repair_special_type();
        self.repair_flags();
        if ino == RESIZE_INO {
            return;
        }
        self.repair_contents();
    }

    /// Returns whether the inode has too many faults to be trusted, or earlier repairs did not help.
    pub(super) fn is_beyond_help(&self) -> bool {
        let faults = FAULTS.iter().filter(|code| self.has(&[**code])).count();
        let is_unsealed = self.subject.is_sealed() == Some(false);
        let most = if is_unsealed { FAULTS_MAX } else { 2 * FAULTS_MAX };
        faults > most || self.is_stubborn()
    }

    /// Returns whether earlier repairs did not help.
    fn is_stubborn(&self) -> bool {
        let is_stubborn = |finding: &&Finding| {
            !OF_ATTRIBUTES.contains(&finding.code)
                && self.context.is_stubborn(self.subject.ino, finding.code)
        };
        self.findings.iter().any(is_stubborn)
    }

    /// Returns whether it is a fifo or socket with a right checksum, and an entry states the same type. Nothing else of
    /// such an inode matters.
    fn is_named_without_contents(&mut self) -> bool {
        let file_type = self.subject.file_type();
        let Some(file_type @ (FileType::Fifo | FileType::Socket)) = file_type else { return false };
        self.subject.is_sealed() != Some(false)
            && !self.is_stubborn()
            && self.context.entry_types().get(&self.subject.ino)
                == Some(&dirent::file_type_code(file_type))
    }

    /// Handles an inode without names that was never freed. If it has contents, it gets a link again, so that it goes
    /// to lost+found; otherwise it gets a deletion time. Returns whether it has a link now.
    fn revive(&mut self) -> bool {
        if !self.has(&[INODE_DELETION_TIME]) {
            return false;
        }
        let map = Map::read(&self.context.checked, &self.subject);
        let is_whole = !map.runs.is_empty() && !map.is_damaged && !map.is_unreadable;
        let was_never_freed = self.subject.inode.dtime() == 0 && !self.has(&[INODE_CHECKSUM]);
        if is_whole && self.subject.inode.size() > 0 && was_never_freed {
            self.subject.inode.set_links_count(1);
            return true;
        }
        self.subject.inode.set_dtime(now().max(1));
        false
    }

    /// Makes the root a directory, whatever its inode contains. Its entries are found later.
    fn repair_root(&mut self) {
        let inode = &mut self.subject.inode;
        if !inode.is_dir() {
            inode.set_mode(0o04_0755);
        }
        if inode.links_count() == 0 {
            inode.set_links_count(2);
        }
        if self.is_beyond_help() {
            inode_reset(&mut self.subject);
            map::write_empty(&self.context.checked, &mut self.subject);
        }
    }

    fn repair_fields(&mut self) {
        let is_orphan = self.context.checked.is_orphan(self.subject.ino);
        if self.has(&[INODE_DELETION_TIME]) && !is_orphan || self.subject.ino == ROOT {
            self.subject.inode.set_dtime(0);
        }
        if !self.has(&[INODE_FIELD]) {
            return;
        }
        self.subject.patch(FADDR, &[0; 4]);
        let is_of_hurd = self.context.checked.params().sb.is_of_hurd();
        if is_of_hurd && self.subject.translator(&self.context.checked).is_none() {
            self.subject.inode.set_translator(0);
        }
        for at in inode::early_times(self.subject.bytes()) {
            let extra = self.subject.bytes()[at] & !3;
            self.subject.patch(at, &[extra]);
        }
        let size = usize::from(self.context.checked.geometry().inode_size);
        let most = size - GOOD_OLD_INODE_SIZE;
        if inode::check_extra_isize(self.subject.bytes()).is_err() {
            // Attributes start after the fixed fields, with a magic number.
            let slot = self.subject.bytes();
            let magic = 0xea02_0000_u32.to_le_bytes();
            let found = (4..most)
                .step_by(4)
                .find(|extra| slot[GOOD_OLD_INODE_SIZE + extra..].get(..4) == Some(&magic));
            let extra = found.unwrap_or(usize::from(EXTRA_ISIZE).min(most)) as u16;
            self.subject.patch(GOOD_OLD_INODE_SIZE, &extra.to_le_bytes());
        }
    }

    fn repair_attributes(&mut self) {
        if !self.has(OF_ATTRIBUTES) && !self.has(&[INODE_FIELD]) {
            return;
        }
        let in_block = |finding: &&&Finding| {
            finding.place.block.is_some() || finding.place.field == Some("file_acl")
        };
        let of_attributes =
            self.findings.iter().filter(|finding| OF_ATTRIBUTES.contains(&finding.code));
        let (blocks, inodes): (Vec<&&Finding>, Vec<&&Finding>) = of_attributes.partition(in_block);
        if !inodes.is_empty() {
            if self.subject.has(flags::EA_INODE)
                && self.has(&[XATTR_VALUE])
                && !self.has(&[INODE_SIZE])
            {
                self.repair_value_hash();
            }
            attributes::repair_in_inode(self.context, &mut self.subject, &mut self.draft);
        }
        let is_stubborn =
            blocks.iter().any(|finding| self.context.is_stubborn(self.subject.ino, finding.code));
        if is_stubborn {
            self.subject.inode.set_file_acl(0);
        } else if !blocks.is_empty()
            && let Repaired::Dropped =
                attributes::repair_block(self.context, &mut self.subject, &mut self.draft)
        {
            self.subject.inode.set_file_acl(0);
        }
    }

    /// Sets the hash of a value to that of its contents.
    fn repair_value_hash(&mut self) {
        // A value cannot be in the file system's own blocks; if the inode itself is in them, they would change with the
        // hash.
        let map = Map::read(&self.context.checked, &self.subject);
        if map.runs.iter().any(|run| self.context.checked.is_system(run.start, run.len.into())) {
            return;
        }
        let Some(value) = read_contents(self.context, &self.subject, VALUE_SIZE_MAX.into()) else {
            return;
        };
        let seed = self.context.checked.params().sb.checksum_seed;
        self.subject.inode.set_value_hash(crate::format::xattr::value_hash(seed, &value));
    }

    /// Handles an inode of a wrong type that has the contents of another: a symbolic link with the first block of a
    /// directory, or a device, fifo or socket whose size and block count match a file or directory, or whose inline
    /// data are those of a directory.
    fn repair_special_type(&mut self) {
        let is_wrong = match self.subject.file_type() {
            None | Some(FileType::Regular | FileType::Directory) => false,
            Some(FileType::Symlink) => self.has(&[SYMLINK]),
            Some(_) => {
                self.has(&[INODE_SIZE]) && self.has(&[INODE_BLOCKS]) || self.is_inline_directory()
            }
        };
        if !is_wrong {
            return;
        }
        let before = self.subject.inode.mode();
        let is_link = self.subject.file_type() == Some(FileType::Symlink);
        let is_found = self.guess_type()
            && (self.subject.inode.is_dir() || !is_link && self.has_counted_blocks());
        if !is_found {
            self.subject.inode.set_mode(before);
        }
    }

    /// Returns whether it has blocks, and as many as it says.
    fn has_counted_blocks(&self) -> bool {
        let map = Map::read(&self.context.checked, &self.subject);
        let geometry = self.context.checked.geometry();
        let clusters = map.clusters(&self.context.checked);
        let all = clusters + u64::from(self.subject.inode.file_acl() != 0);
        let units = all << (geometry.cluster_blocks_log + geometry.block_size_log - 9);
        clusters > 0 && units == self.subject.inode.blocks_512(geometry.block_size())
    }

    /// Determines the type of an inode from its contents. Returns `false` if they do not show it.
    fn guess_type(&mut self) -> bool {
        let permissions = self.subject.inode.mode() & !S_IFMT;
        let mut try_mode = |mode: u16| self.subject.inode.set_mode(mode | permissions);
        try_mode(0o10_0000);
        let map = Map::read(&self.context.checked, &self.subject);
        let first = map.place(0).and_then(|place| self.context.checked.block(place));
        let is_own_dot = |bytes: &[u8]| {
            let mut records = dirent::records(bytes);
            let dot = records.next();
            dot.is_some_and(|dot| dot.name == b"." && dot.inode == self.subject.ino)
                && records.next().is_some_and(|record| record.name == b"..")
        };
        if first.as_deref().is_some_and(is_own_dot) || self.is_inline_directory() {
            self.subject.inode.set_mode(0o04_0000 | permissions);
            return true;
        }
        let is_inline = self.subject.has(flags::INLINE_DATA)
            && attributes::inline_rest(&self.subject).is_some();
        let has_map = self.subject.has(flags::EXTENTS) && !map.is_damaged;
        if is_inline || has_map || !map.runs.is_empty() && !map.is_damaged {
            return true;
        }
        let size = self.subject.inode.size();
        let is_target = (1..I_BLOCK_SIZE as u64).contains(&size) && {
            let (target, rest) = self.subject.inode.i_block().split_at(size as usize);
            target.iter().all(|byte| byte.is_ascii_graphic()) && rest.iter().all(|byte| *byte == 0)
        };
        let mode = if is_target { 0o12_0000 } else { 0 };
        self.subject.inode.set_mode(mode | permissions);
        is_target
    }

    /// Returns whether an entry states that it is a directory, and its inline data is two chains of entries.
    fn is_inline_directory(&mut self) -> bool {
        let rest = attributes::inline_rest(&self.subject);
        let Some(rest) = rest.filter(|_| self.subject.has(flags::INLINE_DATA)) else {
            return false;
        };
        let inodes_count = self.context.checked.params().sb.inodes_count;
        let is_chain = |bytes: &[u8]| {
            let records = dirent::records(bytes).filter(|record| record.inode <= inodes_count);
            records.map(|record| record.rec_len).sum::<usize>() == bytes.len()
        };
        is_chain(&self.subject.inode.i_block()[INLINE_PARENT_SIZE..])
            && is_chain(&rest)
            && self.context.entry_types().get(&self.subject.ino)
                == Some(&dirent::file_type_code(FileType::Directory))
    }

    fn repair_flags(&mut self) {
        if !self.has(&[INODE_FLAGS, INODE_MODE, INLINE_DATA]) {
            return;
        }
        let Some(file_type) = self.subject.file_type() else { return };
        let features = self.context.checked.params().sb.features;
        let (is_dir, is_file) = (file_type == FileType::Directory, file_type == FileType::Regular);
        let has_map = is_dir || is_file || file_type == FileType::Symlink;
        let allowed = [
            (flags::EXTENTS, has_map),
            (flags::INLINE_DATA, features.incompat(Incompat::INLINE_DATA) && has_map),
            (flags::INDEX, features.compat(Compat::DIR_INDEX) && is_dir),
            (flags::CASEFOLD, features.incompat(Incompat::CASEFOLD) && is_dir),
            (flags::ENCRYPT, features.incompat(Incompat::ENCRYPT) && has_map),
            (flags::VERITY, features.ro_compat(RoCompat::VERITY) && is_file),
            (flags::EA_INODE, features.incompat(Incompat::EA_INODE) && is_file),
            (IMAGIC, features.compat(Compat::IMAGIC_INODES)),
            (flags::IMMUTABLE | flags::APPEND, is_dir || is_file),
        ];
        // Inline data that is valid as an extent map cannot be distinguished from one, so it is treated as a map.
        let lies_within = self.subject.has(flags::INLINE_DATA) && !self.subject.has(flags::EXTENTS);
        if lies_within && has_map && ExtentNode::parse(self.subject.inode.i_block(), None).is_ok() {
            self.subject.inode.set_flag(flags::EXTENTS, true);
            self.subject.inode.set_flag(flags::INLINE_DATA, false);
        }
        for (flag, is_allowed) in allowed {
            if !is_allowed {
                self.subject.inode.set_flag(flag, false);
            }
        }
        let is_encrypted = self.subject.has(flags::ENCRYPT);
        if is_encrypted && !attributes::has_encryption_context(&self.context.checked, &self.subject)
        {
            self.subject.inode.set_flag(flags::ENCRYPT, false);
        }
        if self.subject.has(flags::INLINE_DATA) && self.subject.has(flags::EXTENTS) {
            let is_inline = attributes::inline_rest(&self.subject).is_some();
            self.subject.inode.set_flag(flags::EXTENTS, !is_inline);
            self.subject.inode.set_flag(flags::INLINE_DATA, is_inline);
        }
        if self.subject.has(flags::INLINE_DATA) {
            self.subject.inode.set_flag(flags::INDEX, false);
        }
    }
}

/// Clears everything of an inode except its type, owner and times.
fn inode_reset(subject: &mut InodeDraft) {
    subject.inode.set_flag(u32::MAX, false);
    subject.inode.set_size(0);
    subject.inode.set_file_acl(0);
    subject.patch(FADDR, &[0; 4]);
}

/// Sets the block count of an inode: `clusters` plus the attribute block. The count may also include values in separate
/// inodes, so a plausible stored count is kept unless it is known to be `wrong`.
pub(super) fn set_blocks(
    context: &RepairContext<'_>,
    subject: &mut InodeDraft,
    clusters: u64,
    wrong: bool,
) {
    let geometry = context.checked.geometry();
    let clusters = clusters + u64::from(subject.inode.file_acl() != 0);
    let units = clusters << (geometry.cluster_blocks_log + geometry.block_size_log - 9);
    let found = subject.inode.blocks_512(geometry.block_size());
    let may_count_values = context.checked.params().sb.features.incompat(Incompat::EA_INODE);
    if wrong || !may_count_values || found < units {
        subject.inode.set_blocks_512(units, geometry.block_size());
    }
}

/// Returns the contents of a file with at most `max` bytes. Holes are zeros. Returns `None` if it is larger or cannot
/// be read.
pub(super) fn read_contents(
    context: &RepairContext<'_>,
    subject: &InodeDraft,
    max: u64,
) -> Option<Vec<u8>> {
    let size = subject.inode.size();
    if size > max {
        return None;
    }
    let map = Map::read(&context.checked, subject);
    let log = context.checked.geometry().block_size_log;
    let mut bytes = vec![0; size.next_multiple_of(1 << log) as usize];
    for run in map.runs.iter().filter(|run| !run.unwritten) {
        for at in 0..run.len {
            let start = ((run.first + at) as usize) << log;
            if let Some(room) = bytes.get_mut(start..start + (1 << log)) {
                room.copy_from_slice(&context.checked.block(run.start.plus(at.into()))?);
            }
        }
    }
    bytes.truncate(size as usize);
    Some(bytes)
}

/// Converts a value inode without an attribute to a regular file, if it has contents or an entry. A file without an
/// entry is later found. Returns whether it did so.
fn becomes_file(context: &mut RepairContext<'_>, subject: &mut InodeDraft) -> bool {
    let map = Map::read(&context.checked, subject);
    let has_contents = !map.runs.is_empty() && subject.inode.size() > 0;
    if map.is_unreadable || !has_contents && !context.entry_types().contains_key(&subject.ino) {
        return false;
    }
    subject.inode.set_flag(flags::EA_INODE, false);
    subject.inode.set_links_count(1);
    // In other inodes, the fields of the count and of the hash are timestamps.
    subject.inode.set_value_refcount(0);
    let time = vfs::Timestamp { sec: now().into(), nsec: 0 };
    for which in [inode::Time::Access, inode::Time::Change, inode::Time::Modify] {
        subject.inode.set_time(which, time);
    }
    true
}

/// Sets the reference counts of value inodes. A value inode without references becomes a file.
pub(super) fn repair_value_references(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let Some(mut context) = RepairContext::new(job)? else { return Ok(()) };
    for (ino, findings) in by_inode(findings) {
        let Some(mut subject) = context.subject(ino) else { continue };
        let count = findings[0].expected.as_ref().and_then(|text| text.parse::<u64>().ok());
        let what = match count {
            None => continue,
            Some(0) if becomes_file(&mut context, &mut subject) => {
                "The inode becomes a regular file, because no attribute refers to it.".to_owned()
            }
            Some(0) => {
                subject.clear();
                "The inode is freed, because no attribute refers to it.".to_owned()
            }
            Some(count) => {
                subject.inode.set_value_refcount(count);
                format!("The reference count of the inode is set to {count}.")
            }
        };
        let mut draft = Draft::default();
        subject.store(&mut draft);
        let actions = findings.iter().map(|finding| Action::about(finding, what.clone()));
        context.end(draft, actions.collect())?;
    }
    Ok(())
}
