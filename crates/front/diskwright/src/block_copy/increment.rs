//! Increments: the chunks that changed between two copies.
//!
//! | bytes | contents |
//! |---|---|
//! | 4096 | a line with the title, and zeros |
//! | 1 MiB for each changed chunk | its contents, in the order of the index; the last chunk of the image is followed by zeros |
//! | | the index: lines of text |
//! | 90 | a line `end`: the offset of the index with 20 digits, and its SHA-256 |
//!
//! The index begins like a state file, with the digests of the base and of the new copy. A line for each chunk follows:
//!
//! ```text
//! 17 = 60303a…       unchanged, with its digest
//! 18 9f86d0… 5feceb… changed: the digests before and after
//! 19 - 6b86b2…       not in the base
//! 20 d4735e… -       no longer in use
//! ```
//!
//! The first chunk counts as changed always, because [`super::restore`] writes it last.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use disk::FileAt;
use disk::output::{Raw, for_each_chunk, write_sparse};
use sha2::{Digest as _, Sha256};

use super::chunk::{CHUNK_BYTES, Digest};
use super::lines::{Lines, parse_digest};
use super::raw::ChunkFailure;
use super::source::{HashedDevice, Source};
use super::state::{ChunkDigest, CopiedSystem, CopyState, digest_of};
use super::{Copied, CopyOptions, Progress};
use crate::copy_error::{CopyError, StateError};
use crate::replace::Replacement;
use crate::text::hex;
use crate::{Error, Result};

/// First line of an increment.
const TITLE: &str = "diskwright increment 1";

/// Offset of the first chunk.
const DATA_START: u64 = 4096;

/// Length of the last line.
const END_BYTES: u64 = 90;

/// Change of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkChange {
    pub(super) number: u64,
    /// `None` if no block of it was in use.
    pub(super) old: Option<Digest>,
    /// `None` if no block of it is in use now.
    pub(super) new: Option<Digest>,
    /// True if the contents are in the increment.
    pub(super) has_data: bool,
}

impl ChunkChange {
    fn write(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let digest =
            |digest: Option<Digest>| digest.map_or_else(|| "-".into(), |digest| hex(&digest));
        let old = if self.new.is_some() && !self.has_data { "=".into() } else { digest(self.old) };
        writeln!(out, "{} {old} {}", self.number, digest(self.new))
    }
}

/// Index of an increment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncrementIndex {
    pub(super) system: CopiedSystem,
    /// Digest of the state of the base.
    pub(super) base: Digest,
    /// Chunks of the base and of the new copy, in order.
    pub(super) changes: Vec<ChunkChange>,
}

impl IncrementIndex {
    /// Parses an index, without the last line of the file.
    ///
    /// # Errors
    /// If a line is invalid, or the digests of the copies do not match.
    pub fn parse(text: &[u8]) -> Result<Self, StateError> {
        let mut lines = Lines::new(text);
        let system = CopiedSystem::parse(&mut lines)?;
        let base = lines.field("base", "a digest", parse_digest)?;
        let image = lines.field("image", "a digest", parse_digest)?;
        let mut index = Self { system, base, changes: Vec::new() };
        while !lines.is_at_end() {
            let change = index.change(&mut lines)?;
            let is_first = index.changes.is_empty();
            if is_first && (change.number != 0 || !change.has_data) {
                return Err(lines.wrong("contents of chunk 0"));
            }
            if index.changes.last().is_some_and(|before| before.number >= change.number) {
                return Err(lines.wrong("a higher chunk number than in the line before"));
            }
            index.changes.push(change);
        }
        for (name, stored, computed) in [
            ("base", base, index.digest(|change| change.old)),
            ("image", image, index.new_digest()),
        ] {
            if stored != computed {
                let expected = format!("chunks of the {name} {}", hex(&stored));
                return Err(StateError { line: 0, expected, found: hex(&computed) });
            }
        }
        Ok(index)
    }

    fn change(&self, lines: &mut Lines<'_>) -> Result<ChunkChange, StateError> {
        let line = lines.next("a chunk")?;
        let expected = "a chunk number and two digests";
        let mut words = line.split(' ');
        let (Some(number), Some(old), Some(new), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(lines.wrong(expected));
        };
        let number = lines.chunk_number(number, self.system.chunks())?;
        let digest = |word: &str| match word {
            "-" => Ok(None),
            _ => parse_digest(word).map(Some).ok_or_else(|| lines.wrong(expected)),
        };
        let new = digest(new)?;
        if old == "=" && new.is_some() {
            return Ok(ChunkChange { number, old: new, new, has_data: false });
        }
        let old = digest(old)?;
        if old.is_none() && new.is_none() {
            return Err(lines.wrong(expected));
        }
        Ok(ChunkChange { number, old, new, has_data: new.is_some() })
    }

    fn digest(&self, side: impl Fn(&ChunkChange) -> Option<Digest>) -> Digest {
        digest_of(self.changes.iter().filter_map(|change| {
            side(change).map(|sha256| ChunkDigest { number: change.number, sha256 })
        }))
    }

    /// Returns the digest of the state of the new copy.
    pub(super) fn new_digest(&self) -> Digest {
        self.digest(|change| change.new)
    }

    /// Returns the changes with contents, each with the offset of its contents.
    pub(super) fn contents(&self) -> impl Iterator<Item = (ChunkChange, u64)> {
        let changes = self.changes.iter().filter(|change| change.has_data);
        changes.zip(0..).map(|(change, nth)| (*change, DATA_START + nth * CHUNK_BYTES))
    }

    /// Returns the length of all before the index.
    fn data_end(&self) -> u64 {
        let count = self.changes.iter().filter(|change| change.has_data).count() as u64;
        DATA_START.saturating_add(count.saturating_mul(CHUNK_BYTES))
    }

    fn to_text(&self) -> Vec<u8> {
        let mut text = Vec::with_capacity(160 * (self.changes.len() + 4));
        self.system.write(&mut text).expect("memory");
        writeln!(text, "base {}\nimage {}", hex(&self.base), hex(&self.new_digest()))
            .expect("memory");
        for change in &self.changes {
            change.write(&mut text).expect("memory");
        }
        text
    }

    /// Reads the index of an increment. Also returns its digest, which identifies the increment.
    pub(super) fn read(path: &Path, file: &File) -> Result<(Self, Digest)> {
        let failed = |e| Error::host("read", path, e);
        let wrong = |what: &str, expected: String, found: String| CopyError::Increment {
            file: path.to_owned(),
            what: what.into(),
            expected,
            found,
        };
        let len = file.metadata().map_err(failed)?.len();
        let mut title = [0; DATA_START as usize];
        let mut last = [0; END_BYTES as usize];
        let expected = format!("{TITLE}\n");
        if len >= DATA_START + END_BYTES {
            file.read_exact_at(&mut title, 0).map_err(failed)?;
            file.read_exact_at(&mut last, len - END_BYTES).map_err(failed)?;
        }
        if !title.starts_with(expected.as_bytes()) {
            let found = String::from_utf8_lossy(&title[..expected.len()]).into_owned();
            return Err(wrong("title", TITLE.into(), format!("{found:?}")).into());
        }
        let parsed =
            parse_end(&last).filter(|(start, _)| (DATA_START..=len - END_BYTES).contains(start));
        let Some((start, stored)) = parsed else {
            let found = String::from_utf8_lossy(&last).into_owned();
            let expected = "\"end\", the offset of the index and its digest".into();
            return Err(wrong("last line", expected, format!("{found:?}")).into());
        };
        let mut text = vec![0; (len - END_BYTES - start) as usize];
        file.read_exact_at(&mut text, start).map_err(failed)?;
        let computed: Digest = Sha256::digest(&text).into();
        if computed != stored {
            return Err(wrong("digest of the index", hex(&stored), hex(&computed)).into());
        }
        let index = Self::parse(&text)
            .map_err(|error| wrong("index", "valid lines".into(), error.to_string()))?;
        if index.data_end() != start {
            let found = start.to_string();
            return Err(wrong("offset of the index", index.data_end().to_string(), found).into());
        }
        Ok((index, computed))
    }
}

fn parse_end(line: &[u8; END_BYTES as usize]) -> Option<(u64, Digest)> {
    let line = std::str::from_utf8(line).ok()?;
    let (start, digest) = line.strip_prefix("end ")?.strip_suffix('\n')?.split_once(' ')?;
    Some((start.parse().ok()?, parse_digest(digest)?))
}

/// Writes the changes of an image since `base` into an empty file.
pub(super) fn write(
    options: &CopyOptions,
    source: &Source,
    base: &CopyState,
    new: &Replacement,
    progress: Progress<'_>,
) -> Result<Copied> {
    let out = new.file();
    let failed = |e| Error::host("write", &options.out, e);
    let total = source.system.bytes;
    let hashed = HashedDevice::new(&source.device);
    let raw = Raw::of_device(&hashed, source.unused_chunks()).readers(options.threads);
    let tell = |done| hashed.note(progress("changed blocks", done, total));
    let (mut place, mut written_bytes) = (DATA_START, 0);
    let each = |at, bytes: &[u8]| {
        hashed.check_stopped()?;
        let number = at / CHUNK_BYTES;
        if number == 0 || base.find(number) != Some(hashed.digest(number).sha256) {
            write_sparse(out, place, bytes).map_err(failed)?;
            place += CHUNK_BYTES;
            written_bytes += bytes.len() as u64;
        }
        Ok(())
    };
    let written = for_each_chunk(&raw, &tell, each);
    hashed.check_stopped()?;
    written.map_err(|failure: ChunkFailure| failure.into_error(options))?;
    drop(raw);
    let state = CopyState { system: source.system.clone(), chunks: hashed.into_digests() };
    let index = IncrementIndex {
        system: state.system.clone(),
        base: base.digest(),
        changes: changes(base, &state),
    };
    let text = index.to_text();
    let end = format!("end {place:020} {}\n", hex(&Sha256::digest(&text)));
    out.write_all_at(format!("{TITLE}\n").as_bytes(), 0)
        .and_then(|()| out.write_all_at(&text, place))
        .and_then(|()| out.write_all_at(end.as_bytes(), place + text.len() as u64))
        .map_err(failed)?;
    let written_chunks = (place - DATA_START) / CHUNK_BYTES;
    Ok(Copied { state, written_chunks, written_bytes })
}

/// Returns the changes of all chunks, in order.
fn changes(base: &CopyState, new: &CopyState) -> Vec<ChunkChange> {
    let changed = new.chunks.iter().map(|chunk| {
        let (number, old, new) = (chunk.number, base.find(chunk.number), Some(chunk.sha256));
        ChunkChange { number, old, new, has_data: number == 0 || old != new }
    });
    let freed = base.chunks.iter().filter(|chunk| new.find(chunk.number).is_none());
    let freed = freed.map(|chunk| {
        let (number, old) = (chunk.number, Some(chunk.sha256));
        ChunkChange { number, old, new: None, has_data: false }
    });
    let mut changes: Vec<ChunkChange> = changed.chain(freed).collect();
    changes.sort_unstable_by_key(|change| change.number);
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_copy::state::tests::sample;

    fn index() -> IncrementIndex {
        let base = sample();
        let mut new = base.clone();
        new.chunks[1].sha256 = [3; 32];
        new.chunks[2] = ChunkDigest { number: 2, sha256: [4; 32] };
        IncrementIndex {
            system: base.system.clone(),
            base: base.digest(),
            changes: changes(&base, &new),
        }
    }

    #[test]
    fn an_index_is_read_as_it_was_written() {
        let index = index();
        let kinds: Vec<_> = index
            .changes
            .iter()
            .map(|it| (it.number, it.old.is_some(), it.new.is_some(), it.has_data))
            .collect();
        let expected = [
            (0, true, true, true),
            (1, true, true, true),
            (2, false, true, true),
            (4, true, false, false),
        ];
        assert_eq!(kinds, expected);
        assert_eq!(IncrementIndex::parse(&index.to_text()).unwrap(), index);
        let places: Vec<u64> = index.contents().map(|(_, place)| place).collect();
        assert_eq!(places, [4096, 4096 + CHUNK_BYTES, 4096 + 2 * CHUNK_BYTES]);
    }

    #[test]
    fn each_changed_byte_of_an_index_is_found() {
        let text = index().to_text();
        for at in 0..text.len() {
            let mut changed = text.clone();
            changed[at] ^= 1;
            if let Ok(found) = IncrementIndex::parse(&changed) {
                // The digest of the index covers the head.
                assert!(found.system != index().system, "byte {at}");
            }
        }
    }
}
