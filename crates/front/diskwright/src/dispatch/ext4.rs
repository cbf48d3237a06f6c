//! Open ext2, ext3 and ext4 images.

use std::sync::Arc;

use disk::{BlockDevice, DeviceRole};
use ext4::Ext4;
use ext4::format::features::{Compat, Features, Incompat, RoCompat};
use ext4::format::superblock::{
    STATE_ERROR, STATE_VALID, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock,
};
use operations::RunOperations;
use operations::profile::MeasuresListings;
use vfs::deleted::{DeletedScope, DeletedSink};
use vfs::quota::{LimitChanges, OwnerKind, OwnerUsage, QuotaState};
use vfs::survey::TellsLayout;
use vfs::{Error, FileSystem};

use super::OpenFs;
use crate::image::{Details, ExtDetails, ExtVersion, ImageInfo, ImageState};
use crate::recovery::{RecoverDetails, RecoverReport};

/// Returns the feature that makes the image read-only, if there is one.
pub(super) fn read_only_because(device: &dyn BlockDevice) -> vfs::Result<Option<String>> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).map_err(Error::Device)?;
    Ok(Superblock::parse(&bytes, device.len())?.read_only_because())
}

impl OpenFs for Ext4 {
    fn file_system(&self) -> &(dyn MeasuresListings + 'static) {
        self
    }

    fn layout(&self) -> &dyn TellsLayout {
        self
    }

    fn remarks(&self) -> &[String] {
        (**self).remarks()
    }

    fn info(&self, device: Option<&dyn BlockDevice>) -> vfs::Result<ImageInfo> {
        info(self, device)
    }

    fn recovery(&self) -> RecoverReport {
        let (journal, orphans) = (self.recovered(), self.cleaned_orphans());
        RecoverReport {
            transactions: journal.transactions.into(),
            orphans_freed: orphans.freed.into(),
            details: RecoverDetails::Ext {
                blocks_replayed: journal.blocks_replayed,
                blocks_revoked: journal.blocks_revoked,
                orphans_truncated: orphans.truncated.into(),
                journal_errno: journal.errno,
            },
        }
    }

    #[cfg(feature = "anywhere")]
    fn obfuscate(&self, key: u64, out: &dyn BlockDevice) -> vfs::Result<Vec<String>> {
        (**self).obfuscate(key, out)
    }

    fn checkpoints_closed(&self) -> Option<u64> {
        let engine = self.engine();
        engine.has_log().then(|| engine.checkpoints_closed())
    }

    fn find_deleted(
        &self,
        evidence: &dyn BlockDevice,
        scope: DeletedScope,
        sink: &mut dyn DeletedSink,
    ) {
        ext4::deleted::find(self, evidence, scope, sink);
    }

    fn quota_state(&self, kind: OwnerKind) -> vfs::Result<QuotaState> {
        (**self).quota_state(kind)
    }

    fn for_each_owner(
        &self,
        kind: OwnerKind,
        each: &mut dyn FnMut(&OwnerUsage),
    ) -> vfs::Result<()> {
        (**self).for_each_owner(kind, each)
    }

    fn change_limits(&self, changes: &LimitChanges, now: u64) -> vfs::Result<()> {
        (**self).change_limits(changes, now)
    }

    fn close(self: Arc<Self>) -> vfs::Result<()> {
        Arc::into_inner(self).map_or(Ok(()), Ext4::close)
    }
}

/// Returns the properties of an ext image.
fn info(fs: &Ext4, device: Option<&dyn BlockDevice>) -> vfs::Result<ImageInfo> {
    let sb = fs.superblock_found();
    let is_external = sb.has_external_journal();
    let is_missing = device.is_some_and(|device| device.part_len(DeviceRole::Log).is_none());
    let raw = &sb.raw;
    let totals = fs.statfs()?;
    Ok(ImageInfo {
        label: sb.label().to_vec(),
        uuid: raw.uuid,
        block_size: sb.block_size(),
        blocks: sb.blocks_count,
        blocks_free: totals.blocks_free,
        inodes: sb.inodes_count.into(),
        inodes_free: totals.inodes_free,
        inode_size: sb.inode_size.into(),
        state: match state(raw.state.get()) {
            // The superblock shows whether the journal must be replayed.
            ImageState::Clean if is_external && is_missing && fs.needs_recovery() => {
                ImageState::LogExternal
            }
            state => state,
        },
        needs_recovery: fs.needs_recovery(),
        details: Details::Ext(ExtDetails {
            version: version(&sb.features),
            features: sb.features,
            groups: sb.groups_count,
            blocks_per_group: sb.blocks_per_group,
            inodes_per_group: sb.inodes_per_group,
            descriptor_size: sb.desc_size.into(),
            reserved_blocks: raw.reserved_blocks(),
            journal_inode: raw.journal_inum.get(),
            journal_uuid: is_external.then_some(raw.journal_uuid),
            orphan_file_inode: raw.orphan_file_inum.get(),
            errors: raw.error_count.get(),
        }),
    })
}

/// Returns the oldest version of the ext family that has all features of the image.
fn version(features: &Features) -> ExtVersion {
    let newer = Incompat::FILETYPE | Incompat::META_BG | Incompat::RECOVER;
    let older = RoCompat::SPARSE_SUPER | RoCompat::LARGE_FILE;
    match () {
        () if !newer.contains(features.incompat) => ExtVersion::Ext4,
        () if !older.contains(features.ro_compat) => ExtVersion::Ext4,
        () if features.compat(Compat::HAS_JOURNAL) => ExtVersion::Ext3,
        () => ExtVersion::Ext2,
    }
}

fn state(state: u16) -> ImageState {
    match (state & STATE_VALID != 0, state & STATE_ERROR != 0) {
        (_, true) => ImageState::HasErrors,
        (true, false) => ImageState::Clean,
        (false, false) => ImageState::NotUnmounted,
    }
}
