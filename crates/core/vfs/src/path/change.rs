//! Changes of a file system by paths.

use super::listing::NameBuffer;
use super::{
    DirectoryGuard, LastLink, NamedEntry, Order, Paths, SYMLINKS_MAX, WalkError, split_last,
};
use crate::{Error, FileType, Ino, Result, Timestamp};

impl Paths<'_> {
    /// Returns the directory of the last component of a path, and that component.
    ///
    /// # Errors
    /// `Invalid` if the path is the root or ends in `.` or `..`.
    pub fn parent<'p>(&self, path: &'p [u8]) -> Result<(Ino, &'p [u8])> {
        let (parent, name) =
            split_last(path).ok_or(Error::Invalid("the path has no last component"))?;
        Ok((self.resolve(parent, LastLink::Follow)?, name))
    }

    /// Like [`Paths::parent`], but follows a symbolic link at the end to the name of its target, which need not exist.
    ///
    /// # Errors
    /// Returns the errors of [`Paths::parent`], and `SymlinkLoop`.
    pub fn parent_of_target(&self, path: &[u8]) -> Result<(Ino, Vec<u8>)> {
        let mut path = path.to_vec();
        for _ in 0..=SYMLINKS_MAX {
            let (dir, name) = self.parent(&path)?;
            let target = match self.fs.lookup(dir, name) {
                Ok(ino) if self.fs.attributes(ino)?.file_type == FileType::Symlink => {
                    self.fs.readlink(ino)?
                }
                Ok(_) | Err(Error::NotFound) => return Ok((dir, name.to_vec())),
                Err(error) => return Err(error),
            };
            let parent = split_last(&path).map_or(&b""[..], |(parent, _)| parent).to_vec();
            path = if target.starts_with(b"/") { target } else { [parent, target].concat() };
        }
        Err(Error::SymlinkLoop)
    }

    /// Removes a name of a non-directory. Does not follow symbolic links. `time` as in
    /// [`FileSystem::unlink`](crate::FileSystem::unlink), here and below.
    pub fn remove_file(&self, path: &[u8], time: Option<Timestamp>) -> Result<()> {
        let (dir, name) = self.parent(path)?;
        self.fs.unlink(dir, name, time)
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, path: &[u8], time: Option<Timestamp>) -> Result<()> {
        let (dir, name) = self.parent(path)?;
        self.fs.rmdir(dir, name, time)
    }

    /// Removes a file, or a directory with everything in it. Does not follow symbolic links. `each` is called for every
    /// removed name.
    ///
    /// # Errors
    /// The first error, with its path. Names that were removed before stay removed.
    pub fn remove_all(
        &self,
        path: &[u8],
        time: Option<Timestamp>,
        each: &mut dyn FnMut(),
    ) -> Result<(), WalkError> {
        let top = |error| WalkError { path: Vec::new(), error };
        let (dir, name) = self.parent(path).map_err(top)?;
        let ino = self.fs.lookup(dir, name).map_err(top)?;
        let mut removal = Removal::new(*self, time);
        if removal.is_directory(ino, None).map_err(top)? {
            removal.enter(dir, name, ino).map_err(top)?;
            removal.run(each)
        } else {
            self.fs.unlink(dir, name, time).map_err(top)?;
            each();
            Ok(())
        }
    }
}

/// A directory whose entries are being removed.
struct Emptying {
    parent: Ino,
    name: Vec<u8>,
    dir: Ino,
    listing: NameBuffer,
    /// Length of the directory's own path.
    path_len: usize,
}

struct Removal<'a> {
    paths: Paths<'a>,
    time: Option<Timestamp>,
    guard: DirectoryGuard,
    levels: Vec<Emptying>,
    /// Path from the top to the name that is being removed.
    path: Vec<u8>,
}

impl<'a> Removal<'a> {
    fn new(paths: Paths<'a>, time: Option<Timestamp>) -> Self {
        let guard = DirectoryGuard::default();
        Self { paths, time, guard, levels: Vec::new(), path: Vec::new() }
    }

    fn is_directory(&self, ino: Ino, said: Option<FileType>) -> Result<bool> {
        let file_type = match said {
            Some(file_type) => file_type,
            None => self.paths.fs.attributes(ino)?.file_type,
        };
        Ok(file_type == FileType::Directory)
    }

    fn enter(&mut self, parent: Ino, name: &[u8], dir: Ino) -> Result<()> {
        self.guard.enter(dir)?;
        let (name, path_len) = (name.to_vec(), self.path.len());
        let listing = NameBuffer::new(Order::Physical);
        self.levels.push(Emptying { parent, name, dir, listing, path_len });
        Ok(())
    }

    fn run(&mut self, each: &mut dyn FnMut()) -> Result<(), WalkError> {
        while !self.levels.is_empty() {
            let removed = self.step();
            match removed {
                Ok(true) => each(),
                Ok(false) => {}
                Err(error) => return Err(WalkError { path: self.path.clone(), error }),
            }
        }
        Ok(())
    }

    /// Takes one step of the traversal. Returns whether it removed a name.
    fn step(&mut self) -> Result<bool> {
        let Some(level) = self.levels.last_mut() else { return Ok(false) };
        self.path.truncate(level.path_len);
        if let Some(entry) = level.listing.next() {
            let dir = level.dir;
            if level.path_len > 0 {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(entry.name);
            let NamedEntry { name, ino, file_type } = entry.sound(dir)?.to_named();
            if self.is_directory(ino, file_type)? {
                self.enter(dir, &name, ino)?;
                return Ok(false);
            }
            return self.paths.fs.unlink(dir, &name, self.time).map(|()| true);
        }
        if level.listing.has_more() {
            level.listing.fill(self.paths.fs, level.dir)?;
            return Ok(false);
        }
        self.paths.fs.rmdir(level.parent, &level.name, self.time)?;
        self.levels.pop();
        Ok(true)
    }
}
