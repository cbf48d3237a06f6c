//! Header and tables of a bundle. Numbers are little-endian.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use super::index::UNIT_BYTES;
use super::index::{Index, UNITS_MAX};
use super::{BundleError, Identity};
use crate::digest::Digest;
use crate::frame::{packed_bytes_max, unpack};

/// Magic number at the start of a bundle.
pub const MAGIC: [u8; 8] = *b"DWBUNDL1";

/// Contents of each frame in bytes, except for the last one.
pub const FRAME_BYTES: u64 = 256 << 10;

/// Size of the header in bytes.
pub const HEADER_BYTES: usize = size_of::<RawHeader>();

/// Maximum size of the identity, the frame table and the extent table in bytes. It limits the memory of a reader.
pub const TABLES_BYTES_MAX: u64 = 32 << 20;

pub(super) const VERSION: u32 = 1;
const IDENTITY_BYTES_MAX: u32 = 4096;

/// Header of a bundle, at byte 0.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawHeader {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// 1.
    pub version: U32,
    /// Length of the identity.
    pub identity_bytes: U32,
    /// Length of the image.
    pub image_bytes: U64,
    /// Length of the extent table.
    pub extents_bytes: U64,
    /// Length of the whole bundle.
    pub bundle_bytes: U64,
    /// Number of extents.
    pub extents: U32,
    /// Number of frames.
    pub frames: U32,
    /// Number of units of the stream that are metadata. The data of a recorded start follow.
    pub metadata_units: U32,
    /// Zero.
    pub reserved: U32,
    /// SHA-256 of the identity and of both tables.
    pub tables_digest: [u8; 32],
    /// SHA-256 of the header before this field.
    pub checksum: [u8; 32],
}

const _: () = assert!(size_of::<RawHeader>() == 120);

/// Entry of the frame table.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawFrame {
    /// Length of the frame in the bundle.
    pub stored_bytes: U32,
    /// SHA-256 of the contents.
    pub digest: [u8; 32],
}

const _: () = assert!(size_of::<RawFrame>() == 36);

/// A verified header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Length of the image in bytes.
    pub image_bytes: u64,
    /// Length of the bundle in bytes.
    pub bundle_bytes: u64,
    identity_bytes: u32,
    extents_bytes: u64,
    extents: u32,
    frames: u32,
    metadata_units: u32,
    tables_digest: Digest,
    digest: Digest,
}

impl Head {
    /// Parses and verifies the header in the first [`HEADER_BYTES`] of a bundle.
    ///
    /// # Errors
    /// If they are not the header of a bundle, or its values contradict each other.
    pub fn parse(bytes: &[u8]) -> Result<Self, BundleError> {
        if !bytes.starts_with(&MAGIC) {
            return Err(BundleError::Magic);
        }
        let (raw, _) = RawHeader::read_from_prefix(bytes).map_err(|_| BundleError::Length {
            part: "header",
            expected: HEADER_BYTES as u64,
            found: bytes.len() as u64,
        })?;
        if raw.version.get() != VERSION {
            return Err(BundleError::Version(raw.version.get()));
        }
        let (expected, found) = (Digest(raw.checksum), checksum(&raw));
        if expected != found {
            return Err(BundleError::Digest { part: "header", expected, found });
        }
        let head = Self {
            image_bytes: raw.image_bytes.get(),
            bundle_bytes: raw.bundle_bytes.get(),
            identity_bytes: raw.identity_bytes.get(),
            extents_bytes: raw.extents_bytes.get(),
            extents: raw.extents.get(),
            frames: raw.frames.get(),
            metadata_units: raw.metadata_units.get(),
            tables_digest: Digest(raw.tables_digest),
            digest: expected,
        };
        head.check_sizes().map(|()| head)
    }

    fn check_sizes(&self) -> Result<(), BundleError> {
        let wrong = |field, found, rule| Err(BundleError::Value { field, found, rule });
        if self.identity_bytes > IDENTITY_BYTES_MAX {
            return wrong("length of the identity", self.identity_bytes.into(), "it is too long");
        }
        if self.extents_bytes > TABLES_BYTES_MAX || self.tables_bytes() > TABLES_BYTES_MAX {
            return wrong("length of the tables", self.extents_bytes, "they are too long");
        }
        if self.image_bytes.div_ceil(UNIT_BYTES) > UNITS_MAX {
            return wrong("length of the image", self.image_bytes, "it is larger than 16 TiB");
        }
        let least = self.frames_start();
        if self.bundle_bytes < least {
            return wrong("length of the bundle", self.bundle_bytes, "its tables are longer");
        }
        Ok(())
    }

    /// Returns the digest that identifies the bundle: it covers the header, the tables, and by them each frame.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns the length of the identity and both tables, which follow the header.
    #[must_use]
    pub fn tables_bytes(&self) -> u64 {
        let frames = u64::from(self.frames) * size_of::<RawFrame>() as u64;
        u64::from(self.identity_bytes) + frames + self.extents_bytes
    }

    fn frames_start(&self) -> u64 {
        HEADER_BYTES as u64 + self.tables_bytes()
    }
}

fn checksum(raw: &RawHeader) -> Digest {
    Digest::of(&raw.as_bytes()[..HEADER_BYTES - Digest::BYTES])
}

/// Sets the checksum of a header.
pub(super) fn seal(raw: &mut RawHeader) -> Digest {
    let digest = checksum(raw);
    raw.checksum = digest.0;
    digest
}

/// Location and digest of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Frame {
    /// First byte in the bundle.
    start: u64,
    stored_bytes: u32,
    digest: Digest,
}

/// Verified tables of a bundle.
#[derive(Clone, Debug)]
pub struct Tables {
    /// The image.
    pub identity: Identity,
    /// Location of each unit in the stream.
    pub index: Index,
    frames: Vec<Frame>,
    metadata_units: u32,
}

impl Tables {
    /// Parses and verifies the bytes after the header: [`Head::tables_bytes`]. Memory use is proportional to their
    /// length.
    ///
    /// # Errors
    /// If they do not match the header, or their values contradict each other.
    pub fn parse(head: &Head, bytes: &[u8]) -> Result<Self, BundleError> {
        if bytes.len() as u64 != head.tables_bytes() {
            let (expected, found) = (head.tables_bytes(), bytes.len() as u64);
            return Err(BundleError::Length {
                part: "table of frames and extents",
                expected,
                found,
            });
        }
        let found = Digest::of(bytes);
        if found != head.tables_digest {
            let expected = head.tables_digest;
            return Err(BundleError::Digest {
                part: "table of frames and extents",
                expected,
                found,
            });
        }
        let (identity, rest) = bytes.split_at(head.identity_bytes as usize);
        let (frames, extents) = rest.split_at(head.frames as usize * size_of::<RawFrame>());
        let identity = serde_json::from_slice(identity)
            .map_err(|error| BundleError::Identity(error.to_string()))?;
        let index = Index::parse(extents, head.extents, head.image_bytes.div_ceil(UNIT_BYTES))?;
        let frames = parse_frames(head, frames)?;
        let tables = Self { identity, index, frames, metadata_units: head.metadata_units };
        let (found, expected) = (tables.frames.len() as u64, frames_of(tables.stream_bytes()));
        if found != expected {
            let rule = "the extents need another number";
            return Err(BundleError::Value { field: "number of frames", found, rule });
        }
        if u64::from(head.metadata_units) > tables.index.units() {
            let (found, rule) = (head.metadata_units.into(), "the stream is shorter");
            return Err(BundleError::Value { field: "number of metadata units", found, rule });
        }
        Ok(tables)
    }

    /// Returns the length of the stream in bytes.
    #[must_use]
    pub fn stream_bytes(&self) -> u64 {
        self.index.units() * UNIT_BYTES
    }

    /// Returns the length of the metadata at the start of the stream, in bytes.
    #[must_use]
    pub fn metadata_bytes(&self) -> u64 {
        u64::from(self.metadata_units) * UNIT_BYTES
    }

    /// Returns the number of frames.
    #[must_use]
    pub fn frames(&self) -> u32 {
        self.frames.len() as u32
    }

    /// Returns the location of a frame in the bundle: first byte and length.
    ///
    /// # Panics
    /// If the number is not one of a frame.
    #[must_use]
    pub fn frame_location(&self, number: u32) -> (u64, u32) {
        let frame = &self.frames[number as usize];
        (frame.start, frame.stored_bytes)
    }

    /// Decompresses and verifies frame `number`.
    ///
    /// # Errors
    /// [`BundleError::Frame`] if its contents do not match the table.
    ///
    /// # Panics
    /// If the number is not one of a frame.
    pub fn unpack(&self, number: u32, stored: &[u8]) -> Result<Vec<u8>, BundleError> {
        let start = u64::from(number) * FRAME_BYTES;
        let len = (self.stream_bytes() - start).min(FRAME_BYTES) as usize;
        unpack(stored, len, self.frames[number as usize].digest)
            .map_err(|problem| BundleError::Frame { number, problem })
    }
}

/// Returns the number of frames of a stream.
pub(super) fn frames_of(stream_bytes: u64) -> u64 {
    stream_bytes.div_ceil(FRAME_BYTES)
}

/// Parses the frame table. The frames fill the rest of the bundle.
fn parse_frames(head: &Head, bytes: &[u8]) -> Result<Vec<Frame>, BundleError> {
    let longest = packed_bytes_max(FRAME_BYTES as usize) as u32;
    let mut start = head.frames_start();
    let raw = <[RawFrame]>::ref_from_bytes(bytes).map_err(|_| BundleError::Length {
        part: "frame table",
        expected: u64::from(head.frames) * size_of::<RawFrame>() as u64,
        found: bytes.len() as u64,
    })?;
    let mut frames = Vec::with_capacity(raw.len());
    for frame in raw {
        let stored_bytes = frame.stored_bytes.get();
        if stored_bytes > longest {
            let (field, rule) = ("length of a frame", "no frame needs so many bytes");
            return Err(BundleError::Value { field, found: stored_bytes.into(), rule });
        }
        frames.push(Frame { start, stored_bytes, digest: Digest(frame.digest) });
        start += u64::from(stored_bytes);
    }
    if start != head.bundle_bytes {
        let (expected, found) = (head.bundle_bytes, start);
        return Err(BundleError::Length { part: "bundle by its frames", expected, found });
    }
    Ok(frames)
}
