//! Open XFS images.

use std::sync::Arc;

use disk::{BlockDevice, DeviceRole};
use operations::RunOperations;
use operations::profile::MeasuresListings;
use vfs::Error;
use vfs::deleted::{DeletedScope, DeletedSink};
use vfs::quota::{LimitChanges, OwnerKind, OwnerUsage, QuotaState};
use vfs::survey::TellsLayout;
use xfs::Xfs;
use xfs::format::superblock::Superblock;

use super::OpenFs;
use crate::image::{Details, ImageInfo, ImageState, XfsDetails, XfsLog, XfsRealtime};
use crate::recovery::{RecoverDetails, RecoverReport};

/// State of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogState {
    Clean,
    Dirty,
    /// The end of the log cannot be determined.
    Unreadable,
    /// The log is on another device, which is not given.
    Elsewhere,
}

impl LogState {
    fn of(device: &dyn BlockDevice, superblock: &Superblock) -> vfs::Result<Self> {
        if superblock.raw.logstart.get() == 0 && device.part_len(DeviceRole::Log).is_none() {
            return Ok(Self::Elsewhere);
        }
        Ok(match xfs::log_end(device, superblock)? {
            Some(end) if end.is_clean => Self::Clean,
            Some(_) => Self::Dirty,
            None => Self::Unreadable,
        })
    }

    fn state(self) -> ImageState {
        match self {
            Self::Clean => ImageState::Clean,
            Self::Dirty => ImageState::LogDirty,
            Self::Unreadable => ImageState::LogUnreadable,
            Self::Elsewhere => ImageState::LogExternal,
        }
    }
}

/// Maximum sector size in bytes, which is the maximum that a superblock checksum covers.
const SECTOR_SIZE_MAX: u64 = 32 << 10;

/// Returns the feature that makes the image read-only, if there is one.
pub(super) fn read_only_because(device: &dyn BlockDevice) -> vfs::Result<Option<String>> {
    let mut bytes = vec![0; device.len().min(SECTOR_SIZE_MAX) as usize];
    device.read_at(0, &mut bytes).map_err(Error::Device)?;
    Ok(Superblock::parse(&bytes, device.len())?.read_only_because())
}

impl OpenFs for Xfs {
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
        let log = match device {
            Some(device) => LogState::of(device, self.superblock_found())?,
            None if self.recovered().transactions > 0 => LogState::Dirty,
            None => LogState::Clean,
        };
        info(self, log)
    }

    fn recovery(&self) -> RecoverReport {
        let log = self.recovered();
        RecoverReport {
            transactions: log.transactions,
            orphans_freed: self.freed_at_open(),
            details: RecoverDetails::Xfs {
                items_replayed: log.items_replayed,
                items_skipped: log.items_skipped,
                intents: log.intents,
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
        xfs::deleted::find(self, evidence, scope, sink);
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
        Arc::into_inner(self).map_or(Ok(()), Xfs::close)
    }
}

/// Returns the properties of an XFS image.
fn info(fs: &Xfs, log: LogState) -> vfs::Result<ImageInfo> {
    let sb = fs.superblock_found();
    let raw = &sb.raw;
    let totals = fs.data_totals();
    let realtime_free = fs.free_realtime_blocks()?.unwrap_or(0);
    let label_len = raw.fname.iter().position(|&byte| byte == 0).unwrap_or(raw.fname.len());
    Ok(ImageInfo {
        label: raw.fname[..label_len].to_vec(),
        uuid: raw.uuid,
        block_size: raw.blocksize.get(),
        blocks: raw.dblocks.get(),
        blocks_free: totals.blocks_free,
        inodes: totals.inodes,
        inodes_free: totals.inodes_free,
        inode_size: raw.inodesize.get().into(),
        state: log.state(),
        needs_recovery: log != LogState::Clean,
        details: Details::Xfs(details(sb, realtime_free)),
    })
}

fn details(sb: &Superblock, realtime_free: u64) -> XfsDetails {
    let raw = &sb.raw;
    let has_own_uuid = raw.uuid != raw.meta_uuid && raw.meta_uuid != [0; 16];
    let realtime = XfsRealtime {
        blocks: raw.rblocks.get(),
        blocks_free: realtime_free,
        blocks_per_extent: raw.rextsize.get(),
    };
    XfsDetails {
        features: sb.features,
        groups: raw.agcount.get(),
        blocks_per_group: raw.agblocks.get(),
        sector_size: raw.sectsize.get().into(),
        directory_block_size: u64::from(raw.blocksize.get()) << raw.dirblklog.min(16),
        inode_alignment: raw.inoalignmt.get(),
        inodes_percent: raw.imax_pct,
        stripe_unit: raw.unit.get(),
        stripe_width: raw.width.get(),
        metadata_uuid: has_own_uuid.then_some(raw.meta_uuid),
        log: XfsLog {
            is_external: raw.logstart.get() == 0,
            blocks: raw.logblocks.get(),
            stripe_unit: raw.logsunit.get(),
        },
        realtime: (realtime.blocks != 0).then_some(realtime),
    }
}
