//! Properties of ext2, ext3 and ext4 images.

use disk::BlockDevice;
use ext4::Ext4;
use ext4::format::features::{Compat, Features, Incompat, RoCompat};
use ext4::format::superblock::{
    STATE_ERROR, STATE_VALID, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock,
};
use vfs::{Error, FileSystem};

use super::{FeatureGroup, ImageInfo, Section, uuid_text};
use crate::text;

/// Returns the feature that makes the image read-only, if there is one.
pub(super) fn read_only_because(device: &dyn BlockDevice) -> vfs::Result<Option<String>> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).map_err(Error::Device)?;
    Ok(Superblock::parse(&bytes, device.len())?.read_only_because())
}

/// Returns the properties of an ext image.
pub(super) fn info(fs: &Ext4) -> vfs::Result<ImageInfo> {
    let sb = fs.superblock_found();
    let raw = &sb.raw;
    let totals = fs.statfs()?;
    Ok(ImageInfo {
        format: ext_version(sb).into(),
        label: text::escaped(sb.label()).to_string(),
        uuid: uuid_text(&raw.uuid),
        block_size: sb.block_size(),
        blocks: sb.blocks_count,
        blocks_free: totals.blocks_free,
        inodes: sb.inodes_count.into(),
        inodes_free: totals.inodes_free,
        inode_size: sb.inode_size.into(),
        state: ext_state(raw.state.get()).into(),
        needs_recovery: fs.needs_recovery(),
        features: ext_features(&sb.features),
        sections: ext_sections(sb),
    })
}

/// Returns the oldest version of the ext family that has all features of the image.
fn ext_version(sb: &Superblock) -> &'static str {
    let newer = Incompat::FILETYPE | Incompat::META_BG | Incompat::RECOVER;
    let older = RoCompat::SPARSE_SUPER | RoCompat::LARGE_FILE;
    if !newer.contains(sb.features.incompat) || !older.contains(sb.features.ro_compat) {
        return "ext4";
    }
    if sb.features.compat(Compat::HAS_JOURNAL) { "ext3" } else { "ext2" }
}

fn ext_state(state: u16) -> &'static str {
    match (state & STATE_VALID != 0, state & STATE_ERROR != 0) {
        (_, true) => "has errors",
        (true, false) => "clean",
        (false, false) => "not cleanly unmounted",
    }
}

fn ext_features(features: &Features) -> Vec<FeatureGroup> {
    let empty = Features::default();
    let of_kind = |kind: &str, features: Features| FeatureGroup {
        kind: kind.into(),
        names: features.names(),
    };
    vec![
        of_kind("compatible", Features { compat: features.compat, ..empty }),
        of_kind("incompatible", Features { incompat: features.incompat, ..empty }),
        of_kind("read-only compatible", Features { ro_compat: features.ro_compat, ..empty }),
    ]
}

fn ext_sections(sb: &Superblock) -> Vec<Section> {
    let raw = &sb.raw;
    let value = |name: &str, value: u64| (name.to_owned(), value.to_string());
    let layout = Section {
        title: "layout".into(),
        values: vec![
            value("groups", sb.groups_count.into()),
            value("blocks per group", sb.blocks_per_group.into()),
            value("inodes per group", sb.inodes_per_group.into()),
            value("descriptor size", sb.desc_size.into()),
            value("reserved blocks", raw.reserved_blocks()),
            value("journal inode", raw.journal_inum.get().into()),
            value("orphan file inode", raw.orphan_file_inum.get().into()),
        ],
    };
    let errors = raw.error_count.get();
    if errors == 0 {
        return vec![layout];
    }
    let values = vec![value("count", errors.into())];
    vec![layout, Section { title: "errors".into(), values }]
}
