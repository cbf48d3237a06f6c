//! Manifests: the chunks of an image and facts about it. [`Manifest::parse`] and [`Manifest::to_bytes`] are pure.
//!
//! Numbers are little-endian. A manifest consists of
//! - the magic `DWMANIF1` and the length of the head (u32),
//! - the head, one JSON object: version, sizes, facts about the image, digest of its metadata bundle, and lengths of the
//!   tables below,
//! - runs: the number of zero chunks, then the number of stored chunks after them (u32 each),
//! - digests of the stored chunks, in image order,
//! - numbers of the chunks that a start reads first (u32 each), in that order.
//!
//! Digests dominate the size and are incompressible: 32 bytes for each stored chunk.

mod bytes;

use serde::{Deserialize, Serialize};

use crate::publish::digest::Digest;

/// Magic number at the start of a manifest.
pub const MAGIC: [u8; 8] = *b"DWMANIF1";

/// Minimum chunk size in bytes. Chunk sizes are powers of two.
pub(crate) const CHUNK_BYTES_MIN: u32 = 4 << 10;
/// Maximum chunk size in bytes.
pub(crate) const CHUNK_BYTES_MAX: u32 = 16 << 20;

/// Facts about an image, which help people and programs to choose among images.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// `ext4`, `xfs` and so on; empty if the format is unknown.
    pub format: String,
    /// Label, as text.
    pub label: String,
    /// UUID with dashes.
    pub uuid: String,
    /// Block size in bytes; 0 if unknown.
    pub block_bytes: u32,
}

/// A run of consecutive stored chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ChunkRun {
    /// Number of the first chunk.
    first: u32,
    count: u32,
    /// Number of stored chunks before this run.
    before: u32,
}

/// The chunks of an image. All fields are consistent with each other: see [`ManifestError`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    facts: Facts,
    image_bytes: u64,
    chunk_bytes: u32,
    runs: Vec<ChunkRun>,
    digests: Vec<Digest>,
    order: Vec<u32>,
    bundle: Option<Digest>,
}

/// The reason why bytes are not a valid manifest.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ManifestError {
    /// The magic number is missing.
    #[error("not a manifest (wrong magic number)")]
    Magic,
    /// The version is newer than this program.
    #[error(
        "the manifest has version {0}, but this program supports only version 1; use a newer \
         program"
    )]
    Version(u32),
    /// The head cannot be parsed.
    #[error("cannot read its header: {0}")]
    Head(String),
    /// The length does not match the head.
    #[error("its header says {expected} bytes, found {found}")]
    Length {
        /// Length according to the head.
        expected: u64,
        /// Actual length.
        found: u64,
    },
    /// A size is invalid for images or chunks.
    #[error("its {what} is {found}: {rule}")]
    Size {
        /// Name of the field.
        what: &'static str,
        /// Its value.
        found: u64,
        /// The rule that it violates.
        rule: &'static str,
    },
    /// A run of chunks does not fit the image.
    #[error("chunk run {number} {problem}")]
    Run {
        /// Number of the run, from 0.
        number: usize,
        /// Description of the problem.
        problem: &'static str,
    },
    /// The start order names a chunk that is not stored.
    #[error("the chunk order refers to chunk {0}, which is not stored")]
    Order(u32),
}

impl Manifest {
    /// Creates a manifest from the stored chunks: ascending numbers, and digests.
    ///
    /// # Errors
    /// If a size is invalid, or a chunk is past the end or out of order.
    pub fn new(
        facts: Facts,
        image_bytes: u64,
        chunk_bytes: u32,
        chunks: impl IntoIterator<Item = (u32, Digest)>,
    ) -> Result<Self, ManifestError> {
        check_sizes(image_bytes, chunk_bytes)?;
        let (mut runs, mut digests): (Vec<ChunkRun>, Vec<Digest>) = (Vec::new(), Vec::new());
        let end = image_bytes.div_ceil(chunk_bytes.into());
        for (number, digest) in chunks {
            if u64::from(number) >= end {
                let problem = "reaches past the end of the image";
                return Err(ManifestError::Run { number: runs.len(), problem });
            }
            let before = digests.len() as u32;
            match runs.last_mut() {
                Some(run) if run.first + run.count == number => run.count += 1,
                Some(run) if run.first + run.count > number => {
                    return Err(ManifestError::Run {
                        number: runs.len(),
                        problem: "is out of order",
                    });
                }
                _ => runs.push(ChunkRun { first: number, count: 1, before }),
            }
            digests.push(digest);
        }
        Ok(Self { facts, image_bytes, chunk_bytes, runs, digests, order: Vec::new(), bundle: None })
    }

    /// Returns the facts about the image.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Returns the image size in bytes.
    #[must_use]
    pub fn image_bytes(&self) -> u64 {
        self.image_bytes
    }

    /// Returns the chunk size in bytes. The last chunk may be shorter.
    #[must_use]
    pub(crate) fn chunk_bytes(&self) -> u32 {
        self.chunk_bytes
    }

    /// Returns the number of chunks of the image, including zero chunks.
    #[must_use]
    pub fn chunks(&self) -> u32 {
        // `check_sizes` has ensured that this fits.
        self.image_bytes.div_ceil(self.chunk_bytes.into()) as u32
    }

    /// Returns the length of chunk `number` in bytes.
    #[must_use]
    pub(crate) fn len_of(&self, number: u32) -> usize {
        let start = u64::from(number) * u64::from(self.chunk_bytes);
        self.image_bytes.saturating_sub(start).min(self.chunk_bytes.into()) as usize
    }

    /// Returns the digest of a chunk, or `None` if it is zeros.
    #[must_use]
    pub fn digest_of(&self, number: u32) -> Option<Digest> {
        let after = self.runs.partition_point(|run| run.first <= number);
        let run = self.runs[..after].last()?;
        let place = number - run.first;
        (place < run.count).then(|| self.digests[(run.before + place) as usize])
    }

    /// Returns the digests of all stored chunks in image order. A digest may occur more than once.
    #[must_use]
    pub fn digests(&self) -> &[Digest] {
        &self.digests
    }

    /// Returns the chunks that a start reads first, in that order.
    #[must_use]
    pub fn order(&self) -> &[u32] {
        &self.order
    }

    /// Sets the start order. Chunks that are not stored and duplicates are skipped.
    pub fn set_order(&mut self, numbers: impl IntoIterator<Item = u32>) {
        let mut seen = std::collections::HashSet::new();
        self.order = numbers
            .into_iter()
            .filter(|&number| self.digest_of(number).is_some() && seen.insert(number))
            .collect();
    }

    /// Returns the digest of the image's metadata bundle, if it has one.
    #[must_use]
    pub fn bundle(&self) -> Option<Digest> {
        self.bundle
    }

    /// Sets the digest of the image's metadata bundle.
    pub fn set_bundle(&mut self, digest: Option<Digest>) {
        self.bundle = digest;
    }

    fn check_runs(&self) -> Result<(), ManifestError> {
        let chunks = u64::from(self.chunks());
        let mut end = 0;
        for (number, run) in self.runs.iter().enumerate() {
            let wrong = |problem| Err(ManifestError::Run { number, problem });
            if run.count == 0 {
                return wrong("is empty");
            }
            if u64::from(run.first) < end || number > 0 && u64::from(run.first) == end {
                return wrong("is out of order");
            }
            end = u64::from(run.first) + u64::from(run.count);
            if end > chunks {
                return wrong("reaches past the end of the image");
            }
        }
        Ok(())
    }
}

fn check_sizes(image_bytes: u64, chunk_bytes: u32) -> Result<(), ManifestError> {
    let wrong = |what, found, rule| Err(ManifestError::Size { what, found, rule });
    if !chunk_bytes.is_power_of_two() || !(CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&chunk_bytes)
    {
        return wrong(
            "chunk size",
            chunk_bytes.into(),
            "it must be a power of two from 4 KiB to 16 MiB",
        );
    }
    if image_bytes.div_ceil(chunk_bytes.into()) > u64::from(u32::MAX) {
        return wrong(
            "image size",
            image_bytes,
            "an image has at most 2^32 - 1 chunks; choose a larger chunk size",
        );
    }
    Ok(())
}
