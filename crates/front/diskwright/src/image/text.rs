//! Properties of an image as labelled text and as JSON.

use ::ext4::format::features::Features;

use super::info::{Details, ExtDetails, ImageInfo, ImageState, XfsDetails};
use crate::text::{escaped, uuid_text};

/// Features of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "build", derive(serde::Serialize))]
pub struct FeatureGroup {
    /// `compatible`, `incompatible` or `read-only compatible`; for XFS also `version` and
    /// `log incompatible`.
    pub kind: &'static str,
    /// Feature names in the format's own terms.
    pub names: Vec<String>,
}

/// A titled list of values.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "build", derive(serde::Serialize))]
pub struct Section {
    /// Title of the list.
    pub title: &'static str,
    /// Labels and values.
    pub values: Vec<(&'static str, String)>,
}

impl ImageState {
    /// Returns `clean`, or the problem in the format's own terms.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::HasErrors => "has errors",
            Self::NotUnmounted => "not cleanly unmounted",
            Self::LogDirty => "the log must be replayed",
            Self::LogUnreadable => "the log cannot be read",
            Self::LogExternal => "unknown: the log is on another device",
        }
    }
}

impl ImageInfo {
    /// Returns the label as text, escaped where it is not printable.
    pub fn label_text(&self) -> String {
        escaped(&self.label).to_string()
    }

    /// Returns the UUID with dashes.
    pub fn uuid_text(&self) -> String {
        uuid_text(&self.uuid)
    }

    /// Returns the names of the features by kind.
    pub fn features(&self) -> Vec<FeatureGroup> {
        match &self.details {
            Details::Ext(details) => ext_features(details.features),
            Details::Xfs(details) => {
                let groups = details.features.names().into_iter();
                let groups = groups.filter(|(_, names)| !names.is_empty());
                groups.map(|(kind, names)| FeatureGroup { kind, names }).collect()
            }
        }
    }

    /// Returns the properties specific to the format as text for users. Programs use [`Self::details`].
    pub fn sections(&self) -> Vec<Section> {
        match &self.details {
            Details::Ext(details) => ext_sections(details),
            Details::Xfs(details) => xfs_sections(details),
        }
    }
}

fn ext_features(features: Features) -> Vec<FeatureGroup> {
    let Features { compat, incompat, ro_compat } = features;
    let empty = Features::default();
    let of_kind = |kind, features: Features| FeatureGroup { kind, names: features.names() };
    vec![
        of_kind("compatible", Features { compat, ..empty }),
        of_kind("incompatible", Features { incompat, ..empty }),
        of_kind("read-only compatible", Features { ro_compat, ..empty }),
    ]
}

fn value(label: &'static str, value: impl Into<u64>) -> (&'static str, String) {
    (label, value.into().to_string())
}

fn ext_sections(details: &ExtDetails) -> Vec<Section> {
    let mut values = vec![
        value("groups", details.groups),
        value("blocks per group", details.blocks_per_group),
        value("inodes per group", details.inodes_per_group),
        value("descriptor size", details.descriptor_size),
        value("reserved blocks", details.reserved_blocks),
        value("journal inode", details.journal_inode),
        value("orphan file inode", details.orphan_file_inode),
    ];
    values.extend(details.journal_uuid.map(|uuid| ("external journal UUID", uuid_text(&uuid))));
    let mut sections = vec![Section { title: "layout", values }];
    if details.errors > 0 {
        sections.push(Section { title: "errors", values: vec![value("count", details.errors)] });
    }
    sections
}

fn xfs_sections(details: &XfsDetails) -> Vec<Section> {
    let mut layout = vec![
        value("version", details.features.version),
        value("allocation groups", details.groups),
        value("blocks per group", details.blocks_per_group),
        value("sector size", details.sector_size),
        value("directory block size", details.directory_block_size),
        value("inode alignment", details.inode_alignment),
        value("inode space limit, percent", details.inodes_percent),
        value("stripe unit", details.stripe_unit),
        value("stripe width", details.stripe_width),
    ];
    layout.extend(details.metadata_uuid.map(|found| ("metadata uuid", uuid_text(&found))));
    let log = &details.log;
    let place = if log.is_external { "external" } else { "internal" };
    let log = vec![
        ("place", place.to_owned()),
        value("blocks", log.blocks),
        value("stripe unit", log.stripe_unit),
    ];
    let mut sections =
        vec![Section { title: "layout", values: layout }, Section { title: "log", values: log }];
    if !details.features.crc() {
        let advice = "diskwright convert OLD NEW makes a writable copy of version 5";
        let values = vec![("in place", "refused".to_owned()), ("instead", advice.to_owned())];
        sections.push(Section { title: "changes", values });
    }
    if let Some(realtime) = details.realtime {
        let values = vec![
            value("blocks", realtime.blocks),
            value("free blocks", realtime.blocks_free),
            value("blocks per extent", realtime.blocks_per_extent),
        ];
        sections.push(Section { title: "realtime", values });
    }
    sections
}

/// JSON object of `diskwright info --json`, documented in `docs/cli.md`.
#[cfg(feature = "build")]
#[derive(serde::Serialize)]
struct InfoRecord<'a> {
    format: &'static str,
    label: String,
    uuid: String,
    block_size: u32,
    blocks: u64,
    blocks_free: u64,
    inodes: u64,
    inodes_free: u64,
    inode_size: u32,
    state: &'a str,
    needs_recovery: bool,
    features: Vec<FeatureGroup>,
    sections: Vec<Section>,
}

#[cfg(feature = "build")]
impl serde::Serialize for ImageInfo {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let record = InfoRecord {
            format: self.format_name(),
            label: self.label_text(),
            uuid: self.uuid_text(),
            block_size: self.block_size,
            blocks: self.blocks,
            blocks_free: self.blocks_free,
            inodes: self.inodes,
            inodes_free: self.inodes_free,
            inode_size: self.inode_size,
            state: self.state.text(),
            needs_recovery: self.needs_recovery,
            features: self.features(),
            sections: self.sections(),
        };
        record.serialize(serializer)
    }
}
