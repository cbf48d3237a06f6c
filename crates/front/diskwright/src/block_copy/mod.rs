//! Copies of the blocks in use of an image.
//!
//! [`copy`] writes a copy that all readers see as the image: the log is copied unchanged, and only blocks that are free
//! both before and after its replay are left out. A [`CopyState`] has the digest of each chunk (1 MiB). With the state of
//! an earlier copy, [`copy`] writes an increment with the changed chunks, and [`restore`] applies it to that copy.
//!
//! ```no_run
//! use diskwright::block_copy::{CopyOptions, copy, restore};
//! use std::ops::ControlFlow;
//!
//! # fn main() -> diskwright::Result<()> {
//! let progress = |_: &'static str, _: u64, _: u64| ControlFlow::Continue(());
//! copy(&CopyOptions::new("disk.img", "day0.img").state("day0.state"), &progress)?;
//! let options = CopyOptions::new("disk.img", "day1.inc").since("day0.state").state("day1.state");
//! println!("{} bytes changed", copy(&options, &progress)?.written_bytes);
//! restore("day1.inc".as_ref(), "day0.img".as_ref(), &progress)?;
//! # Ok(()) }
//! ```

mod chunk;
mod increment;
mod journal;
mod lines;
mod raw;
mod restore;
mod source;
mod state;
mod target;

use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use disk::output::{Error as OutputError, Raw};
use serde::Serialize;

pub use increment::IncrementIndex;
pub use restore::{RestoreReport, restore};
pub use state::CopyState;

pub use crate::copy_error::{CopyError, StateError};

use crate::output::OutputFormat;
use crate::replace::Replacement;
use crate::text::hex;
use crate::{Error, ImageOptions, Outcome, Result};
use chunk::chunk_bytes;
use source::{HashedDevice, Source};
use target::{is_device, keep, new_file};

/// Receiver of progress: the current work, and its completed and total units. It returns whether to continue.
pub type Progress<'p> = &'p dyn Fn(&'static str, u64, u64) -> ControlFlow<()>;

/// Options of a copy.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CopyOptions {
    /// The image. It is only read.
    pub image: PathBuf,
    /// New file, or existing block device.
    pub out: PathBuf,
    /// Location of the image in its file.
    pub open: ImageOptions,
    /// Format of `out`.
    pub format: OutputFormat,
    /// File for the digests of the copy.
    pub state: Option<PathBuf>,
    /// State of an earlier copy: `out` becomes an increment with the changes since then.
    pub since: Option<PathBuf>,
    /// Continue a copy that was interrupted. Only for raw copies with a state.
    pub resume: bool,
    /// Replace an existing file, or overwrite a block device.
    pub force: bool,
    /// Maximum number of threads that read.
    pub threads: usize,
    /// Bytes after which the progress of a raw copy with a state is made durable.
    pub batch_bytes: u64,
}

impl CopyOptions {
    /// Default of `batch_bytes`.
    const BATCH_BYTES: u64 = 256 << 20;

    /// Creates options for a raw copy of `image`.
    pub fn new(image: impl Into<PathBuf>, out: impl Into<PathBuf>) -> Self {
        let threads = std::thread::available_parallelism().map_or(2, |count| count.get().min(4));
        Self {
            image: image.into(),
            out: out.into(),
            open: ImageOptions::default(),
            format: OutputFormat::Raw,
            state: None,
            since: None,
            resume: false,
            force: false,
            threads,
            batch_bytes: Self::BATCH_BYTES,
        }
    }

    /// Checks options that exclude each other.
    fn check(&self) -> Result<()> {
        let is_raw = self.format == OutputFormat::Raw;
        let problem = match () {
            () if self.resume && (!is_raw || self.since.is_some() || self.state.is_none()) => {
                "only a raw copy with a state file can be resumed; start the copy again"
            }
            () if self.since.is_some() && !is_raw => {
                "an increment has its own format; leave the output format out"
            }
            () if is_device(&self.out) && (!is_raw || self.since.is_some()) => {
                "a block device can only be written raw; choose a file"
            }
            () if crate::is_same_file(&self.image, &self.out) => {
                "the image and its copy are the same file; choose another name for the copy"
            }
            () if self.state.as_ref() == Some(&self.out) => {
                "the state file and the copy have the same name; choose another one"
            }
            () => return Ok(()),
        };
        Err(Error::Usage(problem.into()))
    }
}

setters!(CopyOptions {
    open: ImageOptions,
    format: OutputFormat,
    state: impl Into<PathBuf> = Some(state.into()),
    since: impl Into<PathBuf> = Some(since.into()),
    resume: bool,
    force: bool,
    threads: usize,
    batch_bytes: u64,
});

/// Result of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CopyReport {
    /// Length of the file system in bytes.
    pub image_bytes: u64,
    /// Bytes of blocks in use.
    pub used_bytes: u64,
    /// Number of chunks with blocks in use.
    pub chunks: u64,
    /// Number of chunks that were written now.
    pub written_chunks: u64,
    /// Bytes of these chunks.
    pub written_bytes: u64,
    /// Bytes that an interrupted copy had written.
    pub resumed_bytes: u64,
    /// SHA-256 of the lines of all chunks in the state file.
    pub sha256: String,
    /// The same of the earlier copy, for an increment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_sha256: Option<String>,
    /// Messages about unreadable metadata. Blocks that nothing describes are copied.
    pub remarks: Vec<String>,
}

impl CopyReport {
    /// Returns the exit status for this report.
    pub fn outcome(&self) -> Outcome {
        if self.remarks.is_empty() { Outcome::Done } else { Outcome::Image }
    }
}

/// Copies the blocks in use of an image.
///
/// # Errors
/// If the image cannot be opened or read, `out` or the state file exists and must not be replaced, or cannot be written.
/// An incomplete copy has no name, or the name of `out` with `.part`; a device begins with a marker then.
pub fn copy(options: &CopyOptions, progress: Progress<'_>) -> Result<CopyReport> {
    options.check()?;
    let base = match options.since.as_deref() {
        Some(path) => Some((path, read_state(path)?)),
        None => None,
    };
    let may_replace = options.force || options.resume;
    let state = match options.state.as_deref() {
        Some(path) => Some((path, new_file(path, may_replace)?)),
        None => None,
    };
    let is_raw = options.format == OutputFormat::Raw && base.is_none();
    if is_raw && (is_device(&options.out) || state.is_some()) {
        return raw::copy(options, state, progress);
    }
    let mut report = CopyReport::default();
    let new = new_file(&options.out, options.force)?;
    let source = Source::open(&options.image, &options.open, progress)?;
    let copied = match &base {
        None => write_format(options, &source, &new, progress)?,
        Some((path, base)) => {
            if let Some((what, expected, found)) = source.system.difference(&base.system) {
                let file = (*path).to_owned();
                return Err(CopyError::OtherSystem { file, what, expected, found }.into());
            }
            report.base_sha256 = Some(hex(&base.digest()));
            increment::write(options, &source, base, &new, progress)?
        }
    };
    report.written_chunks = copied.written_chunks;
    report.written_bytes = copied.written_bytes;
    fill_report(&mut report, &source, &copied.state);
    keep(new, &options.out)?;
    write_state(state, &copied.state)?;
    Ok(report)
}

/// A finished copy.
struct Copied {
    state: CopyState,
    written_chunks: u64,
    written_bytes: u64,
}

fn fill_report(report: &mut CopyReport, source: &Source, state: &CopyState) {
    report.image_bytes = state.system.bytes;
    report.used_bytes = source.used_bytes();
    report.chunks = state.chunks.len() as u64;
    report.sha256 = hex(&state.digest());
    report.remarks.clone_from(&source.remarks);
}

/// Writes a copy in the output format of the options into an empty file.
fn write_format(
    options: &CopyOptions,
    source: &Source,
    new: &Replacement,
    progress: Progress<'_>,
) -> Result<Copied> {
    let hashed = HashedDevice::new(&source.device);
    let raw = Raw::of_device(&hashed, source.unused_chunks()).readers(options.threads);
    let total = source.system.bytes;
    let tell = |done| hashed.note(progress("blocks in use", done, total));
    let written = disk::output::write(&raw, options.format, new.file(), options.threads, &tell);
    hashed.check_stopped()?;
    written.map_err(|error| output_error(options, error))?;
    drop(raw);
    let state = CopyState { system: source.system.clone(), chunks: hashed.into_digests() };
    let written_chunks = state.chunks.len() as u64;
    let written_bytes = state.chunks.iter().map(|chunk| chunk_bytes(chunk.number, total)).sum();
    Ok(Copied { state, written_chunks, written_bytes })
}

fn output_error(options: &CopyOptions, error: OutputError) -> Error {
    match error {
        OutputError::Read(source) => Error::host("read", &options.image, source),
        OutputError::Write(source) => Error::host("write", &options.out, source),
        unfit @ OutputError::Unfit { .. } => Error::Usage(unfit.to_string()),
    }
}

fn read_state(path: &Path) -> Result<CopyState> {
    let text = std::fs::read(path).map_err(|e| Error::host("read", path, e))?;
    let parsed = CopyState::parse(&text);
    parsed.map_err(|error| CopyError::State { file: path.to_owned(), error }.into())
}

fn write_state(new: Option<(&Path, Replacement)>, state: &CopyState) -> Result<()> {
    let Some((path, new)) = new else { return Ok(()) };
    let written = new.file().write_all(&state.to_text());
    written.map_err(|e| Error::host("write", path, e))?;
    keep(new, path)
}
