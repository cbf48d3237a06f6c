//! Small changes with a sync after each, as in databases and mail servers: they wrap around the log many times, and
//! crashes in between lose none.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use disk::{BlockDevice, MemoryDevice};
use vfs::{FileSystem, Ino, SetAttributes};

use super::{NEW, TIME, Trial, Watchdog, later};
use crate::trial::failing::LIMIT;

/// Number of crashes examined for each kind of change.
const CRASHES: u64 = 6;
/// Number of names of the directory that is created and removed.
const NAMES: u64 = 90;

/// Kind of the repeated change.
#[derive(Clone, Copy, Debug)]
enum ChangeKind {
    /// Permissions of a file: one block.
    Permissions,
    /// Overwritten contents of a file, and its time, as in a database.
    Contents,
    /// A name that is created and removed.
    Name,
    /// A directory that grows and is removed with its contents: large checkpoints, and freed blocks.
    Directory,
    /// Random kinds.
    Any,
}

/// Makes changes of each kind durable, one by one, until they have wrapped around the log `times` times. `log` contains
/// the byte ranges of the log on the device.
///
/// # Panics
/// If a change fails, a crash loses a durable change, or the resulting image is not sound.
pub fn rounds(trial: &Trial<'_>, log: &[Range<u64>], times: u64) {
    let _watchdog = Watchdog::new(LIMIT, format!("rounds of the log of {}", trial.name));
    let all = [
        ChangeKind::Permissions,
        ChangeKind::Contents,
        ChangeKind::Name,
        ChangeKind::Directory,
        ChangeKind::Any,
    ];
    for change in all {
        RepeatedChange::new(trial, log, change).go(times);
    }
}

/// Counts the bytes written to some ranges of a device.
struct CountedWrites {
    inner: Arc<MemoryDevice>,
    parts: Vec<Range<u64>>,
    bytes: AtomicU64,
}

impl BlockDevice for CountedWrites {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if self.parts.iter().any(|part| part.contains(&offset)) {
            self.bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
        }
        self.inner.write_at(offset, data)
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.zero_range(offset, len)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// The durable state.
#[derive(Clone, Default)]
struct Durable {
    permissions: u16,
    contents: u8,
    seconds: i64,
    has_name: bool,
    names: u64,
}

struct RepeatedChange<'t> {
    trial: &'t Trial<'t>,
    change: ChangeKind,
    device: Arc<CountedWrites>,
    mounted: Box<dyn crate::crash::OpenFileSystem>,
    file: Ino,
    number: u64,
    durable: Durable,
}

impl<'t> RepeatedChange<'t> {
    fn new(trial: &'t Trial<'t>, log: &[Range<u64>], change: ChangeKind) -> Self {
        let (inner, parts, bytes) = (trial.make(), log.to_vec(), AtomicU64::new(0));
        let device = Arc::new(CountedWrites { inner, parts, bytes });
        let mounted = trial.open(device.clone());
        let fs = mounted.file_system();
        let file = fs.create(fs.root(), b"file", &NEW).unwrap();
        fs.write(file, 0, &vec![0; 2 * trial.block_bytes as usize], None).unwrap();
        fs.sync().unwrap();
        let durable = Durable { permissions: NEW.permissions, ..Durable::default() };
        Self { trial, change, device, mounted, file, number: 0, durable }
    }

    fn go(mut self, times: u64) {
        let len: u64 = self.device.parts.iter().map(|part| part.end - part.start).sum();
        let mut looked = 0;
        loop {
            let written = self.device.bytes.load(Ordering::Relaxed);
            if written >= times * len {
                break;
            }
            let kind = match self.change {
                ChangeKind::Any => self.any(),
                only => only,
            };
            if let Err(error) = self.step(kind) {
                let round = written as f64 / len as f64;
                panic!("{}, change {}, round {round:.2}: {error}", self.what(), self.number);
            }
            self.number += 1;
            let written = self.device.bytes.load(Ordering::Relaxed);
            // At irregular times, so that crashes do not always hit the same positions of the log.
            if written * CRASHES > looked * times * len + len {
                looked += 1;
                self.look_at_a_crash();
            }
        }
        assert!(looked > 0, "{}: no crash was looked at", self.what());
        self.trial.close(self.mounted, &self.device.inner);
    }

    fn what(&self) -> String {
        format!("{:?} in {}", self.change, self.trial.name)
    }

    /// Returns a large change after many small ones.
    fn any(&self) -> ChangeKind {
        match self.number * 7 % 90 {
            0 => ChangeKind::Directory,
            1..50 => ChangeKind::Permissions,
            50..75 => ChangeKind::Contents,
            _ => ChangeKind::Name,
        }
    }

    /// Makes a change and syncs it.
    fn step(&mut self, change: ChangeKind) -> vfs::Result<()> {
        let (fs, file, number) = (self.mounted.file_system(), self.file, self.number);
        let durable = &mut self.durable;
        match change {
            ChangeKind::Permissions | ChangeKind::Any => {
                durable.permissions = 0o400 | (number & 0o377) as u16;
                let permissions = Some(durable.permissions);
                fs.set_attributes(file, &SetAttributes { permissions, ..Default::default() })?;
            }
            ChangeKind::Contents => {
                (durable.contents, durable.seconds) = (number as u8, number as i64);
                fs.write(file, 100, &[durable.contents; 1000], None)?;
                let mtime = later(durable.seconds);
                fs.set_attributes(file, &SetAttributes { mtime, ..Default::default() })?;
            }
            ChangeKind::Name => {
                durable.has_name = !durable.has_name;
                match durable.has_name {
                    true => fs.create(fs.root(), b"name", &NEW).map(drop)?,
                    false => fs.unlink(fs.root(), b"name", None)?,
                }
            }
            ChangeKind::Directory => {
                durable.names = if durable.names == 0 { NAMES } else { 0 };
                match durable.names {
                    0 => remove_directory(fs)?,
                    _ => make_directory(fs)?,
                }
            }
        }
        fs.fsync(file)
    }

    /// Checks that the image after a crash at this point has everything that is durable.
    fn look_at_a_crash(&self) {
        let what = format!("a crash after change {} of {}", self.number, self.what());
        let left = Arc::new(self.device.inner.fork());
        let mounted = self.trial.open(left.clone());
        let fs = mounted.file_system();
        let Durable { permissions, contents, seconds, has_name, names } = self.durable;
        let shown = fs.attributes(self.file).unwrap();
        assert_eq!(shown.permissions, permissions, "{what}");
        if seconds > 0 {
            assert_eq!(Some(shown.mtime), later(seconds), "{what}");
        }
        let mut bytes = [1; 1000];
        fs.read(self.file, 100, &mut bytes).unwrap();
        assert!(bytes == [contents; 1000], "{what}: {} for {contents}", bytes[0]);
        assert_eq!(fs.lookup(fs.root(), b"name").is_ok(), has_name, "{what}");
        let listed = fs.lookup(fs.root(), b"many").map_or(0, |dir| super::entries(fs, dir).len());
        assert_eq!(listed as u64, names, "{what}");
        self.trial.close(mounted, &left);
    }
}

/// Returns a name so long that a few fill a block.
fn long_name(number: u64) -> Vec<u8> {
    format!("{number:0200}").into_bytes()
}

fn make_directory(fs: &dyn FileSystem) -> vfs::Result<()> {
    let dir = fs.mkdir(fs.root(), b"many", &NEW)?;
    (0..NAMES).try_for_each(|number| fs.create(dir, &long_name(number), &NEW).map(drop))
}

fn remove_directory(fs: &dyn FileSystem) -> vfs::Result<()> {
    let dir = fs.lookup(fs.root(), b"many")?;
    (0..NAMES).try_for_each(|number| fs.unlink(dir, &long_name(number), Some(TIME)))?;
    fs.rmdir(fs.root(), b"many", Some(TIME))
}
