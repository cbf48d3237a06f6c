//! Reads the units of a bundle from a device.

use std::collections::HashSet;
use std::io;
use std::ops::Range;

use disk::BlockDevice;

use super::format::UNIT_BYTES;
use super::identity::HEAD_BYTES;
use super::{BundleError, Encoded, Identity, Writer};
use crate::holes::next_data;

/// Maximum size of a bundle in bytes. It is in memory while it is made.
const BUNDLE_BYTES_MAX: u64 = 1 << 30;

/// Maximum number of bytes of one read.
const READ_BYTES: u64 = 1 << 20;

/// The parts of an image that a bundle contains, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Metadata in the order of use.
    pub metadata: Vec<Range<u64>>,
    /// Parts that a recorded start reads, in that order.
    pub start: Vec<Range<u64>>,
}

/// The reason why a bundle cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    /// The image cannot be read.
    #[error("cannot read the image at byte {offset}: {source}")]
    Image {
        /// First byte of the failed read.
        offset: u64,
        /// Error of the device.
        source: io::Error,
    },
    /// The bundle would be invalid.
    #[error("cannot make the bundle: {0}")]
    Bundle(#[from] BundleError),
    /// The bundle is too large.
    #[error("the bundle has more than {BUNDLE_BYTES_MAX} bytes; leave out the record of a start")]
    Large,
}

/// Makes the bundle of an image with this identity.
///
/// # Errors
/// If the image cannot be read, or the bundle is too large.
pub fn make(
    device: &dyn BlockDevice,
    plan: &Plan,
    identity: &Identity,
) -> Result<Encoded, MakeError> {
    let mut maker = Maker { device, writer: Writer::new(device.len())?, added: HashSet::new() };
    for range in &plan.metadata {
        maker.add(range)?;
    }
    maker.writer.end_metadata();
    for range in &plan.start {
        maker.add(range)?;
    }
    Ok(maker.writer.finish(identity)?)
}

impl Identity {
    /// Returns the identity of a file whose time of the last change is `modified`, in seconds since 1970.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn of_file(device: &dyn BlockDevice, modified: i64) -> io::Result<Self> {
        let mut head = vec![0; device.len().min(HEAD_BYTES) as usize];
        device.read_at(0, &mut head)?;
        Ok(Identity::hosted(&head, None, modified))
    }
}

struct Maker<'a> {
    device: &'a dyn BlockDevice,
    writer: Writer,
    /// Units in the bundle.
    added: HashSet<u32>,
}

impl Maker<'_> {
    /// Adds the units that overlap `range`, unless they are in the bundle.
    fn add(&mut self, range: &Range<u64>) -> Result<(), MakeError> {
        let end = range.end.min(self.device.len()).div_ceil(UNIT_BYTES);
        let mut unit = range.start / UNIT_BYTES;
        while unit < end {
            let data = next_data(self.device, unit * UNIT_BYTES) / UNIT_BYTES;
            let data = data.clamp(unit, end);
            self.add_hole(unit..data);
            let stop = end.min(data + READ_BYTES / UNIT_BYTES);
            self.add_units(data..stop)?;
            unit = stop;
        }
        Ok(())
    }

    fn add_hole(&mut self, units: Range<u64>) {
        for unit in units {
            if self.added.insert(unit as u32) {
                self.writer.add_zeros(unit..unit + 1);
            }
        }
    }

    fn add_units(&mut self, units: Range<u64>) -> Result<(), MakeError> {
        if units.clone().all(|unit| self.added.contains(&(unit as u32))) {
            return Ok(());
        }
        let offset = units.start * UNIT_BYTES;
        let mut contents = vec![0; ((units.end - units.start) * UNIT_BYTES) as usize];
        // The last unit of the image may be incomplete.
        let len = (self.device.len() - offset).min(contents.len() as u64) as usize;
        let read = self.device.read_at(offset, &mut contents[..len]);
        read.map_err(|source| MakeError::Image { offset, source })?;
        for (unit, contents) in units.zip(contents.chunks_exact(UNIT_BYTES as usize)) {
            if self.added.insert(unit as u32) {
                self.writer.add(unit, contents);
            }
        }
        if self.writer.stored_bytes() > BUNDLE_BYTES_MAX { Err(MakeError::Large) } else { Ok(()) }
    }
}
