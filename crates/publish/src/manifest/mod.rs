//! Manifests: which chunks make an image, and what is known of it. [`Manifest::parse`] and [`Manifest::to_bytes`] are pure.
//!
//! Numbers are little-endian. A manifest is
//! - the magic `DWMANIF1` and the length of the head (u32),
//! - the head, one JSON object: version, sizes, what the image is, how many of the rest there are,
//! - runs: how many chunks are zeros, and how many after them are stored (u32 each),
//! - digests of the stored chunks, in the order of the image,
//! - numbers of the chunks that a start touches first (u32 each), in that order.
//!
//! Digests are what a manifest is made of, and nothing makes them smaller: 32 bytes for each chunk that is stored.

mod bytes;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;

/// First bytes of a manifest.
pub const MAGIC: [u8; 8] = *b"DWMANIF1";

/// Sizes that chunks may have, in bytes: powers of two.
pub const CHUNK_BYTES_MIN: u32 = 4 << 10;
/// The largest size of chunks.
pub const CHUNK_BYTES_MAX: u32 = 16 << 20;

/// What an image is, as its format tells: for people and programs that choose among images.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// `ext4`, `xfs` and so on; empty if it has no format that is known.
    pub format: String,
    /// Label, as text.
    pub label: String,
    /// UUID with dashes.
    pub uuid: String,
    /// Bytes of a block; 0 if not known.
    pub block_bytes: u32,
}

/// Chunks that are stored, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// Number of the first.
    first: u32,
    count: u32,
    /// How many are stored before it.
    before: u32,
}

/// Which chunks make an image. All that it says fits together: see [`ManifestError`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    facts: Facts,
    image_bytes: u64,
    chunk_bytes: u32,
    runs: Vec<Run>,
    digests: Vec<Digest>,
    order: Vec<u32>,
}

/// Why bytes are no manifest.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ManifestError {
    /// They begin otherwise.
    #[error("it does not begin as a manifest does")]
    Magic,
    /// It was made by a program that knows more.
    #[error("it is of version {0}, and this program knows version 1: use a newer one")]
    Version(u32),
    /// The head cannot be read.
    #[error("its head cannot be read: {0}")]
    Head(String),
    /// It is shorter or longer than what its head says.
    #[error("it should have {expected} bytes by its head and has {found}")]
    Length {
        /// Bytes by the head.
        expected: u64,
        /// Bytes that there are.
        found: u64,
    },
    /// A size is none that images or chunks can have.
    #[error("its {what} is {found}: {rule}")]
    Size {
        /// Which size.
        what: &'static str,
        /// What it is.
        found: u64,
        /// What it must be.
        rule: &'static str,
    },
    /// Runs of chunks do not fit the image.
    #[error("run {number} of its chunks {problem}")]
    Run {
        /// Which run, from 0.
        number: usize,
        /// What is wrong.
        problem: &'static str,
    },
    /// The order of a start names a chunk that is not stored.
    #[error("its order names chunk {0}, which is not stored")]
    Order(u32),
}

impl Manifest {
    /// A manifest of the chunks that are stored: numbers in rising order, and digests.
    ///
    /// # Errors
    /// If sizes cannot be, or a chunk lies past the end or out of order.
    pub fn new(
        facts: Facts,
        image_bytes: u64,
        chunk_bytes: u32,
        chunks: impl IntoIterator<Item = (u32, Digest)>,
    ) -> Result<Self, ManifestError> {
        check_sizes(image_bytes, chunk_bytes)?;
        let (mut runs, mut digests): (Vec<Run>, Vec<Digest>) = (Vec::new(), Vec::new());
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
                _ => runs.push(Run { first: number, count: 1, before }),
            }
            digests.push(digest);
        }
        Ok(Self { facts, image_bytes, chunk_bytes, runs, digests, order: Vec::new() })
    }

    /// What the image is.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Bytes of the image.
    #[must_use]
    pub fn image_bytes(&self) -> u64 {
        self.image_bytes
    }

    /// Bytes of a chunk; the last may have fewer.
    #[must_use]
    pub fn chunk_bytes(&self) -> u32 {
        self.chunk_bytes
    }

    /// Chunks of the image, those of zeros too.
    #[must_use]
    pub fn chunks(&self) -> u32 {
        // What `check_sizes` has seen to.
        self.image_bytes.div_ceil(self.chunk_bytes.into()) as u32
    }

    /// Bytes of a chunk of the image.
    #[must_use]
    pub fn len_of(&self, number: u32) -> usize {
        let start = u64::from(number) * u64::from(self.chunk_bytes);
        self.image_bytes.saturating_sub(start).min(self.chunk_bytes.into()) as usize
    }

    /// The digest of a chunk; `None` if it is zeros.
    #[must_use]
    pub fn digest_of(&self, number: u32) -> Option<Digest> {
        let after = self.runs.partition_point(|run| run.first <= number);
        let run = self.runs[..after].last()?;
        let place = number - run.first;
        (place < run.count).then(|| self.digests[(run.before + place) as usize])
    }

    /// Digests of all chunks that are stored, in the order of the image; some may be there more than once.
    #[must_use]
    pub fn digests(&self) -> &[Digest] {
        &self.digests
    }

    /// Chunks that a start touches first, in that order.
    #[must_use]
    pub fn order(&self) -> &[u32] {
        &self.order
    }

    /// Sets the order: of these chunks those that are stored, each once.
    pub fn set_order(&mut self, numbers: impl IntoIterator<Item = u32>) {
        let mut seen = std::collections::HashSet::new();
        self.order = numbers
            .into_iter()
            .filter(|&number| self.digest_of(number).is_some() && seen.insert(number))
            .collect();
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
            "an image has at most 2^32 - 1 chunks: take larger ones",
        );
    }
    Ok(())
}
