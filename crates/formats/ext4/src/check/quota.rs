//! Quota files: checks their trees, and compares their usage with the counted usage.

use std::collections::{HashMap, HashSet};

use engine::Corruption;
use vfs::check::Finding;

use super::codes::{QUOTA_FILE, QUOTA_USAGE};
use super::context::{Context, InodeUnderCheck};
use super::mapping::{FileExtent, walk};
use super::references::Runs;
use crate::format::features::RoCompat;
use crate::format::quota::{
    BLOCK_SIZE, BLOCK_SIZE_LOG, ENTRIES_PER_BLOCK, INFO_BLOCK, QuotaKind, ROOT_BLOCK, TREE_DEPTH,
    entry_at, leaf_header, parse_info, references,
};

/// Inodes and bytes by id.
type UsageById = HashMap<u32, (u64, u64)>;

/// A quota file that is being read.
struct QuotaFile<'f, 'c> {
    context: &'f Context<'c>,
    runs: Vec<FileExtent>,
    blocks: u32,
    met: HashSet<u32>,
    usage: UsageById,
}

impl Context<'_> {
    /// Checks the quota files and their usage.
    pub(super) fn check_quota(&self) {
        let sb = &self.params.sb;
        if !sb.features.ro_compat(RoCompat::QUOTA) {
            return;
        }
        let counted = self.tally.take();
        let files = [sb.raw.usr_quota_inum, sb.raw.grp_quota_inum, sb.raw.prj_quota_inum];
        for ((kind, ino), counted) in QuotaKind::ALL.into_iter().zip(files).zip(&counted) {
            let Some(slot) = Some(ino.get()).filter(|ino| *ino != 0).and_then(|ino| self.slot(ino))
            else {
                continue;
            };
            let subject = self.subject(ino.get(), &slot);
            match self.read_quota_file(&subject, kind) {
                Ok(usage) if self.tally.is_wanted() => {
                    self.compare_usage(&subject, &usage, counted);
                }
                Ok(_) => {}
                Err(damage) => self.tell_damage(subject.ino, QUOTA_FILE, &damage),
            }
        }
    }

    fn read_quota_file(
        &self,
        subject: &InodeUnderCheck,
        kind: QuotaKind,
    ) -> Result<UsageById, Corruption> {
        let mut runs = Runs::default();
        walk(self, subject, &mut runs);
        let (met, usage) = (HashSet::new(), UsageById::new());
        let mut file = QuotaFile { context: self, runs: runs.all, blocks: 1, met, usage };
        let info = parse_info(&file.block(INFO_BLOCK)?, kind, subject.inode.size())?;
        file.blocks = info.blocks.get();
        file.node(ROOT_BLOCK, 0, 0)?;
        Ok(file.usage)
    }

    fn compare_usage(&self, subject: &InodeUnderCheck, stored: &UsageById, counted: &UsageById) {
        let mut ids: Vec<_> = stored.keys().chain(counted.keys()).copied().collect();
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            let of = |usage: &UsageById| usage.get(&id).copied().unwrap_or_default();
            let (expected, found) = (of(counted), of(stored));
            if expected != found {
                let finding = Finding::new(QUOTA_USAGE).of_inode(subject.ino.into());
                let show = |(inodes, bytes)| format!("{inodes} inodes, {bytes} bytes");
                self.tell(finding.detail(format!("id {id}")).mismatch(show(expected), show(found)));
            }
        }
    }
}

fn bad(problem: &'static str) -> Corruption {
    Corruption::new("quota file", problem)
}

impl QuotaFile<'_, '_> {
    /// Reads a block of the file. Fails if the file does not have it.
    fn block(&self, block: u32) -> Result<Vec<u8>, Corruption> {
        if block >= self.blocks {
            return Err(bad("a pointer is outside the file")
                .mismatch(format_args!("below {}", self.blocks), block));
        }
        let log = self.context.geometry().block_size_log;
        let byte = u64::from(block) << BLOCK_SIZE_LOG;
        let number = (byte >> log) as u32;
        let holds = |run: &&FileExtent| run.first <= number && number - run.first < run.len;
        let run = self.runs.iter().find(holds).ok_or_else(|| bad("it has a hole"))?;
        let place = run.start.plus(u64::from(number - run.first));
        let start = (byte & ((1 << log) - 1)) as usize;
        let bytes = self.context.block(place).ok_or_else(|| bad("it cannot be read"))?;
        Ok(bytes[start..start + BLOCK_SIZE].to_vec())
    }

    /// Reads a node of the tree for the ids that start with `prefix`. Each block may occur once.
    fn node(&mut self, block: u32, level: u32, prefix: u32) -> Result<(), Corruption> {
        if !self.met.insert(block) {
            return Err(bad("two pointers to one block").mismatch("one", block));
        }
        let bytes = self.block(block)?;
        for (index, below) in (0_u32..).zip(references(&bytes)).filter(|(_, below)| *below != 0) {
            if below <= ROOT_BLOCK {
                return Err(bad("a pointer to its first block"));
            }
            let id = prefix << 8 | index;
            if level + 1 < TREE_DEPTH {
                self.node(below, level + 1, id)?;
            } else {
                self.leaf(below, id)?;
            }
        }
        Ok(())
    }

    /// Reads the entry of an id in a leaf.
    fn leaf(&mut self, block: u32, id: u32) -> Result<(), Corruption> {
        let bytes = self.block(block)?;
        let entries = || (0..ENTRIES_PER_BLOCK).filter_map(|index| entry_at(&bytes, index));
        if self.met.insert(block) {
            let (found, used) =
                (leaf_header(&bytes).entries.get(), entries().filter(|e| !e.is_none()).count());
            if usize::from(found) != used {
                return Err(bad("number of entries in a leaf").mismatch(used, found));
            }
        }
        let Some(entry) = entries().find(|entry| entry.id == id && !entry.is_none()) else {
            return Err(bad("the tree has no entry for an id").mismatch(id, "none"));
        };
        self.usage.insert(id, (entry.inodes.get(), entry.space.get()));
        Ok(())
    }
}
