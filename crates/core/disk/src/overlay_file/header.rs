//! The header of an overlay file, which identifies the base. It is written once.

use std::io;

use thiserror::Error;

use crate::BlockDevice;

/// Size of the header, which precedes the index, in bytes.
pub(super) const HEADER_BYTES: u64 = 4096;

/// First bytes of an overlay with the length of its base.
pub(super) const MAGIC: [u8; 8] = *b"DWOVLAY1";
/// First bytes of an overlay that is longer than its base.
pub(super) const MAGIC_LONGER: [u8; 8] = *b"DWOVLAY2";
/// Offsets of the lengths of the two texts, and of the texts.
const LENS_AT: usize = 16;
const TEXTS_AT: usize = 24;
/// Offset of the length of an overlay that is longer than its base. Texts end before it.
const LEN_AT: usize = SUM_AT - 8;
/// Offset of the checksum (CRC32C) of everything before it.
const SUM_AT: usize = HEADER_BYTES as usize - 4;

/// The base of an overlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Name of the base, used to open it again.
    pub base: String,
    /// Identity of the base: bases with the same identity have the same bytes.
    pub identity: String,
    /// Length of the overlay in bytes if it is longer than its base. The base is followed by zeros.
    pub longer: Option<u64>,
}

/// Error of an overlay file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OverlayError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] io::Error),
    /// The file is not an overlay.
    #[error("not an overlay file")]
    NoOverlay,
    /// The overlay is inconsistent.
    #[error("the overlay is damaged: {0}")]
    Damaged(String),
    /// The overlay contains changes of another base.
    #[error("the overlay belongs to {expected}, not to {found}")]
    OtherBase {
        /// Identity of the base for which it was created.
        expected: String,
        /// Identity of the base that was given.
        found: String,
    },
    /// The name of the base is too long for the header.
    #[error("the name of the base image is too long ({0} bytes)")]
    NameTooLong(usize),
    /// The base is too large.
    #[error("a device of {0} bytes is too large for an overlay in a file")]
    TooLarge(u64),
    /// The overlay is shorter than its base.
    #[error("{len} bytes are too few for an overlay of a base of {base} bytes")]
    TooShort {
        /// Length of the overlay.
        len: u64,
        /// Length of the base.
        base: u64,
    },
}

impl About {
    /// Reads the base of an overlay and the length of the base.
    ///
    /// # Errors
    /// If it is not an overlay, or its header is damaged.
    pub fn read(storage: &dyn BlockDevice) -> Result<(Self, u64), OverlayError> {
        if storage.len() < HEADER_BYTES {
            return Err(OverlayError::NoOverlay);
        }
        let mut bytes = [0; HEADER_BYTES as usize];
        storage.read_at(0, &mut bytes)?;
        let is_longer = bytes.starts_with(&MAGIC_LONGER);
        if !is_longer && !bytes.starts_with(&MAGIC) {
            return Err(OverlayError::NoOverlay);
        }
        let damaged = |what: &str| OverlayError::Damaged(format!("its header has {what}"));
        if crc32c::crc32c(&bytes[..SUM_AT]) != word(&bytes, SUM_AT) {
            return Err(damaged("a wrong checksum"));
        }
        let len = double_word(&bytes, 8);
        let longer = is_longer.then(|| double_word(&bytes, LEN_AT));
        if longer.is_some_and(|longer| longer <= len) {
            return Err(damaged("an invalid length"));
        }
        let base_len = word(&bytes, LENS_AT) as usize;
        let end = base_len.saturating_add(word(&bytes, LENS_AT + 4) as usize);
        let texts = bytes[TEXTS_AT..text_end(is_longer)]
            .get(..end)
            .ok_or_else(|| damaged("invalid name lengths"))?;
        let text = |bytes: &[u8]| {
            String::from_utf8(bytes.to_vec()).map_err(|_| damaged("a name that is not UTF-8"))
        };
        let (base, identity) =
            texts.split_at_checked(base_len).ok_or_else(|| damaged("an invalid name length"))?;
        Ok((Self { base: text(base)?, identity: text(identity)?, longer }, len))
    }

    /// Returns the header of an overlay for a base of `len` bytes.
    pub(super) fn header(&self, len: u64) -> Result<Vec<u8>, OverlayError> {
        let texts = [self.base.as_bytes(), self.identity.as_bytes()].concat();
        if texts.len() > text_end(self.longer.is_some()) - TEXTS_AT {
            return Err(OverlayError::NameTooLong(texts.len()));
        }
        let lens = [self.base.len() as u32, self.identity.len() as u32].map(u32::to_le_bytes);
        let magic = if self.longer.is_some() { MAGIC_LONGER } else { MAGIC };
        let mut bytes = [&magic[..], &len.to_le_bytes(), &lens.concat(), &texts].concat();
        bytes.resize(SUM_AT, 0);
        if let Some(longer) = self.longer {
            bytes[LEN_AT..].copy_from_slice(&longer.to_le_bytes());
        }
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        Ok(bytes)
    }
}

/// Returns the offset of the end of the texts.
fn text_end(is_longer: bool) -> usize {
    if is_longer { LEN_AT } else { SUM_AT }
}

fn double_word(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
