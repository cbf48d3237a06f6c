//! Rebuilds the reverse maps and the references of realtime groups, and the superblock of the realtime device.
//!
//! The trees of all groups are emptied, and get records of all extents of files. Blocks of the old trees become lost
//! space, which the next round frees. Blocks that were staged for copy on write become free in the same way.

use disk::{BlockDevice, DeviceRole};
use operations::repair::Action;
use operations::{Outcome, RunOperations};
use vfs::check::Finding;
use vfs::{Corruption, Error, Result};

use super::RepairJob;
use super::engine::Session;
use crate::XfsCore;
use crate::btree::records::{RefcountRecord, RmapRecord};
use crate::check::owners::Claim;
use crate::check::references;
use crate::format::address::AgBlock;
use crate::format::features::RoCompat;
use crate::format::inode::{Fork, ForkFormat};
use crate::format::metafile::{MetafileType, group_path};
use crate::format::realtime::RawRealtimeSuperblock;
use crate::inode::Handle;
use crate::op::Op;
use crate::volume::read_superblock;

/// Number of records that one operation adds.
const RECORDS_PER_OP: usize = 1000;

/// Writes the superblock of the realtime device.
pub(super) fn superblock(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let Ok(sb) = read_superblock(&*job.staging) else { return Ok(()) };
    let block = RawRealtimeSuperblock::block(&sb);
    let what = "The superblock of the realtime device is rewritten.";
    let actions = findings.iter().map(|finding| Action::about(finding, what)).collect();
    if job.staging.part_len(DeviceRole::Realtime).is_some() {
        job.write_step(&[(DeviceRole::Realtime.start(), &block)], actions);
    }
    Ok(())
}

/// Rebuilds the trees of all groups.
pub(super) fn rebuild(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let Some(mut session) = Session::open(job) else { return Ok(()) };
    let what = "The trees of realtime groups are rebuilt from the extents of files.";
    let actions = findings.iter().map(|finding| Action::about(finding, what)).collect();
    session.step(actions, |fs| {
        let trees = trees(fs)?;
        fs.atomically(|op| trees.iter().try_for_each(|tree| empty(op, tree)))?;
        fs.engine.checkpoint()?;
        let unknown = || Error::from(Corruption::new("realtime section", "unknown extents"));
        let claims = job.survey()?.realtime_claims().ok_or_else(unknown)?;
        trees.iter().try_for_each(|tree| tree.fill(fs, &claims))
    });
    Ok(())
}

/// The inode with a tree of a group.
struct GroupTree {
    group: u32,
    metafile_type: MetafileType,
    handle: Handle,
}

/// Returns all trees of groups.
fn trees(fs: &XfsCore) -> Result<Vec<GroupTree>> {
    let geometry = &fs.volume.geometry;
    let groups = geometry.realtime.filter(crate::format::realtime::Realtime::has_groups);
    let kinds =
        [(MetafileType::RtRmap, RoCompat::RMAPBT), (MetafileType::RtRefcount, RoCompat::REFLINK)];
    let kinds = kinds.into_iter().filter(|(_, feature)| geometry.features.ro_compat(*feature));
    let of_kind = |(metafile_type, _)| {
        (0..groups.map_or(0, |groups| groups.groups())).map(move |group| {
            let path = group_path(group, metafile_type);
            let missing = || Corruption::new("metadata directory", format!("/{path} is missing"));
            let handle = fs.metafile(&path)?.ok_or_else(missing)?;
            Ok(GroupTree { group, metafile_type, handle })
        })
    };
    kinds.flat_map(of_kind).collect()
}

/// Makes a tree empty. Its blocks remain in use.
fn empty(op: &mut Op<'_>, tree: &GroupTree) -> Outcome<()> {
    let mut handle = tree.handle.clone();
    let inode = &mut handle.inode;
    if inode.fork_format(Fork::Attr) == ForkFormat::Btree
        || inode.fork_format(Fork::Attr) == ForkFormat::Extents && inode.extents(Fork::Attr) > 0
    {
        let damage = Corruption::new("inode", "attributes in blocks").of_inode(handle.ino().0);
        return Err(Error::from(damage).into());
    }
    inode.set_format(Fork::Data, ForkFormat::MetaBtree);
    inode.fork_mut(Fork::Data).fill(0);
    inode.set_nblocks(0);
    op.stage_if_changed(handle, &tree.handle);
    Ok(())
}

impl GroupTree {
    /// Adds the records of the claims of a group to the empty tree.
    fn fill(&self, fs: &XfsCore, claims: &[Claim]) -> Result<()> {
        let from = claims.partition_point(|claim| claim.ag < self.group);
        let of_group = claims[from..].iter().take_while(|claim| claim.ag == self.group);
        if self.metafile_type == MetafileType::RtRefcount {
            let records = references::counted(of_group);
            return self.add(fs, &records, |op, handle, record: &RefcountRecord| {
                op.insert_realtime_reference(handle, *record)
            });
        }
        let may_hide = fs.volume.geometry.features.ro_compat(RoCompat::REFLINK);
        let record = |claim: &Claim| RmapRecord {
            start: AgBlock(claim.start),
            len: claim.len,
            owner: claim.owner,
            offset: claim.offset,
        };
        let records = of_group.map(record).collect::<Vec<_>>();
        self.add(fs, &records, |op, handle, record| op.enter_realtime_in(handle, *record, may_hide))
    }

    /// Adds records, several in an operation.
    fn add<R>(
        &self,
        fs: &XfsCore,
        records: &[R],
        add: impl Fn(&mut Op<'_>, &mut Handle, &R) -> Outcome<()>,
    ) -> Result<()> {
        let ino = self.handle.ino();
        for some in records.chunks(RECORDS_PER_OP) {
            let before = fs.load(ino)?;
            fs.atomically(|op| {
                let mut handle = before.clone();
                some.iter().try_for_each(|record| add(op, &mut handle, record))?;
                op.stage_if_changed(handle, &before);
                Ok(())
            })?;
        }
        Ok(())
    }
}
