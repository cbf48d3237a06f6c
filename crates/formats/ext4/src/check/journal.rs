//! Checks of the journal's inode and superblock.

use disk::DeviceRole;
use vfs::check::Finding;
use vfs::{Error, Result};

use super::codes::{JOURNAL_INODE, JOURNAL_PENDING, JOURNAL_SUPERBLOCK, SUPERBLOCK_FIELD};
use super::context::Context;
use crate::format::features::{Compat, Incompat};
use crate::format::jbd2::{BLOCKS_MIN, FAST_COMMIT_BLOCKS_DEFAULT, JournalSuperblock};
use crate::format::superblock::uuid_text;
use crate::log::{self, JournalMap};

impl Context<'_> {
    /// Checks the journal's inode and superblock.
    ///
    /// # Errors
    /// `Unsupported` for a journal on another device that is missing, or with unknown features.
    pub(super) fn check_journal(&self) -> Result<()> {
        let sb = &self.params.sb;
        let is_external = sb.has_external_journal();
        if sb.raw.journal_uuid != [0; 16] && !is_external {
            self.tell(Finding::new(SUPERBLOCK_FIELD).field("journal_uuid").detail("it is not 0"));
        }
        if !sb.features.compat(Compat::HAS_JOURNAL) {
            self.check_no_journal();
            return Ok(());
        }
        log::refuse_unused(&*self.device, sb)?;
        if is_external && self.ignores_journal && self.device.part_len(DeviceRole::Log).is_none() {
            return Ok(());
        }
        if sb.raw.journal_inum == 0 && !is_external {
            self.tell(Finding::new(JOURNAL_INODE).detail("the superblock has no journal"));
            return Ok(());
        }
        match JournalMap::read(&*self.device, sb) {
            Ok(Some(map)) => return self.check_journal_superblock(&map),
            Ok(None) => {}
            Err(Error::Corrupt(damage)) => self.tell(Finding::of_damage(JOURNAL_INODE, &damage)),
            Err(error @ Error::Unsupported(_)) => return Err(error),
            Err(error) => self.tell(Finding::new(JOURNAL_INODE).detail(error.to_string())),
        }
        Ok(())
    }

    fn check_journal_superblock(&self, map: &JournalMap) -> Result<()> {
        let mut block = vec![0; self.block_size()];
        let place = map.place_of(map.superblock()).map(|(offset, _)| offset);
        let is_read = place.is_some_and(|offset| self.device.read_at(offset, &mut block).is_ok());
        if !is_read {
            self.tell(Finding::new(JOURNAL_SUPERBLOCK).detail("it cannot be read"));
            return Ok(());
        }
        let block_number = match map.is_external() {
            // A block of the journal device has no number in the image.
            true => None,
            false => Some(place.unwrap_or(0) >> self.geometry().block_size_log),
        };
        let at = |finding: Finding| match block_number {
            Some(block) => finding.at_block(block),
            None => finding,
        };
        match JournalSuperblock::parse(&block, map.blocks()) {
            Ok(journal) => return self.check_journal_fields(map, &journal, &at),
            Err(error @ Error::Unsupported(_)) => return Err(error),
            Err(Error::Corrupt(damage)) => {
                self.tell(at(Finding::of_damage(JOURNAL_SUPERBLOCK, &damage)));
            }
            Err(error) => self.tell(Finding::new(JOURNAL_SUPERBLOCK).detail(error.to_string())),
        }
        Ok(())
    }

    /// Checks the fields of a valid journal superblock. `at` adds its location to a finding.
    fn check_journal_fields(
        &self,
        map: &JournalMap,
        journal: &JournalSuperblock,
        at: &dyn Fn(Finding) -> Finding,
    ) -> Result<()> {
        if journal.start.is_some() && !self.params.sb.features.incompat(Incompat::RECOVER) {
            self.tell(at(Finding::new(JOURNAL_PENDING)));
        }
        let errno = journal.raw.errno.get();
        if errno != 0 {
            let finding = at(Finding::new(JOURNAL_PENDING));
            self.tell(finding.field("errno").mismatch(0, errno as i32));
        }
        self.check_fast_commits(journal);
        if map.is_external() {
            return self.check_external(map, journal);
        }
        let users = journal.raw.users_count();
        if users > 1 {
            let finding = at(Finding::new(JOURNAL_SUPERBLOCK));
            self.tell(finding.field("nr_users").mismatch(1, users));
        }
        Ok(())
    }

    /// Checks the position of the log, and the users of a journal on another device. Kernels refuse any other number
    /// than one.
    fn check_external(&self, map: &JournalMap, journal: &JournalSuperblock) -> Result<()> {
        match log::check_external(map, journal) {
            Ok(()) => {}
            Err(Error::Corrupt(damage)) => {
                self.tell(Finding::of_damage(JOURNAL_SUPERBLOCK, &damage));
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        let finding = || Finding::new(JOURNAL_SUPERBLOCK);
        let (own, user) = (&self.params.sb.raw.uuid, journal.raw.user());
        if journal.raw.users_count() == 0 {
            self.tell(finding().field("nr_users").mismatch(1, 0));
        } else if user != *own {
            self.tell(finding().field("users").mismatch(uuid_text(own), uuid_text(&user)));
        }
        Ok(())
    }

    /// If the fast-commit area is still to be reserved at the next mount, checks that the journal has room for it.
    /// Otherwise kernels refuse the mount.
    fn check_fast_commits(&self, journal: &JournalSuperblock) {
        let blocks = match journal.raw.num_fc_blks.get() {
            0 => FAST_COMMIT_BLOCKS_DEFAULT,
            blocks => blocks,
        };
        let least = BLOCKS_MIN.saturating_add(blocks);
        let found = journal.raw.maxlen.get();
        if self.params.sb.features.compat(Compat::FAST_COMMIT) && found < least {
            let finding = Finding::new(SUPERBLOCK_FIELD).field("feature_compat");
            let expected = format!("a journal of {least} blocks for fast_commit");
            self.tell(finding.mismatch(expected, found));
        }
    }

    fn check_no_journal(&self) {
        let sb = &self.params.sb;
        let zero = |field: &'static str, found: u32| {
            if found != 0 {
                self.tell(Finding::new(SUPERBLOCK_FIELD).field(field).mismatch(0, found));
            }
        };
        zero("journal_inum", sb.raw.journal_inum.get());
        zero("journal_dev", sb.raw.journal_dev.get());
        if sb.features.incompat(Incompat::RECOVER) {
            let finding = Finding::new(SUPERBLOCK_FIELD).field("feature_incompat");
            self.tell(finding.mismatch("no recovery flag without a journal", "needs_recovery"));
        }
    }
}
