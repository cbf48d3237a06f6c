//! Properties of XFS images.

use disk::BlockDevice;
use vfs::{Error, FileSystem};
use xfs::Xfs;
use xfs::format::superblock::Superblock;

use super::{FeatureGroup, ImageInfo, Section, uuid_text};
use crate::text;

/// State of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogState {
    Clean,
    Dirty,
    /// The end of the log cannot be determined.
    Unreadable,
    /// The log is on another device and is not examined.
    Elsewhere,
}

impl LogState {
    pub(super) fn of(device: &dyn BlockDevice, superblock: &Superblock) -> vfs::Result<Self> {
        if superblock.raw.logstart.get() == 0 {
            return Ok(Self::Elsewhere);
        }
        Ok(match xfs::log_end(device, superblock)? {
            Some(end) if end.is_clean => Self::Clean,
            Some(_) => Self::Dirty,
            None => Self::Unreadable,
        })
    }

    fn text(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Dirty => "the log must be replayed",
            Self::Unreadable => "the log cannot be read",
            Self::Elsewhere => "unknown: the log is on another device",
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

/// Returns the properties of an XFS image.
pub(super) fn info(fs: &Xfs, log: LogState) -> vfs::Result<ImageInfo> {
    let sb = fs.superblock_found();
    let raw = &sb.raw;
    let totals = fs.statfs()?;
    let label_len = raw.fname.iter().position(|&byte| byte == 0).unwrap_or(raw.fname.len());
    Ok(ImageInfo {
        format: "xfs".into(),
        label: text::escaped(&raw.fname[..label_len]).to_string(),
        uuid: uuid_text(&raw.uuid),
        block_size: raw.blocksize.get(),
        blocks: raw.dblocks.get(),
        blocks_free: totals.blocks_free,
        inodes: totals.inodes,
        inodes_free: totals.inodes_free,
        inode_size: raw.inodesize.get().into(),
        state: log.text().into(),
        needs_recovery: log != LogState::Clean,
        features: features(sb),
        sections: sections(sb),
    })
}

fn features(sb: &Superblock) -> Vec<FeatureGroup> {
    let groups = sb.features.names().into_iter().filter(|(_, names)| !names.is_empty());
    groups.map(|(kind, names)| FeatureGroup { kind: kind.into(), names }).collect()
}

fn sections(sb: &Superblock) -> Vec<Section> {
    let raw = &sb.raw;
    let value = |name: &str, value: u64| (name.to_owned(), value.to_string());
    let mut layout = vec![
        value("version", sb.features.version.into()),
        value("allocation groups", raw.agcount.get().into()),
        value("blocks per group", raw.agblocks.get().into()),
        value("sector size", raw.sectsize.get().into()),
        value("directory block size", u64::from(raw.blocksize.get()) << raw.dirblklog.min(16)),
        value("inode alignment", raw.inoalignmt.get().into()),
        value("inode space limit, percent", raw.imax_pct.into()),
        value("stripe unit", raw.unit.get().into()),
        value("stripe width", raw.width.get().into()),
    ];
    if raw.uuid != raw.meta_uuid && raw.meta_uuid != [0; 16] {
        layout.push(("metadata uuid".into(), uuid_text(&raw.meta_uuid)));
    }
    let place = if raw.logstart.get() == 0 { "external" } else { "internal" };
    let log = vec![
        ("place".to_owned(), place.to_owned()),
        value("blocks", raw.logblocks.get().into()),
        value("stripe unit", raw.logsunit.get().into()),
    ];
    let mut sections = vec![
        Section { title: "layout".into(), values: layout },
        Section { title: "log".into(), values: log },
    ];
    if raw.rblocks.get() != 0 {
        let values = vec![
            value("blocks", raw.rblocks.get()),
            value("blocks per extent", raw.rextsize.get().into()),
        ];
        sections.push(Section { title: "realtime".into(), values });
    }
    sections
}
