//! Realtime groups: their files in the metadata directory, the owners of their blocks according to their trees, and the
//! superblock on the realtime device.
//!
//! The owners of blocks are those of a device with the groups of the section as allocation groups.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use disk::DeviceRole;
use engine::Corruption;
use vfs::Ino;
use vfs::check::Finding;

use super::super::codes::{self, TreeCodes};
use super::super::context::Context;
use super::super::diagnose;
use super::super::inodes::Inodes;
use super::super::metadir;
use super::super::owners::{Claim, Owners};
use super::super::tree::{TreeOwner, TreeWalk, Visitor};
use super::group_files::{GroupFiles, Groups};
use super::used::UsedExtents;
use crate::btree::Tree;
use crate::btree::records::{RefcountRecord, RmapRecord, RtRefcountTree, RtRmapTree, rmap_owner};
use crate::format::address::{AgNumber, Block};
use crate::format::features::RoCompat;
use crate::format::geometry::Geometry;
use crate::format::inode::{Fork, Inode};
use crate::format::metafile::{MetafileType, group_path};
use crate::format::realtime::{RawRealtimeSuperblock, Realtime};

/// Returns the types of the files that each group has.
fn types(geometry: &Geometry) -> impl Iterator<Item = MetafileType> + use<> {
    // Zones are written sequentially, so they need no search for free space.
    let has_space_files = geometry.realtime.is_none_or(|it| !it.is_zoned());
    let has_rmap = geometry.features.ro_compat(RoCompat::RMAPBT);
    let has_refcount = geometry.features.ro_compat(RoCompat::REFLINK);
    let all = [
        (MetafileType::RtBitmap, has_space_files),
        (MetafileType::RtSummary, has_space_files),
        (MetafileType::RtRmap, has_rmap),
        (MetafileType::RtRefcount, has_refcount),
    ];
    all.into_iter().filter(|(_, has)| *has).map(|(metafile_type, _)| metafile_type)
}

impl UsedExtents {
    /// Returns an empty set; `None` for images without a realtime section. Reads the trees of realtime groups.
    pub(in super::super) fn new(inodes: &Inodes<'_>) -> Option<Self> {
        let realtime = inodes.ctx.geometry.realtime?;
        Some(Self::of(realtime, Groups::read(inodes, &realtime, Owners::new), None))
    }

    /// Returns a set that lists all claims of blocks of groups, for an image whose trees of groups are empty. Blocks of
    /// files that may share some may have several owners. `None` without groups.
    pub(in super::super) fn listing(inodes: &Inodes<'_>) -> Option<Self> {
        let realtime = inodes.ctx.geometry.realtime?;
        let all = (0..realtime.groups()).collect();
        let listing = |geometry: &Geometry| Owners::listing(geometry, all, Vec::new());
        let groups = Groups::read(inodes, &realtime, listing)?;
        if groups.geometry.features.ro_compat(RoCompat::REFLINK) {
            let numbers = (0..realtime.groups()).map(AgNumber);
            numbers.for_each(|group| groups.owners.note_sharing_unknown(group));
        }
        Some(Self::of(realtime, Some(groups), None))
    }
}

/// Returns the readable records about some inodes in the reverse maps of groups.
pub(in super::super) fn mapped_of(inodes: &Inodes<'_>, wanted: &HashSet<u64>) -> Vec<Claim> {
    let owners = |geometry: &Geometry| Owners::searching(geometry, wanted.clone(), Vec::new());
    let realtime = inodes.ctx.geometry.realtime.as_ref();
    let groups = realtime.and_then(|realtime| Groups::read(inodes, realtime, owners));
    groups.map(|groups| groups.owners.into_claims().1).unwrap_or_default()
}

impl Groups {
    /// Finds the files of all groups, and reads their trees. `owners` returns the set for the geometry of the realtime
    /// device. Returns `None` for a section without groups. Damage is reported when the inodes are visited.
    pub(super) fn read(
        inodes: &Inodes<'_>,
        realtime: &Realtime,
        owners: impl FnOnce(&Geometry) -> Owners,
    ) -> Option<Self> {
        let geometry = inodes.ctx.geometry.of_realtime_device()?;
        let mut found: HashMap<Vec<u8>, (Ino, Inode)> = metadir::walk(inodes)
            .into_iter()
            .filter(|file| file.inode.is_metadata())
            .map(|file| (file.path, (file.ino, file.inode)))
            .collect();
        let mut files_of = |group| {
            let types = types(&inodes.ctx.geometry);
            let files = types.filter_map(|metafile_type| {
                let file = found.remove(group_path(group, metafile_type).as_bytes())?;
                (file.1.metafile_type() == metafile_type).then_some((metafile_type, file))
            });
            files.collect()
        };
        let files: Vec<GroupFiles> = (0..realtime.groups()).map(&mut files_of).collect();
        let is_map_unknown = files.iter().map(|_| AtomicBool::default()).collect();
        let is_zoned = realtime.is_zoned();
        let mapped_blocks = is_zoned.then(|| files.iter().map(|_| AtomicU64::default()).collect());
        let owners = owners(&geometry);
        let groups = Self { geometry, owners, files, is_map_unknown, mapped_blocks };
        if realtime.has_superblock() {
            groups.claim(0, 0, realtime.extent_blocks(), rmap_owner::FS);
        }
        diagnose::quietly(inodes, |quiet| groups.read_trees(quiet));
        Some(groups)
    }

    /// Reads the trees of all groups: references first, because they say which blocks may have several owners.
    fn read_trees(&self, quiet: &Inodes<'_>) {
        let features = &self.geometry.features;
        for (group, files) in (0..).map(AgNumber).zip(&self.files) {
            let visitor = Records { groups: self, group, met: HashSet::new(), is_wrong: false };
            let fork_of = |metafile_type| {
                files.get(&metafile_type).map(|(ino, inode)| (*ino, inode.fork(Fork::Data)))
            };
            let refcounts = fork_of(MetafileType::RtRefcount);
            let has_refcounts = features.ro_compat(RoCompat::REFLINK);
            if has_refcounts
                && !visitor.read::<RtRefcountTree>(quiet, codes::RTREFCOUNTBT, refcounts)
            {
                self.owners.note_sharing_unknown(group);
            }
            let visitor = Records { groups: self, group, met: HashSet::new(), is_wrong: false };
            let maps = fork_of(MetafileType::RtRmap);
            if !visitor.read::<RtRmapTree>(quiet, codes::RTRMAPBT, maps) {
                self.is_map_unknown[group.0 as usize].store(true, Ordering::Relaxed);
            }
        }
    }

    /// Reports files that groups lack.
    pub(super) fn check_files(&self, ctx: &Context<'_>) {
        for (group, files) in self.files.iter().enumerate() {
            for missing in types(&ctx.geometry).filter(|it| !files.contains_key(it)) {
                let finding = Finding::new(codes::REALTIME_FILE).field(missing.name());
                ctx.found(finding.detail(format!("realtime group {group} does not have it")));
                ctx.note_gap();
            }
        }
    }

    /// Reports zones whose counter of used blocks differs from the reverse map.
    pub(super) fn check_used(&self, ctx: &Context<'_>) {
        let Some(mapped_blocks) = &self.mapped_blocks else { return };
        for ((group, files), mapped) in self.files.iter().enumerate().zip(mapped_blocks) {
            let Some((ino, inode)) = files.get(&MetafileType::RtRmap) else { continue };
            if self.is_map_unknown[group].load(Ordering::Relaxed) {
                continue;
            }
            let mapped = mapped.load(Ordering::Relaxed);
            let used = u64::from(inode.zone_used_blocks());
            if used != mapped {
                let finding = Finding::new(codes::REALTIME_RMAP).of_inode(ino.0);
                let finding = finding.field("di_used_blocks").detail(format!("zone {group}"));
                ctx.found(finding.mismatch(mapped, used));
            }
        }
    }
}

/// Reads the records of a tree of a group.
struct Records<'g> {
    groups: &'g Groups,
    group: AgNumber,
    met: HashSet<u64>,
    /// True if a record is outside of the group.
    is_wrong: bool,
}

impl Records<'_> {
    /// Reads a tree, given its inode and its root. Returns whether all of it was read.
    fn read<T: Tree>(
        mut self,
        quiet: &Inodes<'_>,
        codes: TreeCodes,
        root: Option<(Ino, &[u8])>,
    ) -> bool
    where
        Self: Visitor<T>,
    {
        let Some((ino, fork)) = root else { return false };
        let walk = TreeWalk::<T, _>::new(quiet.ctx, codes, TreeOwner::Inode(ino.0), &mut self);
        let found = walk.of_fork(fork);
        !found.is_broken && !self.is_wrong
    }

    fn is_within(&mut self, start: u32, len: u32) -> bool {
        let group_len = self.groups.geometry.ag_len(self.group);
        let is_within = len > 0 && start.checked_add(len).is_some_and(|end| end <= group_len);
        self.is_wrong |= !is_within;
        is_within
    }
}

impl Visitor<RtRefcountTree> for Records<'_> {
    fn block(&mut self, block: Block) -> bool {
        self.met.insert(block.0)
    }

    fn record(&mut self, record: RefcountRecord) {
        let RefcountRecord { start, cow, len, .. } = record;
        if !self.is_within(start.0, len) {
            return;
        }
        if cow {
            self.groups.claim(self.group.0, start.0, len, rmap_owner::COW);
        } else {
            self.groups.owners.share(self.group, &record);
        }
    }
}

impl Visitor<RtRmapTree> for Records<'_> {
    fn block(&mut self, block: Block) -> bool {
        self.met.insert(block.0)
    }

    fn record(&mut self, record: RmapRecord) {
        let RmapRecord { start, len, owner, offset } = record;
        if self.is_within(start.0, len) {
            let ag = self.group.0;
            if let Some(mapped) = &self.groups.mapped_blocks {
                mapped[ag as usize].fetch_add(len.into(), Ordering::Relaxed);
            }
            self.groups.owners.mapped(&Claim { ag, start: start.0, len, owner, offset });
        }
    }
}

/// Checks the superblock on the realtime device, if that is given.
pub(super) fn check_superblock(ctx: &Context<'_>) {
    if ctx.device.part_len(DeviceRole::Realtime).is_none() {
        return;
    }
    let mut block = vec![0; ctx.geometry.block_size()];
    if !ctx.read_bytes(DeviceRole::Realtime.start(), &mut block) {
        return;
    }
    let tell = |field: &'static str, expected: String, found: String| {
        let finding = Finding::new(codes::REALTIME_SUPERBLOCK).field(field);
        ctx.found(finding.mismatch(expected, found));
    };
    let raw = match RawRealtimeSuperblock::parse(&block) {
        Ok(Some(raw)) => raw,
        Ok(None) => {
            let damage = Corruption::new("realtime superblock", "wrong magic number");
            return ctx.damage(codes::REALTIME_SUPERBLOCK, &damage, None);
        }
        Err(damage) => return ctx.damage(codes::REALTIME_SUPERBLOCK, &damage, None),
    };
    let sb = &ctx.sb.raw;
    let shown = |uuid: [u8; 16]| format!("{:032x}", u128::from_be_bytes(uuid));
    for (field, expected, found) in
        [("rsb_uuid", sb.uuid, raw.uuid), ("rsb_meta_uuid", ctx.geometry.meta_uuid, raw.meta_uuid)]
    {
        if expected != found {
            tell(field, shown(expected), shown(found));
        }
    }
    if raw.fname != sb.fname {
        let shown = |label: &[u8]| String::from_utf8_lossy(label).into_owned();
        tell("rsb_fname", shown(&sb.fname), shown(&raw.fname));
    }
    if raw.pad.get() != 0 {
        tell("rsb_pad", "0".to_owned(), raw.pad.to_string());
    }
    let rest = &block[size_of::<RawRealtimeSuperblock>()..];
    if rest.iter().any(|byte| *byte != 0) {
        tell("rest of the block", "zeros".to_owned(), "other bytes".to_owned());
    }
}
