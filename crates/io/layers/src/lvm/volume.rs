//! Devices of logical volumes.

use std::sync::Arc;

use disk::BlockDevice;

use super::OpenGroup;
use super::group::{Area, Logical, Segment, SegmentKind, Volume};
use crate::mapped::{MappedDevice, Piece, Target};
use crate::{LayerError, Result};

/// Maximum number of volumes below each other. LVM's mirrors have three.
const DEPTH_MAX: usize = 8;
/// Maximum number of pieces of a volume, with those of the volumes below it.
const PIECES_MAX: usize = 1 << 18;

const READ_ELSEWHERE: &str =
    "activate it with: losetup and vgchange -ay; then read the logical volume";

/// Device of a logical volume.
pub struct LogicalDevice {
    /// The device.
    pub device: Arc<dyn BlockDevice>,
    /// The reason why it can only be read.
    pub read_only: Option<&'static str>,
}

struct Builder<'a> {
    group: &'a OpenGroup,
    pieces: usize,
    read_only: Option<&'static str>,
}

impl OpenGroup {
    /// Returns the name of a logical volume with that of its group.
    #[must_use]
    pub fn full_name(&self, volume: &Logical) -> String {
        format!("{}/{}", self.group.name, volume.name)
    }

    /// Returns the size of a volume in bytes.
    #[must_use]
    pub fn bytes(&self, volume: &Logical) -> u64 {
        let extents = volume.segments.iter().map(|segment| segment.extents);
        extents.fold(0, u64::saturating_add).saturating_mul(self.group.extent_bytes)
    }

    /// Makes a device of a logical volume.
    ///
    /// # Errors
    /// If it has an unsupported type, a physical volume is missing or too short, or volumes refer to each other.
    pub fn open(&self, volume: &Logical) -> Result<LogicalDevice> {
        let mut builder = Builder { group: self, pieces: 0, read_only: None };
        if !volume.is_writable {
            builder.read_only = Some("its status is read-only");
        }
        if self.has_snapshot() {
            builder.read_only = Some("its group has snapshots, which need the old contents");
        }
        let device = builder.logical(volume, 0)?;
        Ok(LogicalDevice { device, read_only: builder.read_only })
    }

    fn has_snapshot(&self) -> bool {
        let is_snapshot = |segment: &Segment| matches!(&segment.kind, SegmentKind::Other(kind) if kind == "snapshot");
        self.group.logical.iter().any(|volume| volume.segments.iter().any(is_snapshot))
    }
}

impl Builder<'_> {
    fn logical(&mut self, volume: &Logical, depth: usize) -> Result<Arc<dyn BlockDevice>> {
        let name = self.group.full_name(volume);
        let bad = |problem: String| {
            LayerError::damaged("LVM metadata", 0, format!("logical volume {name}: {problem}"))
        };
        if depth > DEPTH_MAX {
            return Err(bad("volumes refer to each other, or are nested too deeply".into()));
        }
        let mut pieces = Vec::new();
        for segment in &volume.segments {
            self.pieces += 1;
            if self.pieces > PIECES_MAX {
                return Err(bad(format!("more than {PIECES_MAX} segments")));
            }
            pieces.push(self.segment(&name, segment, depth)?);
        }
        let device = MappedDevice::new(pieces).map_err(|error| bad(error.to_string()))?;
        Ok(Arc::new(device))
    }

    fn segment(&mut self, name: &str, segment: &Segment, depth: usize) -> Result<Piece> {
        let too_long = || LayerError::damaged("LVM metadata", 0, format!("{name} is too long"));
        let len =
            segment.extents.checked_mul(self.group.group.extent_bytes).ok_or_else(too_long)?;
        let target = match &segment.kind {
            SegmentKind::Striped { areas, .. } if areas.len() == 1 => {
                let (device, at) = self.area(name, areas[0], depth)?;
                Target::Linear(device, at)
            }
            SegmentKind::Striped { stripe_bytes, areas } => {
                let legs = areas.iter().map(|area| self.area(name, *area, depth));
                Target::Striped(*stripe_bytes, legs.collect::<Result<_>>()?)
            }
            SegmentKind::Mirror(areas) => {
                self.read_only = Some("a mirror needs writes to all of its legs");
                let (device, at) = self.first_leg(name, areas, depth)?;
                Target::Linear(device, at)
            }
            SegmentKind::Other(kind) => {
                let what = format!("{name}: a logical volume of type {kind}");
                return Err(LayerError::unsupported(what, READ_ELSEWHERE));
            }
        };
        Ok(Piece { len, target })
    }

    /// Returns the first leg of a mirror whose physical volumes are all there.
    fn first_leg(
        &mut self,
        name: &str,
        areas: &[Area],
        depth: usize,
    ) -> Result<(Arc<dyn BlockDevice>, u64)> {
        let mut problem = None;
        for area in areas {
            match self.area(name, *area, depth) {
                Ok(leg) => return Ok(leg),
                Err(error) => problem = problem.or(Some(error)),
            }
        }
        let none =
            || LayerError::damaged("LVM metadata", 0, format!("{name}: a mirror without legs"));
        Err(problem.unwrap_or_else(none))
    }

    fn area(
        &mut self,
        name: &str,
        area: Area,
        depth: usize,
    ) -> Result<(Arc<dyn BlockDevice>, u64)> {
        let group = self.group;
        let past = || {
            let problem = format!("{name}: extent {} is past the end", area.extent);
            LayerError::damaged("LVM metadata", 0, problem)
        };
        let at = area.extent.checked_mul(group.group.extent_bytes).ok_or_else(past)?;
        match area.on {
            Volume::Physical(index) => {
                let volume = &group.group.physical[index];
                let Some(device) = &group.devices[index] else {
                    let missing = format!("the physical volume {} ({})", volume.id, volume.device);
                    let what = format!("the logical volume {name}");
                    return Err(LayerError::Missing { what, missing });
                };
                let at = at.checked_add(volume.start_bytes);
                let at = at.filter(|_| area.extent < volume.extents).ok_or_else(past)?;
                Ok((Arc::clone(device), at))
            }
            Volume::Logical(index) => {
                Ok((self.logical(&group.group.logical[index], depth + 1)?, at))
            }
        }
    }
}
