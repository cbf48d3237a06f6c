//! LVM2: physical volumes, volume groups and logical volumes.
//!
//! The formats follow lvm2's documents `doc/lvm2-raid.txt`, `man lvm.conf` and `man pvs`, and observed volumes. A physical volume
//! has a label in one of its first four sectors ([`label`]), which refers to metadata areas: circular buffers of text
//! ([`text`]), which describe the whole volume group ([`group`]). [`volume`] makes devices of logical volumes.

pub mod group;
pub mod label;
pub mod text;
pub mod volume;

use std::sync::Arc;

use disk::BlockDevice;

use crate::{LayerError, Member, Result, raw};
use group::VolumeGroup;
use label::PhysicalVolumeHeader;

/// Maximum length of the text of one volume group in bytes.
const TEXT_BYTES_MAX: u64 = 32 << 20;

/// A physical volume: its header and the newest valid description of its group.
pub struct PhysicalVolume {
    /// The device.
    pub member: Member,
    /// The header.
    pub header: PhysicalVolumeHeader,
    /// Description of the group in its metadata areas. `None` if it has no metadata area.
    pub group: Option<VolumeGroup>,
}

impl PhysicalVolume {
    /// Reads the label and metadata of a physical volume.
    ///
    /// # Errors
    /// If the label is damaged, or the volume has metadata areas and none is valid.
    pub fn read(member: Member) -> Result<Self> {
        let device = &*member.device;
        let sectors = raw::bytes(
            device,
            "LVM label",
            0,
            label::SCAN_BYTES.min(device.len()),
            label::SCAN_BYTES,
        )?;
        let header = label::parse(&sectors)?;
        let (mut newest, mut problem): (Option<VolumeGroup>, _) = (None, None);
        for area in &header.metadata_areas {
            match read_area(device, *area) {
                Ok(found) => {
                    let is_newer = |found: &VolumeGroup| {
                        newest.as_ref().is_none_or(|newest| newest.seqno < found.seqno)
                    };
                    newest = found.filter(is_newer).or(newest);
                }
                Err(error) => problem = problem.or(Some(error)),
            }
        }
        match (newest, problem) {
            (None, Some(problem)) => Err(problem),
            (group, _) => Ok(Self { member, header, group }),
        }
    }
}

/// Reads the description of a group in one metadata area. Returns `None` if the area contains none.
fn read_area(device: &dyn BlockDevice, area: label::Area) -> Result<Option<VolumeGroup>> {
    let header = raw::bytes(
        device,
        label::AREA,
        area.offset,
        label::AREA_HEADER_BYTES,
        label::AREA_HEADER_BYTES,
    )?;
    let Some(location) = label::parse_area(&header, area)? else { return Ok(None) };
    let mut text = Vec::new();
    for (at, len) in location.parts {
        text.extend(raw::bytes(device, label::TEXT, at, len, TEXT_BYTES_MAX)?);
    }
    let at = location.parts[0].0;
    let found = label::checksum(&text);
    if found != location.checksum {
        let problem = format!("checksum {found:#010x}, expected {:#010x}", location.checksum);
        return Err(LayerError::damaged(label::TEXT, at, problem));
    }
    group::parse(&text).map(Some).map_err(|problem| LayerError::damaged(label::TEXT, at, problem))
}

/// A volume group with its devices.
pub struct OpenGroup {
    /// The newest description among its members.
    pub group: VolumeGroup,
    /// Device of each physical volume; `None` if it was not given.
    pub devices: Vec<Option<Arc<dyn BlockDevice>>>,
}

/// Forms groups of physical volumes. Each group has the description with the highest sequence number.
pub fn groups(volumes: &[PhysicalVolume]) -> Vec<OpenGroup> {
    let mut groups: Vec<VolumeGroup> = Vec::new();
    for found in volumes.iter().filter_map(|volume| volume.group.as_ref()) {
        match groups.iter_mut().find(|group| group.id == found.id) {
            Some(group) if group.seqno < found.seqno => *group = found.clone(),
            Some(_) => {}
            None => groups.push(found.clone()),
        }
    }
    let device_of = |id: &str| {
        let found = volumes.iter().find(|volume| volume.header.id == id)?;
        Some(Arc::clone(&found.member.device))
    };
    let open = |group: VolumeGroup| {
        let devices = group.physical.iter().map(|volume| device_of(&volume.id)).collect();
        OpenGroup { group, devices }
    };
    groups.into_iter().map(open).collect()
}
