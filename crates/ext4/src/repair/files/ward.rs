//! What all that mends files shares within one round: the image as it is seen, what was done before, and free space.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use check::{Code, Finding};
use repair::{Action, Staging};
use vfs::Result;

use super::draft::Draft;
use super::map::Map;
use super::patient::Patient;
use crate::check::scene::Scene;
use crate::format::address::Block;
use crate::format::inode::Inode;
use crate::repair::Job;

/// Times that the same was mended before the sternest way is taken.
const PATIENCE: u32 = 4;

/// The image in the staging, as one kind of fix sees it.
pub(super) struct Ward<'j> {
    pub(super) job: &'j Job,
    pub(super) scene: Scene,
    /// Whether the scene knows what is in use.
    is_surveyed: bool,
    /// Where free space is looked for next: a cluster.
    next: u64,
    /// How often each code was mended of each inode.
    before: HashMap<(u64, &'static str), u32>,
}

impl<'j> Ward<'j> {
    /// `None` if there is no superblock.
    pub(super) fn new(job: &'j Job) -> Result<Option<Self>> {
        let Some(scene) = Scene::open(Arc::clone(&job.staging) as _, &job.options)? else {
            return Ok(None);
        };
        let mut before = HashMap::new();
        job.staging.for_each_action(|action| {
            if let (Some(code), Some(inode)) = (action.code, action.place.inode) {
                *before.entry((inode, code.name)).or_default() += 1;
            }
        });
        Ok(Some(Self { job, scene, is_surveyed: false, next: 0, before }))
    }

    /// As [`Self::new`], and knowing what is in use.
    pub(super) fn surveyed(job: &'j Job) -> Result<Option<Self>> {
        let ward = Self::new(job)?;
        Ok(ward.map(|mut ward| {
            ward.survey();
            ward
        }))
    }

    pub(super) fn staging(&self) -> &'j Staging {
        &self.job.staging
    }

    /// Whether mending this as usual did not help.
    pub(super) fn is_stubborn(&self, ino: u32, code: &'static Code) -> bool {
        self.before.get(&(ino.into(), code.name)).is_some_and(|count| *count >= PATIENCE)
    }

    /// Learns what is in use, if that is not known yet.
    pub(super) fn survey(&mut self) {
        if !self.is_surveyed {
            self.scene.survey();
            self.is_surveyed = true;
        }
    }

    pub(super) fn block_size(&self) -> usize {
        self.scene.geometry().block_size() as usize
    }

    /// The inode of a number; `None` if there is no such inode, or the device fails.
    pub(super) fn patient(&self, ino: u32) -> Option<Patient> {
        Patient::read(&self.scene, ino)
    }

    /// Counts as in use also what damaged maps lead to, and those that share parts with others: the check does not
    /// look into them, but they are still to be read.
    pub(super) fn claim_all(&mut self) {
        self.survey();
        let scene = &self.scene;
        scene.for_each_slot(&mut |ino, slot| {
            let inode = Inode::from_slot(slot);
            let is_used = inode.links_count() > 0 || scene.is_orphan(ino);
            let Some(patient) = Patient::read(scene, ino).filter(|_| is_used) else { return };
            let map = Map::read(scene, &patient);
            let runs = map.runs.iter().map(|run| (run.start, u64::from(run.len)));
            for (start, len) in runs.chain(map.nodes.iter().map(|node| (*node, 1))) {
                scene.used().insert_range(scene.clusters(start, len), |_| {});
            }
        });
    }

    /// Whether any of these blocks is claimed by others, too.
    pub(super) fn shares(&mut self, blocks: &[Block]) -> bool {
        if !self.is_surveyed {
            self.claim_all();
        }
        let is_shared = |block: &Block| {
            let cluster = self.scene.clusters(*block, 1).start;
            self.scene.shared().is_some_and(|shared| shared.contains(cluster))
        };
        blocks.iter().any(is_shared)
    }

    /// Takes a free cluster, whose first block this is. `None` if there is none, or nobody knows.
    pub(super) fn take_cluster(&mut self) -> Option<Block> {
        if !self.job.is_all_known {
            return None;
        }
        if !self.is_surveyed {
            self.claim_all();
        }
        let limit = self.scene.used().limit();
        let found = self.find_free(self.next..limit).or_else(|| self.find_free(0..limit))?;
        self.scene.used().insert(found);
        self.next = found + 1;
        Some(self.scene.block_of(found))
    }

    /// Whether so many clusters can be taken.
    pub(super) fn has_free(&mut self, count: u64) -> bool {
        if !self.is_surveyed {
            self.claim_all();
        }
        let limit = self.scene.used().limit();
        let mut next = 0;
        let found = (0..count).all(|_| {
            let found = self.find_free(next..limit);
            found.inspect(|cluster| next = cluster + 1).is_some()
        });
        found && self.job.is_all_known
    }

    fn find_free(&self, clusters: Range<u64>) -> Option<u64> {
        let (used, geometry) = (self.scene.used(), self.scene.geometry());
        let mut cluster = clusters.start;
        let mut of_uninit = None;
        while cluster < clusters.end {
            if cluster.is_multiple_of(64) && used.word(cluster / 64) == u64::MAX {
                cluster += 64;
                continue;
            }
            if !used.contains(cluster) {
                let block = self.scene.block_of(cluster);
                let is_whole = geometry.contains(block, geometry.cluster_blocks().into());
                let group = geometry.group_of(block);
                // Groups that nothing was written to yet are the last choice.
                if is_whole && !self.scene.is_block_uninit(group) {
                    return Some(cluster);
                }
                if is_whole && of_uninit.is_none() {
                    of_uninit = Some(cluster);
                }
                if self.scene.is_block_uninit(group) {
                    let after = geometry.first_block(group).plus(geometry.blocks_per_group.into());
                    cluster = self.scene.clusters(after, 1).start.max(cluster + 1);
                    continue;
                }
            }
            cluster += 1;
        }
        of_uninit
    }

    /// Writes a draft as a step. Returns whether there is one.
    pub(super) fn end(&self, draft: Draft, actions: Vec<Action>) -> Result<bool> {
        Ok(draft.apply(self.staging())?
            && self.staging().end_step(actions).map_err(vfs::Error::Device)?)
    }

    /// The byte of a block.
    pub(super) fn byte_of(&self, block: Block) -> u64 {
        self.scene.geometry().byte_of(block)
    }
}

/// Findings by the inode they are of, those of none left out.
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
