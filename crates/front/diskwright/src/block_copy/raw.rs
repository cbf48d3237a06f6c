//! Raw copies written in place: to a block device, or with a state to a file that gets its name when it is complete.

use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use disk::output::{Error as OutputError, Raw, for_each_chunk};

use super::chunk::{CHUNK_BYTES, Digest, chunk_bytes};
use super::journal::{Journal, JournaledCopy};
use super::source::{HashedDevice, Source};
use super::state::{ChunkDigest, CopyState};
use super::target::{InPlace, Marker, is_device, new_file, part_of, sync_directory_of};
use super::{CopyOptions, CopyReport, Progress, fill_report, output_error, write_state};
use crate::copy_error::CopyError;
use crate::replace::Replacement;
use crate::{Error, Result};

/// Word of the marker.
const VERB: &str = "copy";

/// Failure of the loop over chunks.
pub(super) enum ChunkFailure {
    Source(OutputError),
    Other(Error),
}

impl From<OutputError> for ChunkFailure {
    fn from(error: OutputError) -> Self {
        Self::Source(error)
    }
}

impl From<Error> for ChunkFailure {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl ChunkFailure {
    pub(super) fn into_error(self, options: &CopyOptions) -> Error {
        match self {
            Self::Source(error) => output_error(options, error),
            Self::Other(error) => error,
        }
    }
}

/// Destination of a copy.
struct Destination {
    target: InPlace,
    /// The file until it is complete; that of the device for a device.
    place: PathBuf,
    journal: Option<Journal>,
    /// Chunks that an interrupted copy had written.
    done: Vec<ChunkDigest>,
}

/// Copies to `options.out` in place.
pub(super) fn copy(
    options: &CopyOptions,
    state: Option<(&Path, Replacement)>,
    progress: Progress<'_>,
) -> Result<CopyReport> {
    let is_device = is_device(&options.out);
    if is_device && !options.force && !options.resume {
        return Err(crate::lock::Refused::Exists.at("write", &options.out));
    }
    // Refuses an existing file, and keeps it locked until the copy replaces it.
    let claim = if is_device { None } else { Some(new_file(&options.out, options.force)?) };
    let place = if is_device { options.out.clone() } else { part_of(&options.out) };
    let journal_path = options.state.as_deref().map(part_of);
    refuse_interrupted(options, &place, is_device, journal_path.as_deref())?;
    let source = Source::open(&options.image, &options.open, progress)?;
    let fingerprint = match journal_path {
        Some(_) => source.fingerprint(&options.image)?,
        None => [0; 32],
    };
    let mut to = match (options.resume, &journal_path) {
        (true, Some(journal)) => reopen(options, &source, &place, journal, fingerprint, progress)?,
        _ => begin(options, &source, place, journal_path.as_deref(), fingerprint)?,
    };
    let mut report = CopyReport::default();
    let chunks = write(options, &source, &mut to, &mut report, progress)?;
    to.target.finish()?;
    let state_of_copy = CopyState { system: source.system.clone(), chunks };
    fill_report(&mut report, &source, &state_of_copy);
    write_state(state, &state_of_copy)?;
    drop(claim);
    if !is_device {
        std::fs::rename(&to.place, &options.out)
            .map_err(|e| Error::host("create", &options.out, e))?;
        sync_directory_of(&options.out)?;
    }
    if let Some(journal) = to.journal {
        journal.remove()?;
    }
    Ok(report)
}

/// Refuses to overwrite an interrupted copy.
fn refuse_interrupted(
    options: &CopyOptions,
    place: &Path,
    is_device: bool,
    journal: Option<&Path>,
) -> Result<()> {
    if options.force || options.resume {
        return Ok(());
    }
    let of_copy = (!is_device).then_some(place);
    match of_copy.into_iter().chain(journal).find(|file| file.exists()) {
        Some(file) => Err(CopyError::Interrupted { file: file.to_owned() }.into()),
        None => Ok(()),
    }
}

fn begin(
    options: &CopyOptions,
    source: &Source,
    place: PathBuf,
    journal: Option<&Path>,
    fingerprint: Digest,
) -> Result<Destination> {
    // An interrupted copy without its journal could not be resumed.
    let create = |path| Journal::create(path, &source.system, fingerprint, options.batch_bytes);
    let journal = journal.map(create).transpose()?;
    let target = marked(&place, source.system.bytes, fingerprint)?;
    Ok(Destination { target, place, journal, done: Vec::new() })
}

/// Creates a file with the marker, or marks a device.
fn marked(place: &Path, len: u64, fingerprint: Digest) -> Result<InPlace> {
    let target = match is_device(place) {
        true => InPlace::open(place, len, false)?,
        false => InPlace::create(place, len)?,
    };
    target.mark(&Marker::new(VERB, fingerprint))?;
    Ok(target)
}

/// Opens an interrupted copy. Chunks of it that are damaged are copied again.
fn reopen(
    options: &CopyOptions,
    source: &Source,
    place: &Path,
    journal: &Path,
    fingerprint: Digest,
    progress: Progress<'_>,
) -> Result<Destination> {
    let (journal, JournaledCopy { system, fingerprint: of_copy, chunks, .. }) =
        Journal::open(journal, &source.system, fingerprint, options.batch_bytes)?;
    if system != source.system || of_copy != fingerprint {
        return Err(CopyError::Changed { file: options.image.clone() }.into());
    }
    let is_device = is_device(place);
    if chunks.is_empty() && !is_device {
        // It may have been interrupted before it marked the file.
        let target = marked(place, source.system.bytes, fingerprint)?;
        let place = place.to_owned();
        return Ok(Destination { target, place, journal: Some(journal), done: chunks });
    }
    if !place.exists() {
        return Err(CopyError::NothingToResume { file: place.to_owned() }.into());
    }
    let target = InPlace::open(place, source.system.bytes, !is_device)?;
    let device = target.device()?;
    let mut first = vec![0; chunk_bytes(0, source.system.bytes) as usize];
    device.read_at(0, &mut first).map_err(|e| Error::host("read", place, e))?;
    if !Marker::new(VERB, fingerprint).is_at_start(&first) {
        // It may be complete except for its name.
        let mut expected = vec![0; first.len()];
        let read = disk::BlockDevice::read_at(&source.device, 0, &mut expected);
        read.map_err(|e| Error::host("read", &options.image, e))?;
        if first != expected {
            return Err(CopyError::OtherCopy { file: place.to_owned() }.into());
        }
    }
    let done = sound_chunks(&*device, place, chunks, progress)?;
    Ok(Destination { target, place: place.to_owned(), journal: Some(journal), done })
}

/// Returns the chunks whose contents have their digest.
fn sound_chunks(
    device: &dyn disk::BlockDevice,
    place: &Path,
    mut chunks: Vec<ChunkDigest>,
    progress: Progress<'_>,
) -> Result<Vec<ChunkDigest>> {
    chunks.sort_unstable_by_key(|chunk| chunk.number);
    let total = device.len();
    let hashed = HashedDevice::new(device);
    let raw = Raw::of_device(&hashed, without(total, &chunks)).readers(2);
    let tell = |done| hashed.note(progress("verifying the copy", done, total));
    let each = |_, _: &[u8]| Ok::<(), OutputError>(());
    let read = for_each_chunk(&raw, &tell, each);
    hashed.check_stopped()?;
    read.map_err(|error| Error::host("read", place, std::io::Error::other(error)))?;
    drop(raw);
    let found: HashSet<ChunkDigest> = hashed.into_digests().into_iter().collect();
    chunks.retain(|chunk| found.contains(chunk));
    chunks.dedup();
    Ok(chunks)
}

/// Returns the ranges of `total` bytes without these chunks, which are in order.
pub(super) fn without(total: u64, chunks: &[ChunkDigest]) -> Vec<Range<u64>> {
    let mut rest = Vec::new();
    let mut at = 0;
    for chunk in chunks {
        let start = chunk.number * CHUNK_BYTES;
        if start > at {
            rest.push(at..start);
        }
        at = start + CHUNK_BYTES;
    }
    if at < total {
        rest.push(at..total.next_multiple_of(CHUNK_BYTES));
    }
    rest
}

/// Writes all chunks that are not done. Returns the digests of all.
fn write(
    options: &CopyOptions,
    source: &Source,
    to: &mut Destination,
    report: &mut CopyReport,
    progress: Progress<'_>,
) -> Result<Vec<ChunkDigest>> {
    let total = source.system.bytes;
    let hashed = HashedDevice::new(&source.device);
    let mut skipped = source.unused_chunks();
    skipped.extend(to.done.iter().map(|chunk| {
        let start = chunk.number * CHUNK_BYTES;
        start..start + CHUNK_BYTES
    }));
    report.resumed_bytes = to.done.iter().map(|chunk| chunk_bytes(chunk.number, total)).sum();
    let raw = Raw::of_device(&hashed, skipped).readers(options.threads);
    let tell = |done| hashed.note(progress("blocks in use", done, total));
    let each = |at, bytes: &[u8]| {
        hashed.check_stopped()?;
        to.target.write(at, bytes)?;
        report.written_chunks += 1;
        report.written_bytes += bytes.len() as u64;
        if let Some(journal) = to.journal.as_mut().filter(|_| at > 0) {
            journal.add(hashed.digest(at / CHUNK_BYTES));
            if journal.is_due() {
                to.target.sync()?;
                journal.commit()?;
            }
        }
        Ok(())
    };
    let written = for_each_chunk(&raw, &tell, each);
    hashed.check_stopped()?;
    written.map_err(|failure: ChunkFailure| failure.into_error(options))?;
    drop(raw);
    let mut chunks = hashed.into_digests();
    chunks.append(&mut to.done);
    chunks.sort_unstable();
    Ok(chunks)
}
