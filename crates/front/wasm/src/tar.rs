//! Tar archive of a directory or file, generated in pieces.
//!
//! Its members are those of `diskwright extract`: PAX format, holes, hard links, extended attributes. Unreadable data
//! is omitted or zeroed, and reported at the end.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use import::archive::{self, Member, Times, sparse_map};
use vfs::path::{DirectoryGuard, LastLink};
use vfs::runs::{Run, data_runs, read_exactly};
use vfs::{Attributes, Corruption, Error, FileType, Ino, Paths};

use crate::entry::{Named, children};
use crate::failure::{Failure, Result};
use crate::volume::Volume;

/// Minimum size of a piece in bytes, except the last one.
const PIECE_BYTES: usize = 1 << 20;

/// Archive in progress.
pub(crate) struct Tar {
    volume: Rc<Volume>,
    /// Path in the image of what is archived, for messages.
    top: Vec<u8>,
    /// Remaining entries of each directory on the current path.
    levels: Vec<Level>,
    guard: DirectoryGuard,
    /// First path of each file with several names.
    links: HashMap<Ino, Vec<u8>>,
    copying: Option<Copying>,
    is_ended: bool,
    out: Vec<u8>,
    /// Unreadable data, and files that archives do not support.
    pub(crate) remarks: Vec<Failure>,
    pub(crate) files: u64,
}

struct Level {
    path: Vec<u8>,
    entries: VecDeque<Named>,
}

/// File whose contents are being copied.
struct Copying {
    ino: Ino,
    path: Vec<u8>,
    runs: VecDeque<Run>,
    stored_bytes: u64,
    /// True if a read error was reported.
    is_told: bool,
}

impl Tar {
    /// Starts an archive of a path.
    ///
    /// # Errors
    /// If it does not exist.
    pub(crate) fn new(volume: Rc<Volume>, path: &[u8]) -> Result<Self> {
        let attributes = volume.with(|paths| {
            let found = paths.resolve(path, LastLink::Keep);
            let found = found.and_then(|ino| paths.file_system().attributes(ino));
            found.map_err(|error| Failure::at(path, error))
        })?;
        let name = match attributes.file_type {
            FileType::Directory => b".".to_vec(),
            _ => vfs::path::split_last(path).map_or_else(|| b"file".to_vec(), |(_, n)| n.to_vec()),
        };
        let first = Level { path: Vec::new(), entries: [(name, Ok(attributes))].into() };
        Ok(Self {
            volume,
            top: path.to_vec(),
            levels: vec![first],
            guard: DirectoryGuard::default(),
            links: HashMap::new(),
            copying: None,
            is_ended: false,
            out: Vec::new(),
            remarks: Vec::new(),
            files: 0,
        })
    }

    /// Returns the next piece of the archive, or an empty one at the end.
    ///
    /// # Errors
    /// If the image was closed.
    pub(crate) fn next_piece(&mut self) -> Result<Vec<u8>> {
        let volume = Rc::clone(&self.volume);
        volume.with(|paths| {
            while self.out.len() < PIECE_BYTES && !self.is_ended {
                self.step(paths)?;
            }
            Ok(std::mem::take(&mut self.out))
        })
    }

    fn step(&mut self, paths: Paths<'_>) -> Result<()> {
        if self.copying.is_some() {
            return self.copy(paths);
        }
        let Some(level) = self.levels.last_mut() else {
            self.is_ended = true;
            return Ok(archive::end(&mut self.out)?);
        };
        let Some((name, found)) = level.entries.pop_front() else {
            self.levels.pop();
            return Ok(());
        };
        let mut path = level.path.clone();
        path.extend_from_slice(&name);
        match found {
            Ok(attributes) => self.add(paths, path, &attributes),
            Err(error) => {
                self.unreadable(&path, error);
                Ok(())
            }
        }
    }

    fn unreadable(&mut self, path: &[u8], error: Error) {
        let path = match path {
            b"." | b"./" => self.top.clone(),
            _ => [&self.top[..], b"/", path].concat(),
        };
        self.remarks.push(Failure::at(&path, error));
    }

    fn add(&mut self, paths: Paths<'_>, mut path: Vec<u8>, attributes: &Attributes) -> Result<()> {
        self.files += 1;
        let is_directory = attributes.file_type == FileType::Directory;
        if is_directory {
            path.push(b'/');
        }
        let Attributes { atime, mtime, ctime, .. } = *attributes;
        let first = self.links.get(&attributes.ino).filter(|_| attributes.links > 1).cloned();
        let mut member = Member {
            path: &path,
            permissions: attributes.permissions,
            uid: attributes.uid,
            gid: attributes.gid,
            times: Times { atime, mtime, ctime },
            ..Member::default()
        };
        if let Some(first) = &first {
            member.typeflag = b'1';
            member.link = first;
            return Ok(member.write(&mut self.out)?);
        }
        let xattrs = self.xattrs(paths, &path, attributes.ino);
        member.xattrs = &xattrs;
        let is_there = self.member(paths, attributes, member)?;
        if is_directory {
            self.enter(paths, &path, attributes.ino);
        } else if is_there && attributes.links > 1 {
            self.links.insert(attributes.ino, path);
        }
        Ok(())
    }

    fn enter(&mut self, paths: Paths<'_>, path: &[u8], dir: Ino) {
        if let Err(error) = self.guard.enter(dir) {
            self.unreadable(path, error);
            return;
        }
        let (found, failed) = children(paths, dir);
        if let Some(error) = failed {
            self.unreadable(path, error);
        }
        // Paths of files in the top directory have no directory part, as in archives that `extract` writes.
        let path = if path == b"./" { Vec::new() } else { path.to_vec() };
        self.levels.push(Level { path, entries: found.into() });
    }

    /// Writes a file under its first name. Returns whether archives support its type.
    fn member(
        &mut self,
        paths: Paths<'_>,
        attributes: &Attributes,
        member: Member<'_>,
    ) -> Result<bool> {
        let target;
        // `target` must outlive the modified member.
        let mut member = member;
        member.typeflag = match attributes.file_type {
            FileType::Regular => return self.regular(paths, attributes, member).map(|()| true),
            FileType::Directory => b'5',
            FileType::Symlink => match sound_target(paths, attributes.ino) {
                Ok(read) => {
                    target = read;
                    member.link = &target;
                    b'2'
                }
                Err(error) => {
                    self.unreadable(member.path, error);
                    return Ok(false);
                }
            },
            FileType::CharDevice => b'3',
            FileType::BlockDevice => b'4',
            FileType::Fifo => b'6',
            FileType::Socket => {
                let error = Error::Invalid("a tar archive cannot contain a socket");
                self.unreadable(member.path, error);
                return Ok(false);
            }
        };
        if matches!(member.typeflag, b'3' | b'4') {
            member.device = attributes.device;
        }
        member.write(&mut self.out)?;
        Ok(true)
    }

    fn regular(
        &mut self,
        paths: Paths<'_>,
        attributes: &Attributes,
        mut member: Member<'_>,
    ) -> Result<()> {
        let &Attributes { ino, size, .. } = attributes;
        let runs = match data_runs(paths.file_system(), ino, size) {
            Ok(runs) => runs,
            Err(error) => {
                self.unreadable(member.path, error);
                Vec::new()
            }
        };
        let data_bytes: u64 = runs.iter().map(|run| run.len).sum();
        let map = (data_bytes < size).then(|| sparse_map(&runs, size));
        member.typeflag = b'0';
        member.stored_bytes = data_bytes + map.as_ref().map_or(0, |map| map.len() as u64);
        member.sparse_size = map.as_ref().map(|_| size);
        member.write(&mut self.out)?;
        self.out.extend_from_slice(&map.unwrap_or_default());
        let (path, stored_bytes) = (member.path.to_vec(), member.stored_bytes);
        self.copying = Some(Copying { ino, path, runs: runs.into(), stored_bytes, is_told: false });
        Ok(())
    }

    /// Copies the next piece of a file's contents.
    fn copy(&mut self, paths: Paths<'_>) -> Result<()> {
        let Some(copying) = &mut self.copying else { return Ok(()) };
        let Some(run) = copying.runs.front_mut() else {
            let stored_bytes = copying.stored_bytes;
            self.copying = None;
            return Ok(archive::pad(&mut self.out, stored_bytes)?);
        };
        let len = run.len.min(PIECE_BYTES as u64);
        let (offset, start) = (run.offset, self.out.len());
        *run = Run { offset: offset + len, len: run.len - len };
        if run.len == 0 {
            copying.runs.pop_front();
        }
        self.out.resize(start + len as usize, 0);
        let read = read_exactly(paths.file_system(), copying.ino, offset, &mut self.out[start..]);
        if let Err(error) = read {
            self.out[start..].fill(0);
            // Report each file only once.
            if !std::mem::replace(&mut copying.is_told, true) {
                let path = copying.path.clone();
                self.unreadable(&path, error);
            }
        }
        Ok(())
    }

    /// The extended attributes of a file that can be read, sorted by name.
    fn xattrs(&mut self, paths: Paths<'_>, path: &[u8], ino: Ino) -> Vec<(Vec<u8>, Vec<u8>)> {
        let fs = paths.file_system();
        let mut names = Vec::new();
        if let Err(error) = fs.list_xattrs(ino, &mut |name| names.push(name.to_vec())) {
            self.unreadable(path, error);
        }
        names.sort();
        names.dedup();
        let mut xattrs = Vec::with_capacity(names.len());
        for name in names {
            if name.is_empty() || name.contains(&0) {
                let problem = "attribute name is empty or contains a NUL byte";
                let damage = Corruption::new("extended attribute", problem).of_inode(ino.0);
                self.unreadable(path, damage.into());
                continue;
            }
            match fs.get_xattr(ino, &name) {
                Ok(value) => xattrs.push((name, value)),
                Err(error) => self.unreadable(path, error),
            }
        }
        xattrs
    }
}

fn sound_target(paths: Paths<'_>, ino: Ino) -> vfs::Result<Vec<u8>> {
    let target = paths.file_system().readlink(ino)?;
    if target.is_empty() || target.contains(&0) {
        let problem = "target is empty or contains a NUL byte";
        return Err(Corruption::new("symbolic link", problem).of_inode(ino.0).into());
    }
    Ok(target)
}
