//! Encodes and parses manifests.

use serde::{Deserialize, Serialize};

use super::{ChunkRun, Facts, MAGIC, Manifest, ManifestError, check_sizes};
use crate::publish::digest::Digest;

const VERSION: u32 = 1;

/// Maximum size of a head. Its only field of variable size is a short label.
const HEAD_BYTES_MAX: usize = 64 << 10;

const RUN_BYTES: u64 = 8;
const NUMBER_BYTES: u64 = 4;

#[derive(Serialize, Deserialize)]
struct Head {
    version: u32,
    image_bytes: u64,
    chunk_bytes: u32,
    runs: u32,
    chunks_stored: u32,
    order: u32,
    image: Facts,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bundle: Option<Digest>,
}

/// The version field, which heads of all versions have.
#[derive(Deserialize)]
struct AnyHead {
    version: u32,
}

impl Manifest {
    /// Returns the manifest's encoding.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let head = Head {
            version: VERSION,
            image_bytes: self.image_bytes,
            chunk_bytes: self.chunk_bytes,
            runs: self.runs.len() as u32,
            chunks_stored: self.digests.len() as u32,
            order: self.order.len() as u32,
            image: self.facts.clone(),
            bundle: self.bundle,
        };
        let head = serde_json::to_vec(&head).expect("numbers and text");
        let mut bytes = [&MAGIC[..], &(head.len() as u32).to_le_bytes(), &head].concat();
        self.put_chunks(&mut bytes);
        self.order.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        bytes
    }

    /// Returns the digest of the sizes and of all chunks, which identifies the contents of the image.
    #[must_use]
    pub fn contents_digest(&self) -> Digest {
        let mut bytes = self.image_bytes.to_le_bytes().to_vec();
        bytes.extend(self.chunk_bytes.to_le_bytes());
        self.put_chunks(&mut bytes);
        Digest::of(&bytes)
    }

    /// Appends the tables of runs and of digests.
    fn put_chunks(&self, bytes: &mut Vec<u8>) {
        let mut end = 0;
        for run in &self.runs {
            bytes.extend((run.first - end).to_le_bytes());
            bytes.extend(run.count.to_le_bytes());
            end = run.first + run.count;
        }
        self.digests.iter().for_each(|digest| bytes.extend(digest.0));
    }

    /// Parses a manifest. Memory use is proportional to the length of `bytes`, whatever their contents are.
    ///
    /// # Errors
    /// If they are not a manifest, or their values contradict each other.
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        let (head, rest) = split_head(bytes)?;
        check_sizes(head.image_bytes, head.chunk_bytes)?;
        let tables = split_tables(&head, rest, bytes.len())?;
        let manifest = Self {
            runs: parse_runs(tables.runs, head.chunks_stored)?,
            digests: tables.digests.as_chunks().0.iter().copied().map(Digest).collect(),
            order: words(tables.order).collect(),
            facts: head.image,
            bundle: head.bundle,
            image_bytes: head.image_bytes,
            chunk_bytes: head.chunk_bytes,
        };
        manifest.check_runs()?;
        match manifest.order.iter().find(|&&number| manifest.digest_of(number).is_none()) {
            Some(&number) => Err(ManifestError::Order(number)),
            None => Ok(manifest),
        }
    }
}

fn split_head(bytes: &[u8]) -> Result<(Head, &[u8]), ManifestError> {
    let rest = bytes.strip_prefix(&MAGIC).ok_or(ManifestError::Magic)?;
    let (len, rest) = rest.split_first_chunk::<4>().ok_or(ManifestError::Magic)?;
    let len = u32::from_le_bytes(*len) as usize;
    if len > HEAD_BYTES_MAX || len > rest.len() {
        return Err(ManifestError::Head(format!("the manifest has {len} bytes")));
    }
    let (head, rest) = rest.split_at(len);
    let unreadable = |e: serde_json::Error| ManifestError::Head(e.to_string());
    let any: AnyHead = serde_json::from_slice(head).map_err(unreadable)?;
    if any.version != VERSION {
        return Err(ManifestError::Version(any.version));
    }
    Ok((serde_json::from_slice(head).map_err(unreadable)?, rest))
}

/// The tables after the head.
struct Tables<'a> {
    runs: &'a [u8],
    digests: &'a [u8],
    order: &'a [u8],
}

/// Splits the tables. Their total length must match the head exactly.
fn split_tables<'a>(
    head: &Head,
    rest: &'a [u8],
    found: usize,
) -> Result<Tables<'a>, ManifestError> {
    let runs = u64::from(head.runs) * RUN_BYTES;
    let digests = u64::from(head.chunks_stored) * Digest::BYTES as u64;
    let order = u64::from(head.order) * NUMBER_BYTES;
    let before = (found - rest.len()) as u64;
    if rest.len() as u64 != runs + digests + order {
        let expected = before + runs + digests + order;
        return Err(ManifestError::Length { expected, found: found as u64 });
    }
    // The lengths fit `usize`: the tables are part of a slice in memory.
    let (runs, rest) = rest.split_at(runs as usize);
    let (digests, order) = rest.split_at(digests as usize);
    Ok(Tables { runs, digests, order })
}

/// Parses the runs and checks that their chunks add up to `stored`. The caller checks their positions.
fn parse_runs(bytes: &[u8], stored: u32) -> Result<Vec<ChunkRun>, ManifestError> {
    let (mut end, mut before) = (0_u32, 0_u32);
    let pairs: Vec<u32> = words(bytes).collect();
    let mut runs = Vec::with_capacity(pairs.len() / 2);
    for (number, &[zeros, count]) in pairs.as_chunks::<2>().0.iter().enumerate() {
        let wrong = |problem| ManifestError::Run { number, problem };
        let too_far = || wrong("reaches past the end of the image");
        let first = end.checked_add(zeros).ok_or_else(too_far)?;
        runs.push(ChunkRun { first, count, before });
        end = first.checked_add(count).ok_or_else(too_far)?;
        before = before.checked_add(count).ok_or_else(too_far)?;
    }
    if before != stored {
        let number = runs.len().saturating_sub(1);
        let problem = "has another number of chunks than digests";
        return Err(ManifestError::Run { number, problem });
    }
    Ok(runs)
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word))
}
