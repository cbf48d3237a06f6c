//! Encoding of bundles.

use std::ops::Range;

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

use super::format::{
    FRAME_BYTES, HEADER_BYTES, MAGIC, RawFrame, RawHeader, TABLES_BYTES_MAX, UNIT_BYTES, VERSION,
    seal,
};
use super::index::UNITS_MAX;
use super::index::put_extent;
use super::{BundleError, Identity};
use crate::digest::Digest;
use crate::frame::pack;

/// A complete bundle.
#[derive(Clone, Debug)]
pub struct Encoded {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its digest, as [`super::Head::digest`].
    pub digest: Digest,
    /// Length of its metadata in bytes, without zeros.
    pub metadata_bytes: u64,
    /// Length of the data of a recorded start in bytes, without zeros.
    pub start_bytes: u64,
}

/// Encoder of a bundle. Units are added in the order of use, first all metadata.
pub struct Writer {
    image_units: u64,
    image_bytes: u64,
    extents: Vec<u8>,
    count: u32,
    /// Extent that the next unit may continue: first unit, number of units, and whether they are zeros.
    open: Option<(u64, u64, bool)>,
    /// End of the last extent in the table, in units.
    end: u64,
    units: u64,
    metadata_units: Option<u64>,
    pending: Vec<u8>,
    frames: Vec<RawFrame>,
    stored: Vec<u8>,
}

impl Writer {
    /// Starts a bundle of an image of this length.
    ///
    /// # Errors
    /// If the image is larger than 16 TiB.
    pub fn new(image_bytes: u64) -> Result<Self, BundleError> {
        let image_units = image_bytes.div_ceil(UNIT_BYTES);
        if image_units > UNITS_MAX {
            let (field, rule) = ("length of the image", "it is larger than 16 TiB");
            return Err(BundleError::Value { field, found: image_bytes, rule });
        }
        Ok(Self {
            image_units,
            image_bytes,
            extents: Vec::new(),
            count: 0,
            open: None,
            end: 0,
            units: 0,
            metadata_units: None,
            pending: Vec::new(),
            frames: Vec::new(),
            stored: Vec::new(),
        })
    }

    /// Adds the unit `number` of the image with its contents. No unit may be added twice.
    ///
    /// # Panics
    /// If `contents` is not a unit. The last unit of an image is padded with zeros.
    pub fn add(&mut self, number: u64, contents: &[u8]) {
        assert_eq!(contents.len() as u64, UNIT_BYTES, "a whole unit");
        let is_zero = disk::is_zero(contents);
        self.extend(number..number + 1, is_zero);
        if !is_zero {
            self.units += 1;
            self.pending.extend_from_slice(contents);
            if self.pending.len() as u64 == FRAME_BYTES {
                self.end_frame();
            }
        }
    }

    /// Adds units of zeros.
    pub fn add_zeros(&mut self, units: Range<u64>) {
        if units.start < units.end {
            self.extend(units, true);
        }
    }

    /// Ends the metadata. The units that follow are data that a recorded start read.
    pub fn end_metadata(&mut self) {
        self.metadata_units.get_or_insert(self.units);
    }

    /// Returns the length of the bundle so far in bytes, without its tables.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.stored.len() as u64
    }

    fn extend(&mut self, units: Range<u64>, is_zero: bool) {
        debug_assert!(units.end <= self.image_units);
        match &mut self.open {
            Some((start, len, zeros)) if *start + *len == units.start && *zeros == is_zero => {
                *len += units.end - units.start;
            }
            _ => {
                self.end_extent();
                self.open = Some((units.start, units.end - units.start, is_zero));
            }
        }
    }

    fn end_extent(&mut self) {
        if let Some((start, len, is_zero)) = self.open.take() {
            put_extent(&mut self.extents, self.end, start, len, is_zero);
            self.count += 1;
            self.end = start + len;
        }
    }

    fn end_frame(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let packed = pack(&self.pending);
        let stored_bytes = U32::new(packed.len() as u32);
        self.frames.push(RawFrame { stored_bytes, digest: Digest::of(&self.pending).0 });
        self.stored.extend_from_slice(&packed);
        self.pending.clear();
    }

    /// Ends the bundle of the image with this identity.
    ///
    /// # Errors
    /// If the tables are too long.
    pub fn finish(mut self, identity: &Identity) -> Result<Encoded, BundleError> {
        self.end_extent();
        self.end_frame();
        let identity = serde_json::to_vec(identity).expect("digests, text and numbers");
        let tables = [&identity[..], self.frames.as_bytes(), &self.extents].concat();
        if tables.len() as u64 > TABLES_BYTES_MAX {
            let (field, rule) = ("length of the tables", "the metadata are too scattered");
            return Err(BundleError::Value { field, found: tables.len() as u64, rule });
        }
        let metadata_units = self.metadata_units.unwrap_or(self.units);
        let mut header = RawHeader {
            magic: MAGIC,
            version: U32::new(VERSION),
            identity_bytes: U32::new(identity.len() as u32),
            image_bytes: U64::new(self.image_bytes),
            extents_bytes: U64::new(self.extents.len() as u64),
            bundle_bytes: U64::new((HEADER_BYTES + tables.len() + self.stored.len()) as u64),
            extents: U32::new(self.count),
            frames: U32::new(self.frames.len() as u32),
            metadata_units: U32::new(metadata_units as u32),
            reserved: U32::new(0),
            tables_digest: Digest::of(&tables).0,
            checksum: [0; 32],
        };
        let digest = seal(&mut header);
        Ok(Encoded {
            bytes: [header.as_bytes(), &tables, &self.stored].concat(),
            digest,
            metadata_bytes: metadata_units * UNIT_BYTES,
            start_bytes: (self.units - metadata_units) * UNIT_BYTES,
        })
    }
}
