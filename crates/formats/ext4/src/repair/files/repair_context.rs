//! Shared state of the repairs of files in one round: the image, earlier repairs, and free space.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use operations::repair::{Action, Staging};
use vfs::check::{Code, Finding};
use vfs::{FileType, Result};

use super::draft::Draft;
use super::inode_draft::InodeDraft;
use super::map::Map;
use crate::check::checked_image::CheckedImage;
use crate::format::address::Block;
use crate::format::dirent;
use crate::format::inode::Inode;
use crate::repair::RepairJob;

/// Number of equal repairs of an inode after which the strictest repair is used.
const REPAIR_ROUNDS_MAX: u32 = 4;

/// The image in the staging, as seen by one fix.
pub(super) struct RepairContext<'j> {
    pub(super) job: &'j RepairJob,
    pub(super) checked: CheckedImage,
    /// True if the checked contains the blocks and inodes in use.
    is_surveyed: bool,
    /// Cluster from which to search for free space.
    next: u64,
    /// Number of earlier repairs by inode and code.
    before: HashMap<(u64, &'static str), u32>,
    /// See [`Self::entry_types`].
    entry_types: Option<HashMap<u32, u8>>,
}

impl<'j> RepairContext<'j> {
    /// Returns `None` if there is no superblock.
    pub(super) fn new(job: &'j RepairJob) -> Result<Option<Self>> {
        let Some(checked) = CheckedImage::open(Arc::clone(&job.staging) as _, &job.options)? else {
            return Ok(None);
        };
        let mut before = HashMap::new();
        job.staging.for_each_action(|action| {
            if let (Some(code), Some(inode)) = (action.code, action.place.inode) {
                *before.entry((inode, code.name)).or_default() += 1;
            }
        });
        Ok(Some(Self { job, checked, is_surveyed: false, next: 0, before, entry_types: None }))
    }

    /// Like [`Self::new`], but also surveys the blocks and inodes in use.
    pub(super) fn surveyed(job: &'j RepairJob) -> Result<Option<Self>> {
        let context = Self::new(job)?;
        Ok(context.map(|mut context| {
            context.survey();
            context
        }))
    }

    pub(super) fn staging(&self) -> &'j Staging {
        &self.job.staging
    }

    /// Returns whether repeated repairs of this finding did not help.
    pub(super) fn is_stubborn(&self, ino: u32, code: &'static Code) -> bool {
        self.before.get(&(ino.into(), code.name)).is_some_and(|count| *count >= REPAIR_ROUNDS_MAX)
    }

    /// Surveys the blocks and inodes in use, unless that was done already.
    pub(super) fn survey(&mut self) {
        if !self.is_surveyed {
            self.checked.survey();
            self.is_surveyed = true;
        }
    }

    /// Returns the types that directory entries state, by inode. Regular files and directories are left out, because
    /// few repairs need it; attribute values are included. All directories are read once.
    pub(super) fn entry_types(&mut self) -> &HashMap<u32, u8> {
        let (job, is_surveyed) = (self.job, self.is_surveyed);
        let checked = &self.checked;
        self.entry_types.get_or_insert_with(|| {
            if is_surveyed {
                return entry_types(checked);
            }
            // The clusters in use must not be known before `claim_all`.
            let other = CheckedImage::open(Arc::clone(&job.staging) as _, &job.options);
            other.ok().flatten().map_or_else(HashMap::new, |mut other| {
                other.survey();
                entry_types(&other)
            })
        })
    }

    pub(super) fn block_size(&self) -> usize {
        self.checked.geometry().block_size() as usize
    }

    /// Returns an inode. Returns `None` if there is no such inode, or if the device fails.
    pub(super) fn subject(&self, ino: u32) -> Option<InodeDraft> {
        InodeDraft::read(&self.checked, ino)
    }

    /// Marks the blocks of damaged maps and below shared map nodes as in use, too. The check does not walk them, but
    /// later repairs still read them.
    pub(super) fn claim_all(&mut self) {
        self.survey();
        let checked = &self.checked;
        checked.for_each_slot(&mut |ino, slot| {
            let inode = Inode::from_slot(slot);
            let is_used = inode.links_count() > 0 || checked.is_orphan(ino);
            let Some(subject) = InodeDraft::read(checked, ino).filter(|_| is_used) else { return };
            let map = Map::read(checked, &subject);
            let runs = map.runs.iter().map(|run| (run.start, u64::from(run.len)));
            for (start, len) in runs.chain(map.nodes.iter().map(|node| (*node, 1))) {
                checked.used().insert_range(checked.clusters(start, len), |_| {});
            }
        });
    }

    /// Returns whether any of these blocks has several claims.
    pub(super) fn shares(&mut self, blocks: &[Block]) -> bool {
        if !self.is_surveyed {
            self.claim_all();
        }
        let is_shared = |block: &Block| {
            let cluster = self.checked.clusters(*block, 1).start;
            self.checked.shared().is_some_and(|shared| shared.contains(cluster))
        };
        blocks.iter().any(is_shared)
    }

    /// Allocates a free cluster and returns its first block. Returns `None` if there is none, or if not everything in
    /// use is known.
    pub(super) fn take_cluster(&mut self) -> Option<Block> {
        if !self.job.is_all_known {
            return None;
        }
        if !self.is_surveyed {
            self.claim_all();
        }
        let limit = self.checked.used().limit();
        let found = self.find_free(self.next..limit).or_else(|| self.find_free(0..limit))?;
        self.checked.used().insert(found);
        self.next = found + 1;
        Some(self.checked.block_of(found))
    }

    /// Returns whether `count` clusters can be allocated.
    pub(super) fn has_free(&mut self, count: u64) -> bool {
        if !self.is_surveyed {
            self.claim_all();
        }
        let limit = self.checked.used().limit();
        let mut next = 0;
        let found = (0..count).all(|_| {
            let found = self.find_free(next..limit);
            found.inspect(|cluster| next = cluster + 1).is_some()
        });
        found && self.job.is_all_known
    }

    fn find_free(&self, clusters: Range<u64>) -> Option<u64> {
        let (used, geometry) = (self.checked.used(), self.checked.geometry());
        let mut cluster = clusters.start;
        let mut of_uninit = None;
        while cluster < clusters.end {
            if cluster.is_multiple_of(64) && used.word(cluster / 64) == u64::MAX {
                cluster += 64;
                continue;
            }
            if !used.contains(cluster) {
                let block = self.checked.block_of(cluster);
                let is_whole = geometry.contains(block, geometry.cluster_blocks().into());
                let group = geometry.group_of(block);
                // Groups with an uninitialised block bitmap are the last choice.
                if is_whole && !self.checked.is_block_uninit(group) {
                    return Some(cluster);
                }
                if is_whole && of_uninit.is_none() {
                    of_uninit = Some(cluster);
                }
                if self.checked.is_block_uninit(group) {
                    let after = geometry.first_block(group).plus(geometry.blocks_per_group.into());
                    cluster = self.checked.clusters(after, 1).start.max(cluster + 1);
                    continue;
                }
            }
            cluster += 1;
        }
        of_uninit
    }

    /// Writes a draft as a step. Returns whether the step was made.
    pub(super) fn end(&self, draft: Draft, actions: Vec<Action>) -> Result<bool> {
        Ok(draft.apply(self.staging())?
            && self.staging().end_step(actions).map_err(vfs::Error::Device)?)
    }

    /// Returns the byte offset of a block.
    pub(super) fn byte_of(&self, block: Block) -> u64 {
        self.checked.geometry().byte_of(block)
    }
}

/// See [`RepairContext::entry_types`].
fn entry_types(checked: &CheckedImage) -> HashMap<u32, u8> {
    let usual = [FileType::Regular, FileType::Directory].map(dirent::file_type_code);
    let is_listed = |code: u8| !usual.contains(&code);
    let mut types = HashMap::new();
    checked.for_each_entry(&mut |_, entry| {
        let known = checked.known(entry.inode);
        if known.is_some_and(|known| known.is_nameless || is_listed(known.type_code)) {
            types.entry(entry.inode).or_insert(entry.file_type);
        }
    });
    types
}

/// Groups findings by inode. Skips findings without one.
pub(super) fn by_inode<'f>(findings: &[&'f Finding]) -> Vec<(u32, Vec<&'f Finding>)> {
    let mut all: Vec<(u32, &Finding)> = Vec::new();
    for finding in findings {
        if let Some(ino) = finding.place.inode.and_then(|ino| u32::try_from(ino).ok()) {
            all.push((ino, finding));
        }
    }
    all.sort_by_key(|(ino, _)| *ino);
    all.chunk_by(|one, two| one.0 == two.0)
        .map(|chunk| (chunk[0].0, chunk.iter().map(|(_, finding)| *finding).collect()))
        .collect()
}
