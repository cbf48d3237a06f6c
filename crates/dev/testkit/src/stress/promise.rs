//! Durable files, which must exist after a crash.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use fastrand::Rng;
use rustix::fs::ioctl_ficlone;

use super::{below, bytes_of, sync_dir};

/// Maximum size of a file in bytes.
const LEN_MAX: usize = 150_000;
/// Size of the header before the contents of a version: its number and its length.
const HEADER_BYTES: usize = 16;

/// A durable file.
#[derive(Clone, Debug)]
pub struct Promise {
    path: PathBuf,
    version: u64,
    /// True if a later version may have replaced it.
    is_replaced: bool,
}

/// The set of durable files.
#[derive(Debug, Default)]
pub struct Promises(Mutex<Vec<Promise>>);

impl Promises {
    pub(super) fn all(&self) -> Vec<Promise> {
        self.0.lock().expect("no thread fails").clone()
    }

    fn add(&self, promise: Promise) {
        self.0.lock().expect("no thread fails").push(promise);
    }
}

impl Promise {
    /// Checks that the file exists completely in a tree mounted at `root`.
    ///
    /// # Errors
    /// A description of the problem.
    pub fn check(&self, root: &Path) -> Result<(), String> {
        let fail = |what: String| format!("{}: {what}", self.path.display());
        let found = fs::read(root.join(&self.path)).map_err(|error| fail(error.to_string()))?;
        let number =
            |at: usize| found.get(at..at + 8).map(|b| u64::from_le_bytes(b.try_into().unwrap()));
        let (Some(version), Some(len)) = (number(0), number(8)) else {
            return Err(fail(format!("{} bytes", found.len())));
        };
        let is_version = version == self.version || (self.is_replaced && version > self.version);
        if !is_version {
            return Err(fail(format!("version {version} instead of {}", self.version)));
        }
        if found != contents(version, len as usize) {
            return Err(fail(format!("version {version}: other bytes than those written")));
        }
        Ok(())
    }
}

fn contents(version: u64, len: usize) -> Vec<u8> {
    let mut all = version.to_le_bytes().to_vec();
    all.extend((len as u64).to_le_bytes());
    all.extend(bytes_of(version, len.min(LEN_MAX)));
    debug_assert!(all.len() >= HEADER_BYTES);
    all
}

/// Makes files durable.
#[derive(Debug)]
pub(super) struct Keeper {
    dir: PathBuf,
    thread: u64,
    next: u64,
    promises: Arc<Promises>,
}

impl Keeper {
    pub(super) fn new(dir: PathBuf, thread: u64, promises: Arc<Promises>) -> Self {
        Self { dir, thread, next: 1, promises }
    }

    /// Makes a file durable under a new name, or replaces an existing one.
    pub(super) fn keep(&mut self, rng: &mut Rng) -> io::Result<()> {
        let version = self.thread << 32 | self.next;
        self.next += 1;
        let len_max = if rng.bool() { 3_000 } else { LEN_MAX };
        let bytes = contents(version, rng.usize(..len_max));
        let is_replaced = rng.bool();
        let name = if is_replaced {
            format!("current-{}", self.thread)
        } else {
            format!("kept-{version:x}")
        };
        let path = below(&self.dir, &name);
        if is_replaced {
            let draft = below(&self.dir, format!("draft-{}", self.thread));
            self.write(&draft, &bytes, rng)?;
            fs::rename(&draft, &path)?;
        } else {
            self.write(&path, &bytes, rng)?;
        }
        sync_dir(&self.dir)?;
        let path = Path::new("kept").join(name);
        self.promises.add(Promise { path, version, is_replaced });
        Ok(())
    }

    /// Writes a file and makes its contents durable, sometimes through a shared copy.
    fn write(&self, path: &Path, bytes: &[u8], rng: &mut Rng) -> io::Result<()> {
        let mut file = File::create(path)?;
        if rng.u8(..4) == 0 {
            let source = below(&self.dir, format!("source-{}", self.thread));
            File::create(&source)?.write_all(bytes)?;
            ioctl_ficlone(&file, File::open(&source)?)?;
        } else {
            for part in bytes.chunks(rng.usize(1_000..60_000)) {
                file.write_all(part)?;
            }
        }
        file.sync_all()
    }
}
