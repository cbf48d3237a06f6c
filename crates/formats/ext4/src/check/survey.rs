//! Reads the inode tables, group by group, from start to end.

use parking_lot::Mutex;
use vfs::check::{Finding, Phase};
use vfs::{FileType, S_IFMT};

use super::codes::{INODE_CHECKSUM, INODE_DELETION_TIME, INODE_MODE, SYMLINK};
use super::context::{Context, InodeUnderCheck};
use super::directories::Directories;
use super::inode::RESIZE_INO;
use super::inodes::{self, InodeState};
use super::tally::ThreadUsage;
use crate::format::address::{Block, Group};
use crate::format::features::Compat;
use crate::format::inode::{self, flags};

/// Inode of the bad block list.
pub(super) const BAD_BLOCKS_INO: u32 = 1;
/// Inode of the root directory.
pub(super) const ROOT: u32 = 2;

/// Inode of the boot loader, which may be a file.
const BOOT_LOADER_INO: u32 = 5;

/// Size of one read of an inode table in bytes.
const READ_BYTES: usize = 512 << 10;

/// Checks all inodes and their claims. Returns the directories.
pub(super) fn survey(context: &Context<'_>) -> Directories {
    let all = Mutex::new(Directories::default());
    vfs::check::each(
        context.threads,
        context.geometry().groups_count.into(),
        Phase::Inodes,
        context.observer,
        || Scanner::new(context),
        |scanner, group| {
            scanner.scan(Group(group as u32));
            all.lock().append(&mut scanner.directories);
            context.tally.add(&mut scanner.counted);
        },
    );
    context.claims.settle_sharing();
    let mut all = all.into_inner();
    all.sort();
    all
}

/// A symbolic link whose target is in a block.
pub(super) struct SymlinkTarget {
    pub(super) block: Block,
    pub(super) ino: u32,
    pub(super) size: u64,
    pub(super) is_encrypted: bool,
}

/// State of a thread.
pub(super) struct Scanner<'s, 'c> {
    pub(super) context: &'s Context<'c>,
    pub(super) directories: Directories,
    pub(super) counted: ThreadUsage,
    /// Links of the current group, to be read in device order.
    pub(super) targets: Vec<SymlinkTarget>,
    bytes: Vec<u8>,
    states: Vec<InodeState>,
}

impl<'s, 'c> Scanner<'s, 'c> {
    fn new(context: &'s Context<'c>) -> Self {
        Self {
            context,
            directories: Directories::default(),
            counted: ThreadUsage::default(),
            targets: Vec::new(),
            bytes: Vec::new(),
            states: Vec::new(),
        }
    }

    fn scan(&mut self, group: Group) {
        let context = self.context;
        let geometry = context.geometry();
        let Some(facts) = context.group(group) else { return };
        let (count, table) = (facts.inodes_to_read(context), facts.desc.inode_table);
        let per_block = geometry.inodes_per_block();
        let piece = (READ_BYTES / context.block_size()).max(1) as u32 * per_block;
        let size = usize::from(geometry.inode_size);
        let mut bytes = std::mem::take(&mut self.bytes);
        let mut first = 0;
        while first < count && !context.observer.is_cancelled() {
            let here = piece.min(count - first);
            bytes.resize(here.div_ceil(per_block) as usize * context.block_size(), 0);
            self.read_table(table.plus(u64::from(first / per_block)), &mut bytes);
            for (index, slot) in (first..first + here).zip(bytes.chunks_exact(size)) {
                self.slot(geometry.ino_of(group, index).0 as u32, index, slot);
            }
            first += here;
        }
        self.bytes = bytes;
        context.inodes.set(group, std::mem::take(&mut self.states));
        self.read_targets();
    }

    /// Reads a piece of a table, block by block if the device fails.
    fn read_table(&self, start: Block, bytes: &mut [u8]) {
        let context = self.context;
        let offset = context.geometry().byte_of(start);
        if context.device.read_at(offset, bytes).is_ok() {
            return;
        }
        for (at, block) in bytes.chunks_mut(context.block_size()).enumerate() {
            if !context.read(start.plus(at as u64), block) {
                block.fill(0);
            }
        }
    }

    fn slot(&mut self, ino: u32, index: u32, slot: &[u8]) {
        let context = self.context;
        let word = |at: usize| u16::from_le_bytes([slot[at], slot[at + 1]]);
        let (mode, links) = (word(0), word(26));
        if ino == BAD_BLOCKS_INO {
            let subject = context.subject(ino, slot);
            if slot.iter().any(|&byte| byte != 0) {
                self.check_checksum(&subject, slot);
            }
            let inode = &subject.inode;
            let owner = [inode.uid(), inode.gid(), u32::from(inode.mode()), u32::from(links)];
            let is_none = owner == [0; 4] && inode.file_acl() == 0;
            if !is_none || subject.has(flags::INLINE_DATA) {
                context.tell_special(ino, "the bad block list is invalid");
            }
            return self.check_bad_blocks(&subject);
        }
        if links == 0 {
            self.check_deletion_time(ino, slot);
        }
        if mode == 0 && links == 0 {
            if slot.iter().any(|&byte| byte != 0) {
                self.check_checksum(&context.subject(ino, slot), slot);
            }
            return;
        }
        let subject = context.subject(ino, slot);
        self.check_checksum(&subject, slot);
        self.check_reserved(&subject);
        if links == 0 && !subject.is_orphan {
            if subject.inode.dtime() == 0 && ino >= context.params.sb.first_ino {
                let finding = Finding::new(INODE_DELETION_TIME).of_inode(ino.into());
                context.tell(finding.mismatch("a time, because it has no directory entry", 0));
            }
            return;
        }
        let file_type = subject.inode.file_type();
        self.states.resize_with(index as usize, InodeState::default);
        self.states.push(InodeState::new(file_type, links, self.facts(&subject)));
        match file_type {
            Some(file_type) => self.inode(&subject, file_type, slot),
            None => {
                let found = format!("{:#o}", mode & S_IFMT);
                let finding = Finding::new(INODE_MODE).of_inode(ino.into()).field("mode");
                context.tell(finding.mismatch("a file type", found));
            }
        }
    }

    /// Checks that an inode that is reserved for an unused feature has no mode, whatever its link count.
    fn check_reserved(&self, subject: &InodeUnderCheck) {
        let ino = subject.ino;
        if ino == ROOT || !self.context.is_reserved_for_nothing(ino) {
            return;
        }
        let is_wrong = match ino {
            BOOT_LOADER_INO => subject.inode.is_dir(),
            _ => subject.inode.mode() != 0,
        };
        if is_wrong {
            self.context.tell_special(ino, "it is reserved and unused");
        }
    }

    /// Checks the deletion time. If it is an inode number, it is the next inode of an orphan list that this inode is
    /// not on. This assumes that the clock was right.
    fn check_deletion_time(&self, ino: u32, slot: &[u8]) {
        let context = self.context;
        let (sb, raw) = (&context.params.sb, &context.params.sb.raw);
        let dtime = slot[inode::DTIME_BYTES].first_chunk().map_or(0, |b| u32::from_le_bytes(*b));
        let is_right = |time: u32| time >= sb.inodes_count;
        // Zero if the file system was never mounted, or if its creator does not set the time.
        let may_be_missing = [raw.mtime.get(), raw.mkfs_time.get()];
        let is_clock_right = is_right(raw.wtime.get())
            && may_be_missing.iter().all(|time| *time == 0 || is_right(*time));
        let is_low = dtime != 0 && dtime < sb.inodes_count && is_clock_right;
        if is_low && !context.orphans.contains(ino.into()) {
            let finding = Finding::new(INODE_DELETION_TIME).of_inode(ino.into());
            context.tell(finding.mismatch("a time", dtime));
        }
    }

    fn check_checksum(&self, subject: &InodeUnderCheck, slot: &[u8]) {
        let Some(seed) = subject.seed else { return };
        let (computed, stored) = inode::slot_checksums(seed, slot);
        if computed != stored {
            let finding = Finding::new(INODE_CHECKSUM).of_inode(subject.ino.into());
            let show = |number| format!("{number:#010x}");
            self.context.tell(finding.mismatch(show(computed), show(stored)));
        }
    }

    fn facts(&self, subject: &InodeUnderCheck) -> u16 {
        let context = self.context;
        let is = |condition: bool, fact: u16| if condition { fact } else { 0 };
        is(subject.has(flags::EA_INODE), inodes::VALUE)
            | is(context.is_hidden(subject.ino), inodes::HIDDEN)
            | is(subject.is_orphan, inodes::ORPHAN)
            | is(subject.has(flags::INDEX), inodes::INDEXED)
            | is(subject.has(flags::ENCRYPT), inodes::ENCRYPTED)
    }

    /// Reads the targets of symbolic links in device order.
    fn read_targets(&mut self) {
        let context = self.context;
        self.targets.sort_unstable_by_key(|target| target.block);
        for target in self.targets.drain(..) {
            let Some(bytes) = context.block(target.block) else { continue };
            if let Some(problem) = target_problem(&bytes, target.size, target.is_encrypted) {
                let finding = Finding::new(SYMLINK).of_inode(target.ino.into());
                context.tell(finding.at_block(target.block.0).detail(problem));
            }
        }
    }
}

/// Returns the fault of a symbolic link's target in `bytes`, if any.
pub(super) fn target_problem(bytes: &[u8], size: u64, is_encrypted: bool) -> Option<&'static str> {
    let len = if is_encrypted {
        2 + u64::from(u16::from_le_bytes([bytes[0], bytes[1]]))
    } else {
        bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len()) as u64
    };
    (len != size || len >= bytes.len() as u64)
        .then_some("the length of the target differs from the size")
}

impl Context<'_> {
    /// Returns whether an inode belongs to the file system itself and must not have a name.
    pub(super) fn is_hidden(&self, ino: u32) -> bool {
        let raw = &self.params.sb.raw;
        // Without the journal: if tune2fs added it to a mounted file system, it is a file with a name.
        let own = [
            raw.usr_quota_inum,
            raw.grp_quota_inum,
            raw.prj_quota_inum,
            self.orphan_file().into(),
            raw.snapshot_inum,
        ];
        ino != ROOT && (ino < self.params.sb.first_ino || own.iter().any(|own| own.get() == ino))
    }

    /// Returns the orphan file's inode; 0 if there is none. Without the feature the field is undefined.
    fn orphan_file(&self) -> u32 {
        let sb = &self.params.sb;
        let has_one = sb.features.compat(Compat::ORPHAN_FILE);
        if has_one { sb.raw.orphan_file_inum.get() } else { 0 }
    }

    /// Returns whether an inode is reserved for a feature that this file system does not have.
    pub(super) fn is_reserved_for_nothing(&self, ino: u32) -> bool {
        let sb = &self.params.sb;
        let raw = &sb.raw;
        let own = [raw.journal_inum, raw.usr_quota_inum, raw.grp_quota_inum, raw.prj_quota_inum];
        let is_resize = ino == RESIZE_INO && sb.features.compat(Compat::RESIZE_INODE);
        ino < sb.first_ino && !is_resize && own.iter().all(|own| own.get() != ino)
    }

    /// Reports a fault of a special inode.
    pub(super) fn tell_special(&self, ino: u32, detail: &str) {
        let finding = Finding::new(super::codes::INODE_SPECIAL).of_inode(ino.into());
        self.tell(finding.detail(detail));
    }

    /// Checks that the inodes that the superblock names exist.
    pub(super) fn check_special_inodes(&self) {
        let is = |ino: u32, file_type| {
            let state = self.inodes.get(ino);
            let code = crate::format::dirent::file_type_code(file_type);
            state.is_some_and(|state| state.type_code() == code)
        };
        if !is(ROOT, FileType::Directory) {
            self.check_left_out(ROOT);
            self.tell_special(ROOT, "the root is not a directory in use");
        }
        let raw = &self.params.sb.raw;
        let files = [
            (raw.journal_inum.get(), "the journal is not a regular file in use"),
            (raw.usr_quota_inum.get(), "the quota file of owners is not a regular file in use"),
            (raw.grp_quota_inum.get(), "the quota file of groups is not a regular file in use"),
            (raw.prj_quota_inum.get(), "the quota file of projects is not a regular file in use"),
            (self.orphan_file(), "the orphan file is not a regular file in use"),
        ];
        for (ino, problem) in files {
            if ino != 0 && !is(ino, FileType::Regular) {
                self.check_left_out(ino);
                self.tell_special(ino, problem);
            }
        }
    }
}
