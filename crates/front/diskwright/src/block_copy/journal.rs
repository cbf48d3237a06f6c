//! Journal of a copy in progress: the chunks of OUT that are durable.
//!
//! Its lines are those of a state file. A line `check` with the SHA-256 of all lines before it follows each batch. Lines
//! after the last one were being written when the copy was interrupted, and do not count.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use disk::FileAt;
use sha2::{Digest as _, Sha256};

use super::chunk::{CHUNK_BYTES, Digest};
use super::lines::Lines;
use super::state::{ChunkDigest, CopiedSystem};
use crate::copy_error::{CopyError, StateError};
use crate::text::hex;
use crate::{Error, Result, lock};

const TITLE: &str = "diskwright copy journal 1";

/// Maximum time between two batches.
const BATCH_TIME: Duration = Duration::from_secs(10);

/// Chunks of a copy that was interrupted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JournaledCopy {
    pub(super) system: CopiedSystem,
    /// Identifies the state of the source.
    pub(super) fingerprint: Digest,
    /// Chunks that were written, in any order.
    pub(super) chunks: Vec<ChunkDigest>,
    /// Length of the part of the file that counts.
    len: usize,
}

impl JournaledCopy {
    /// Parses a journal.
    ///
    /// # Errors
    /// If a line before the last check is invalid, or a digest does not match.
    pub(super) fn parse(text: &[u8]) -> Result<Self, StateError> {
        let len = end_of_checks(text);
        let text = &text[..len];
        let mut lines = Lines::new(text);
        lines.literal(TITLE)?;
        let system = CopiedSystem::parse(&mut lines)?;
        let fingerprint = lines.field("fingerprint", "a digest", super::lines::parse_digest)?;
        let (mut chunks, mut hash, mut hashed) = (Vec::new(), Sha256::new(), 0);
        if !text.windows(7).any(|window| window == b"\ncheck ") {
            return Err(lines.wrong("lines with a check"));
        }
        while !lines.is_at_end() {
            if lines.is_next("check ") {
                let before = lines.next_start();
                hash.update(&text[hashed..before]);
                hashed = before;
                lines.digest("check", hash.clone().finalize().into())?;
            } else {
                chunks.push(ChunkDigest::parse(&mut lines, &system)?);
            }
        }
        Ok(Self { system, fingerprint, chunks, len })
    }
}

/// Returns the end of the last line with a check.
fn end_of_checks(text: &[u8]) -> usize {
    let mut end = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
    while end > 0 {
        let start = text[..end - 1].iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        if text[start..end].starts_with(b"check ") {
            return end;
        }
        end = start;
    }
    text.len()
}

/// Returns the lines before the first check.
fn head(system: &CopiedSystem, fingerprint: Digest) -> Vec<u8> {
    let mut head = Vec::new();
    writeln!(head, "{TITLE}").and_then(|()| system.write(&mut head)).expect("memory");
    writeln!(head, "fingerprint {}", hex(&fingerprint)).expect("memory");
    head
}

/// Returns a journal without chunks.
fn head_with_check(system: &CopiedSystem, fingerprint: Digest) -> Vec<u8> {
    let mut lines = head(system, fingerprint);
    let check = check_line(&Sha256::new_with_prefix(&lines));
    lines.extend_from_slice(check.as_bytes());
    lines
}

/// Returns the line after lines with this hash.
fn check_line(hash: &Sha256) -> String {
    format!("check {}\n", hex(&hash.clone().finalize()))
}

/// A journal that is being written.
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    /// Hash of the file so far.
    hash: Sha256,
    /// Lines that are not written yet.
    batch: Vec<u8>,
    batch_bytes: u64,
    batch_max: u64,
    began: Instant,
}

impl Journal {
    /// Begins the journal of a copy. Replaces an existing file.
    pub(super) fn create(
        path: &Path,
        system: &CopiedSystem,
        fingerprint: Digest,
        batch_max: u64,
    ) -> Result<Self> {
        let failed = |e| Error::host("write", path, e);
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
        let file = lock::open_to_write(path)?;
        file.set_len(0).map_err(failed)?;
        let mut journal = Self::new(path, file, batch_max);
        journal.batch = head(system, fingerprint);
        journal.commit()?;
        Ok(journal)
    }

    fn new(path: &Path, file: File, batch_max: u64) -> Self {
        Self {
            path: path.to_owned(),
            file,
            hash: Sha256::new(),
            batch: Vec::new(),
            batch_bytes: 0,
            batch_max,
            began: Instant::now(),
        }
    }

    /// Opens the journal of an interrupted copy. New lines follow its last check. `system` and `fingerprint` are those
    /// of the source, for a copy that was interrupted while it wrote the head of its journal.
    pub(super) fn open(
        path: &Path,
        system: &CopiedSystem,
        fingerprint: Digest,
        batch_max: u64,
    ) -> Result<(Self, JournaledCopy)> {
        if !path.exists() {
            return Err(CopyError::NothingToResume { file: path.to_owned() }.into());
        }
        let file = lock::open_to_write(path)?;
        let failed = |e| Error::host("read", path, e);
        let mut text = std::fs::read(path).map_err(failed)?;
        let head = head_with_check(system, fingerprint);
        if text.len() < head.len() && head.starts_with(&text) {
            let written = file.write_all_at(&head, 0).and_then(|()| file.sync_data());
            written.map_err(|e| Error::host("write", path, e))?;
            text = head;
        }
        let copy = JournaledCopy::parse(&text)
            .map_err(|error| CopyError::State { file: path.to_owned(), error })?;
        file.set_len(copy.len as u64).map_err(failed)?;
        let mut journal = Self::new(path, file, batch_max);
        journal.file.seek(SeekFrom::Start(copy.len as u64)).map_err(failed)?;
        // The check line itself is hashed for the next check.
        journal.hash.update(&text[..copy.len]);
        Ok((journal, copy))
    }

    /// Adds a chunk that was written, but may not be durable.
    pub(super) fn add(&mut self, chunk: ChunkDigest) {
        chunk.write(&mut self.batch).expect("memory");
        self.batch_bytes += CHUNK_BYTES;
    }

    /// Returns whether the chunks of the batch should be made durable, for [`Self::commit`].
    pub(super) fn is_due(&self) -> bool {
        self.batch_bytes >= self.batch_max || self.began.elapsed() >= BATCH_TIME
    }

    /// Writes the batch. Its chunks are durable.
    pub(super) fn commit(&mut self) -> Result<()> {
        self.hash.update(&self.batch);
        let line = check_line(&self.hash);
        self.hash.update(&line);
        self.batch.extend_from_slice(line.as_bytes());
        let written = self.file.write_all(&self.batch).and_then(|()| self.file.sync_data());
        written.map_err(|e| Error::host("write", &self.path, e))?;
        self.batch.clear();
        (self.batch_bytes, self.began) = (0, Instant::now());
        Ok(())
    }

    pub(super) fn remove(self) -> Result<()> {
        std::fs::remove_file(&self.path).map_err(|e| Error::host("remove", &self.path, e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_copy::state::tests::sample;

    #[test]
    fn lines_after_the_last_check_do_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let state = sample();
        let mut journal = Journal::create(&path, &state.system, [7; 32], CHUNK_BYTES).unwrap();
        assert!(!journal.is_due());
        journal.add(state.chunks[1]);
        assert!(journal.is_due());
        journal.commit().unwrap();
        drop(journal);
        let whole = std::fs::read(&path).unwrap();
        let expected = JournaledCopy {
            system: state.system.clone(),
            fingerprint: [7; 32],
            chunks: vec![state.chunks[1]],
            len: whole.len(),
        };
        let torn = [&whole[..], b"4 9f86d0\n5 00"].concat();
        assert_eq!(JournaledCopy::parse(&torn).unwrap(), expected);
        std::fs::write(&path, torn).unwrap();
        let open = || Journal::open(&path, &state.system, [7; 32], CHUNK_BYTES);
        let (mut journal, found) = open().unwrap();
        assert_eq!(found, expected);
        journal.add(state.chunks[2]);
        journal.commit().unwrap();
        drop(journal);
        let text = std::fs::read(&path).unwrap();
        assert_eq!(JournaledCopy::parse(&text).unwrap().chunks, state.chunks[1..]);
        for at in 0..whole.len() {
            let mut changed = text.clone();
            changed[at] ^= 1;
            let found = JournaledCopy::parse(&changed);
            assert!(found.is_err(), "byte {at}: {found:?}");
        }
    }

    #[test]
    fn a_journal_with_a_part_of_its_head_is_begun_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let system = sample().system;
        drop(Journal::create(&path, &system, [7; 32], CHUNK_BYTES).unwrap());
        let whole = std::fs::read(&path).unwrap();
        for len in 0..whole.len() {
            std::fs::write(&path, &whole[..len]).unwrap();
            let (_, found) = Journal::open(&path, &system, [7; 32], CHUNK_BYTES).unwrap();
            assert_eq!((found.chunks.len(), std::fs::read(&path).unwrap()), (0, whole.clone()));
            // The head of another copy.
            std::fs::write(&path, &whole[..len]).unwrap();
            let other = Journal::open(&path, &system, [8; 32], CHUNK_BYTES);
            let is_common = head(&system, [8; 32]).starts_with(&whole[..len]);
            assert_eq!(other.is_ok(), is_common, "{len} bytes");
        }
    }
}
