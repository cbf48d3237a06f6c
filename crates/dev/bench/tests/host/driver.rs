//! A random sequence of operations for any target, and the state of a target afterwards.

use std::collections::BTreeMap;

use bench::target::Target;
use bench::{Error, Result};
use crc32fast::Hasher;
use fastrand::Rng;
use vfs::FileType;

/// Numbers of file names and directory names. They are few, so that many exist, and disjoint.
const FILES: u32 = 12;
const DIRECTORIES: u32 = 4;
/// Maximum number of directories at once.
const DIRECTORIES_MAX: usize = 12;
/// Maximum number of open files.
const OPEN_MAX: usize = 6;
/// Maximum end of reads and writes, in bytes.
const SIZE_MAX: u64 = 200_000;

/// Created by mkfs, not by workloads.
const LOST_AND_FOUND: &[u8] = b"lost+found";

/// An open directory and its location.
struct OpenDirectory<D> {
    dir: D,
    /// Index of the parent and name in it; `None` for the top.
    parent: Option<(usize, Vec<u8>)>,
}

/// State of a sequence of operations.
struct Driver<'a, T: Target> {
    target: &'a T,
    random: Rng,
    /// A removed directory leaves `None`.
    places: Vec<Option<OpenDirectory<T::Dir>>>,
    open: Vec<T::File>,
}

/// Performs a number of operations. Returns their results as text.
pub(crate) fn drive<T: Target>(target: &T, seed: u64, operations: u32) -> Vec<String> {
    let top = OpenDirectory { dir: target.top().expect("the top opens"), parent: None };
    let random = Rng::with_seed(seed);
    let mut driver = Driver { target, random, places: vec![Some(top)], open: Vec::new() };
    let mut story: Vec<String> = (0..operations).map(|number| driver.step(number)).collect();
    for file in driver.open.drain(..) {
        story.push(outcome(target.close(file), |()| String::new()));
    }
    story
}

/// Returns the result of an operation as text that is the same for every kind of target.
fn outcome<V>(result: Result<V>, show: impl FnOnce(V) -> String) -> String {
    use vfs::Error as E;
    match result {
        Ok(value) => format!("done {}", show(value)),
        Err(Error::FileSystem { source: E::NotFound, .. }) => "ENOENT".into(),
        Err(Error::FileSystem { source: E::Exists, .. }) => "EEXIST".into(),
        Err(Error::FileSystem { source: E::NotEmpty, .. }) => "ENOTEMPTY".into(),
        Err(Error::Host { source, .. }) => match source.raw_os_error() {
            Some(2) => "ENOENT".into(),
            Some(17) => "EEXIST".into(),
            Some(39) => "ENOTEMPTY".into(),
            _ => panic!("the host says {source}"),
        },
        Err(error) => panic!("{error}"),
    }
}

impl<T: Target> Driver<'_, T> {
    fn step(&mut self, number: u32) -> String {
        let kind = self.random.u32(0..16);
        let at = self.pick_place();
        let name = format!("file {}", self.random.u32(0..FILES)).into_bytes();
        let said = match kind {
            0 => self.make_dir(at),
            1 => self.remove_dir(),
            2..=4 => self.open_file(at, &name, kind),
            5 if !self.open.is_empty() => {
                let file = self.open.swap_remove(self.random.usize(0..self.open.len()));
                outcome(self.target.close(file), |()| String::new())
            }
            6..=10 if !self.open.is_empty() => self.contents(kind),
            _ => self.names(at, &name, kind),
        };
        format!("{number}: operation {kind} at {at}: {said}")
    }

    fn pick_place(&mut self) -> usize {
        loop {
            let at = self.random.usize(0..self.places.len());
            if self.places[at].is_some() {
                return at;
            }
        }
    }

    fn dir(&self, at: usize) -> &T::Dir {
        &self.places[at].as_ref().expect("it was picked").dir
    }

    fn make_dir(&mut self, at: usize) -> String {
        let name = format!("dir {}", self.random.u32(0..DIRECTORIES)).into_bytes();
        if self.places.iter().flatten().count() >= DIRECTORIES_MAX {
            return "enough".into();
        }
        let made = self.target.make_dir(self.dir(at), &name);
        if made.is_ok() {
            let dir = self.target.open_dir(self.dir(at), &name).expect("it was just made");
            self.places.push(Some(OpenDirectory { dir, parent: Some((at, name)) }));
        }
        outcome(made, |()| String::new())
    }

    fn remove_dir(&mut self) -> String {
        let at = self.pick_place();
        let place = self.places[at].as_ref().expect("it was picked");
        let Some((parent, name)) = &place.parent else { return "the top".into() };
        let removed = self.target.remove_dir(self.dir(*parent), name);
        if removed.is_ok() {
            self.places[at] = None;
        }
        outcome(removed, |()| at.to_string())
    }

    fn open_file(&mut self, at: usize, name: &[u8], kind: u32) -> String {
        if self.open.len() >= OPEN_MAX {
            return "enough".into();
        }
        let dir = self.dir(at);
        let opened = match kind {
            2 => self.target.open(dir, name),
            _ => self.target.create(dir, name, kind == 4),
        };
        outcome(opened.map(|file| self.open.push(file)), |()| String::new())
    }

    fn contents(&mut self, kind: u32) -> String {
        let file = &self.open[self.random.usize(0..self.open.len())];
        let offset = self.random.u64(0..SIZE_MAX);
        let len = self.random.usize(0..20_000);
        match kind {
            6 | 7 => {
                let first = self.random.u8(..);
                let data: Vec<u8> = (0..len).map(|i| first.wrapping_add(i as u8)).collect();
                outcome(self.target.write(file, offset, &data), |()| String::new())
            }
            8 => {
                let mut buf = vec![0xaa; len];
                let count = self.target.read(file, offset, &mut buf);
                outcome(count, |count| format!("{count} {:08x}", checksum(&buf[..count])))
            }
            9 => outcome(self.target.truncate(file, offset), |()| offset.to_string()),
            _ => outcome(self.target.sync_file(file), |()| String::new()),
        }
    }

    fn names(&mut self, at: usize, name: &[u8], kind: u32) -> String {
        let to = format!("file {}", self.random.u32(0..FILES)).into_bytes();
        let syncs = self.random.u32(0..20) == 0;
        let (target, dir) = (self.target, self.dir(at));
        match kind {
            11 => outcome(target.make_file(dir, name), |()| String::new()),
            12 => outcome(target.link(dir, name, &to), |()| String::new()),
            13 => outcome(target.unlink(dir, name), |()| String::new()),
            14 => outcome(target.stat(dir, name), |(kind, size)| format!("{kind:?} {size}")),
            15 if syncs => outcome(target.sync(), |()| String::new()),
            _ => outcome(listing(target, dir), |names| format!("{names:?}")),
        }
    }
}

fn checksum(data: &[u8]) -> u32 {
    let mut sum = Hasher::new();
    sum.update(data);
    sum.finalize()
}

/// Returns names and types, sorted, because file systems list them in different orders.
fn listing<T: Target>(target: &T, dir: &T::Dir) -> Result<Vec<(String, FileType)>> {
    let mut names = Vec::new();
    target.list(dir, &mut |name, file_type| {
        if name != LOST_AND_FOUND {
            let file_type = file_type.ok_or_else(|| Error::Wrong("no type".into()))?;
            names.push((String::from_utf8_lossy(name).into_owned(), file_type));
        }
        Ok(())
    })?;
    names.sort();
    Ok(names)
}

/// Returns everything that a target shows: type, size and contents by path. Sizes of directories
/// are not comparable.
pub(crate) fn snapshot<T: Target>(target: &T) -> BTreeMap<String, (FileType, Vec<u8>)> {
    let mut found = BTreeMap::new();
    collect(target, &target.top().expect("the top opens"), "", &mut found)
        .expect("all can be read");
    found
}

fn collect<T: Target>(
    target: &T,
    dir: &T::Dir,
    path: &str,
    found: &mut BTreeMap<String, (FileType, Vec<u8>)>,
) -> Result<()> {
    for (name, listed) in listing(target, dir)? {
        let path = format!("{path}/{name}");
        let name = name.as_bytes();
        let (file_type, size) = target.stat(dir, name)?;
        assert_eq!(listed, file_type, "{path}: listed, and found");
        let mut contents = Vec::new();
        if file_type == FileType::Directory {
            collect(target, &target.open_dir(dir, name)?, &path, found)?;
        } else {
            let file = target.open(dir, name)?;
            // One byte more than expected.
            contents.resize(size as usize + 1, 0);
            let count = target.read(&file, 0, &mut contents)?;
            contents.truncate(count);
            assert_eq!(count as u64, size, "{path}: its size, and what can be read");
            target.close(file)?;
        }
        found.insert(path, (file_type, contents));
    }
    Ok(())
}
