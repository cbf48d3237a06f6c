//! Generation of random steps from a seed.

use vfs::{AllocateMode, DeviceNumber, FileSystem, FileType, RenameMode, SpecialFile};

use super::{FileTarget, NumberedOperation, Operation, Path, SLOTS, Session};
use crate::model::{Model, PathEntry};

/// Composition of a run, as relative weights of the kinds of steps.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Creating, linking, removing and renaming.
    pub names: u32,
    /// Changes of file contents.
    pub data: u32,
    /// Attributes and extended attributes.
    pub attributes: u32,
    /// Opening and closing, and files without a name.
    pub open: u32,
    /// `fsync` and `sync`.
    pub sync: u32,
    /// Number of different names in a directory. Few cause collisions, many cause large directories.
    pub names_per_directory: u32,
    /// Maximum start of writes in bytes, with rare exceptions far beyond.
    pub offset_max: u64,
    /// Maximum length of a write in bytes.
    pub write_len_max: usize,
    /// True if space is preallocated, which files without extents support only partly.
    pub preallocates: bool,
    /// Maximum depth of directories above a file.
    pub depth_max: usize,
    /// True if free space is discarded occasionally.
    pub trims: bool,
    /// Maximum length of an extended attribute's value in bytes. A file can have five of them.
    pub xattr_len_max: usize,
    /// True if the case of names is random, for directories that fold names.
    pub respells: bool,
    /// Maximum number of units of 4096 bytes that a file shares with another one at once; 0 for no sharing.
    pub clone_units_max: u64,
    /// True if files that share blocks also exchange them.
    pub exchanges: bool,
}

impl Mix {
    /// A mix of everything.
    pub const ALL: Self = Self {
        names: 50,
        data: 25,
        attributes: 10,
        open: 10,
        sync: 4,
        names_per_directory: 12,
        offset_max: 60_000,
        write_len_max: 20_000,
        preallocates: true,
        depth_max: 3,
        trims: false,
        xattr_len_max: 400,
        respells: false,
        clone_units_max: 0,
        exchanges: false,
    };

    /// Mostly changes of contents, with files that share blocks.
    pub const CLONES: Self = Self { names: 20, data: 70, clone_units_max: 12, ..Self::ALL };

    /// Without file contents.
    pub const METADATA: Self = Self { data: 0, ..Self::ALL };
}

/// Generates steps. The same seed and mix produce the same steps.
pub struct Generator {
    rng: fastrand::Rng,
    mix: Mix,
    number: u64,
    prefix: String,
}

impl Generator {
    /// Starts a run.
    pub fn new(seed: u64, mix: Mix) -> Self {
        Self { rng: fastrand::Rng::with_seed(seed), mix, number: 0, prefix: String::new() }
    }

    /// Sets a prefix for all names, for directories shared by several runs.
    #[must_use]
    pub fn with_prefix(self, prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), ..self }
    }

    /// Returns the next step for a file system in the state of `model`, used by `session`. Most steps succeed.
    pub fn next_step(&mut self, model: &Model, session: &Session) -> NumberedOperation {
        self.number += 1;
        let entries = model.entries();
        let mix = self.mix;
        let total = mix.names + mix.data + mix.attributes + mix.open + mix.sync;
        let mut pick = self.rng.u32(..total.max(1));
        let mut is_it = |share: u32| {
            let hit = pick < share;
            pick = pick.wrapping_sub(share);
            hit
        };
        let (rng, prefix) = (&mut self.rng, &self.prefix[..]);
        let mut draw = Draw { rng, mix, prefix, model, entries: &entries, session };
        let operation = if is_it(mix.names) {
            draw.names()
        } else if is_it(mix.data) {
            draw.data()
        } else if is_it(mix.attributes) {
            draw.attributes()
        } else if is_it(mix.open) {
            draw.open()
        } else {
            draw.sync()
        };
        NumberedOperation { number: self.number, operation }
    }
}

struct Draw<'d> {
    rng: &'d mut fastrand::Rng,
    mix: Mix,
    prefix: &'d str,
    model: &'d Model,
    entries: &'d [PathEntry],
    session: &'d Session,
}

impl Draw<'_> {
    fn one_in(&mut self, n: u32) -> bool {
        self.rng.u32(..n) == 0
    }

    /// Returns an existing path of a suitable type, or a new one if there is none.
    fn existing(&mut self, fits: impl Fn(FileType) -> bool) -> Path {
        let count = self.entries.iter().filter(|(.., file_type)| fits(*file_type)).count();
        if count == 0 || self.one_in(40) {
            return self.new_path();
        }
        let pick = self.rng.usize(..count);
        let mut fitting = self.entries.iter().filter(|(.., file_type)| fits(*file_type));
        let path = fitting.nth(pick).map(|(path, ..)| Path(path.clone())).unwrap_or_default();
        self.respelled(path)
    }

    /// Returns the path in another spelling, if spellings are random.
    fn respelled(&mut self, mut path: Path) -> Path {
        if self.mix.respells {
            for byte in &mut path.0 {
                if byte.is_ascii_alphabetic() && self.rng.u32(..4) == 0 {
                    *byte ^= 0x20;
                }
            }
        }
        path
    }

    fn directory(&mut self) -> Path {
        let depth_max = self.mix.depth_max;
        let is_candidate = |path: &[u8], file_type: FileType| {
            file_type == FileType::Directory
                && path.iter().filter(|&&byte| byte == b'/').count() + 1 < depth_max
        };
        let candidates = self.entries.iter().filter(|(path, _, t)| is_candidate(path, *t));
        let count = candidates.clone().count();
        let pick = self.rng.usize(..=count);
        let mut candidates = candidates;
        candidates.nth(pick).map(|(path, ..)| Path(path.clone())).unwrap_or_default()
    }

    /// Returns a path that may or may not exist.
    fn new_path(&mut self) -> Path {
        let mut path = if self.one_in(60) {
            // Probably not a directory.
            self.entries.first().map(|(path, ..)| path.clone()).unwrap_or_default()
        } else {
            self.directory().0
        };
        if !path.is_empty() {
            path.push(b'/');
        }
        let number = self.rng.u32(..self.mix.names_per_directory);
        path.extend_from_slice(format!("{}n{number}", self.prefix).as_bytes());
        if number % 4 == 3 {
            // Long names fill directory blocks quickly.
            path.extend(std::iter::repeat_n(b'a' + (number % 26) as u8, 180));
        }
        self.respelled(Path(path))
    }

    fn names(&mut self) -> Operation {
        let not_directory = |file_type| file_type != FileType::Directory;
        match self.rng.u32(..100) {
            0..24 => Operation::Create { path: self.new_path() },
            24..36 => Operation::Mkdir { path: self.new_path() },
            36..41 => Operation::Mknod { path: self.new_path(), file: self.special() },
            41..47 => {
                let target_len = if self.one_in(3) { 500 } else { 1 + self.rng.usize(..80) };
                Operation::Symlink { path: self.new_path(), target_len }
            }
            47..53 => {
                let target = FileTarget::Path(self.existing(not_directory));
                Operation::Link { target, path: self.new_path() }
            }
            53..56 => {
                let target = FileTarget::Path(self.existing(not_directory));
                Operation::LinkOver { target, path: self.existing(not_directory) }
            }
            56..70 => Operation::Unlink { path: self.existing(not_directory) },
            70..78 => Operation::Rmdir { path: self.existing(|t| t == FileType::Directory) },
            _ => self.rename(),
        }
    }

    fn rename(&mut self) -> Operation {
        let from = self.existing(|_| true);
        let (mode, onto) = match self.rng.u32(..10) {
            0..3 => (RenameMode::Exchange, true),
            3..5 => (RenameMode::NoReplace, false),
            5..8 => (RenameMode::Replace, true),
            _ => (RenameMode::Replace, false),
        };
        let to = match onto {
            // The same name in another spelling.
            true if self.mix.respells && self.one_in(3) => self.respelled(from.clone()),
            true => self.existing(|_| true),
            false => self.new_path(),
        };
        if mode != RenameMode::Exchange && self.rng.u32(..4) == 0 {
            return Operation::RenameWithWhiteout { from, to, mode };
        }
        Operation::Rename { from, to, mode }
    }

    fn special(&mut self) -> SpecialFile {
        // The range that every format supports: XFS has 18 bits for the minor number.
        let device = DeviceNumber { major: self.rng.u32(..4096), minor: self.rng.u32(..1 << 18) };
        match self.rng.u32(..4) {
            0 => SpecialFile::CharDevice(device),
            1 => SpecialFile::BlockDevice(device),
            2 => SpecialFile::Fifo,
            _ => SpecialFile::Socket,
        }
    }

    /// Returns a regular file, by name or by slot.
    fn file(&mut self) -> FileTarget {
        let open: Vec<usize> = (0..SLOTS).filter(|&s| self.session.slots()[s].is_some()).collect();
        if !open.is_empty() && self.one_in(4) {
            return FileTarget::Slot(open[self.rng.usize(..open.len())]);
        }
        FileTarget::Path(self.existing(|file_type| file_type == FileType::Regular))
    }

    fn anything(&mut self) -> FileTarget {
        if self.one_in(4) { self.file() } else { FileTarget::Path(self.existing(|_| true)) }
    }

    fn offset(&mut self) -> u64 {
        let far = if self.one_in(20) { 1 << self.rng.u32(20..31) } else { 0 };
        let offset = far + self.rng.u64(..=self.mix.offset_max);
        // Bugs are more likely at boundaries.
        if self.one_in(3) { offset & !4095 } else { offset }
    }

    /// Returns the size of a file, or 0 if there is none.
    fn size(&self, target: &FileTarget) -> u64 {
        let ino = self.session.target(self.model, target);
        ino.and_then(|ino| self.model.attributes(ino)).map_or(0, |attributes| attributes.size)
    }

    /// Returns the sharing of a range that is usually valid: whole units, or up to the end of the source.
    fn clone_range(&mut self) -> Operation {
        const UNIT: u64 = 4096;
        let (from, to) = (self.file(), self.file());
        let units = self.rng.u64(1..=self.mix.clone_units_max);
        let size = self.size(&from);
        let place = self.mix.offset_max / UNIT;
        let to_offset = self.rng.u64(..=place) * UNIT;
        if self.mix.exchanges && self.one_in(3) {
            let is_whole = self.one_in(3);
            let start = |last: u64| if is_whole { 0 } else { last * UNIT };
            let last = self.size(&to).min(size) / UNIT;
            let one_offset = start(self.rng.u64(..=last.min(place)));
            let two_offset = start(self.rng.u64(..=last.min(place)));
            let len = if is_whole { 0 } else { units * UNIT };
            return Operation::Exchange { one: from, one_offset, two: to, two_offset, len };
        }
        let (from_offset, len) = match self.rng.u32(..12) {
            0 => (self.offset(), units * UNIT),
            1..5 => {
                let start = (size / UNIT).saturating_sub(units - 1) * UNIT;
                (start, size.saturating_sub(start))
            }
            _ => {
                let last = (size / UNIT).saturating_sub(units);
                (self.rng.u64(..=last.min(place)) * UNIT, units * UNIT)
            }
        };
        Operation::Clone { from, from_offset, to, to_offset, len }
    }

    fn data(&mut self) -> Operation {
        if self.mix.clone_units_max > 0 && self.one_in(3) {
            return self.clone_range();
        }
        let target = self.file();
        let offset = self.offset();
        match self.rng.u32(..100) {
            0..55 => {
                let len = 1 + self.rng.usize(..self.mix.write_len_max);
                Operation::Write { target, offset, len }
            }
            55..75 => Operation::Truncate { target, size: if self.one_in(5) { 0 } else { offset } },
            _ => {
                let modes = if self.mix.preallocates { 8 } else { 1 };
                let mode = match 7 - self.rng.u32(..modes) {
                    0 => AllocateMode::Unwritten,
                    1 => AllocateMode::UnwrittenKeepSize,
                    2 => AllocateMode::Zero,
                    3 => AllocateMode::ZeroKeepSize,
                    _ => AllocateMode::PunchHole,
                };
                let len = 1 + self.rng.u64(..self.mix.offset_max);
                Operation::Allocate { target, offset, len, mode }
            }
        }
    }

    fn attributes(&mut self) -> Operation {
        let target = self.anything();
        let name = self.rng.usize(..5);
        match self.rng.u32(..10) {
            0..3 => {
                let (owner, times) = (self.rng.bool(), self.rng.bool());
                Operation::SetAttributes { target, owner, times }
            }
            3..8 => {
                let len =
                    if self.one_in(4) { self.mix.xattr_len_max } else { self.rng.usize(..60) };
                Operation::SetXattr { target, name, len }
            }
            _ => Operation::RemoveXattr { target, name },
        }
    }

    fn open(&mut self) -> Operation {
        let slot = self.rng.usize(..SLOTS);
        if self.session.slots()[slot].is_some() {
            if self.one_in(3) {
                return Operation::Link { target: FileTarget::Slot(slot), path: self.new_path() };
            }
            return Operation::Close { slot };
        }
        if self.one_in(3) {
            return Operation::CreateUnlinked { dir: self.directory(), slot };
        }
        let path = self.existing(|file_type| file_type == FileType::Regular);
        Operation::Open { path, slot }
    }

    fn sync(&mut self) -> Operation {
        if self.mix.trims && self.one_in(2) {
            return Operation::Trim;
        }
        if self.one_in(3) {
            return Operation::Sync;
        }
        Operation::Fsync { target: self.anything() }
    }
}
