//! Pseudo-random operations, the same on every host.

use vfs::{FileSystem, Ino, NewInode, RenameMode, Result};

use crate::TIME;

/// Number of operations on one image.
const OPERATIONS: usize = 4000;

/// Pseudo-random numbers (a 64-bit linear congruential generator, whose high bits are used).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number below `end`, which must not be 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 24) % end
    }

    pub(crate) fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    fn bytes(&mut self, len: u64) -> Vec<u8> {
        let (first, step) = (self.below(256) as u8, self.below(256) as u8);
        (0..len).map(|i| first.wrapping_add((i as u8).wrapping_mul(step))).collect()
    }

    /// Returns a new name. Its bytes include all values, because hashes depend on the signedness of bytes above 127.
    fn name(&mut self, number: usize) -> Vec<u8> {
        let len = self.below(40);
        let tail =
            self.bytes(len).into_iter().map(|b| if matches!(b, 0 | b'/') { b'x' } else { b });
        number.to_string().into_bytes().into_iter().chain(tail).collect()
    }
}

/// A name and its directory.
struct Named {
    dir: Ino,
    name: Vec<u8>,
    ino: Ino,
}

/// Current contents of a file system.
struct Load<'a> {
    fs: &'a dyn FileSystem,
    random: Random,
    dirs: Vec<Ino>,
    files: Vec<Named>,
}

/// Creates, changes and removes files and directories.
pub(crate) fn run(fs: &dyn FileSystem) -> Result<()> {
    let (dirs, files) = (vec![fs.root()], Vec::new());
    let mut load = Load { fs, random: Random::new(7), dirs, files };
    for number in 0..OPERATIONS {
        load.step(number)?;
    }
    Ok(())
}

impl Load<'_> {
    /// Returns a directory: in half of the cases the root, which becomes large.
    fn dir(&mut self) -> Ino {
        if self.random.below(2) == 0 {
            self.dirs[0]
        } else {
            self.dirs[self.random.index(self.dirs.len())]
        }
    }

    fn step(&mut self, number: usize) -> Result<()> {
        let (dir, name) = (self.dir(), self.random.name(number));
        let new = NewInode {
            permissions: 0o644,
            uid: self.random.below(1 << 32) as u32,
            gid: 7,
            time: TIME,
            parent_time: Some(TIME),
        };
        let choice = self.random.below(16);
        let ino = match choice {
            0 => {
                let ino = self.fs.mkdir(dir, &name, &NewInode { permissions: 0o755, ..new })?;
                self.dirs.push(ino);
                return Ok(());
            }
            1..=8 => {
                let ino = self.fs.create(dir, &name, &new)?;
                let size = self.random.below(9000);
                let data = self.random.bytes(size);
                self.fs.write(ino, self.random.below(3) * 100_000, &data, Some(TIME))?;
                ino
            }
            9 => {
                let target = self.name_of(200);
                self.fs.symlink(dir, &name, &target, &new)?
            }
            _ if self.files.is_empty() => return Ok(()),
            _ => return self.change(choice, dir, name),
        };
        self.files.push(Named { dir, name, ino });
        Ok(())
    }

    fn name_of(&mut self, len_max: u64) -> Vec<u8> {
        let len = 1 + self.random.below(len_max);
        self.random.bytes(len).into_iter().map(|b| b.max(1)).collect()
    }

    /// Changes an existing file.
    fn change(&mut self, choice: u64, dir: Ino, name: Vec<u8>) -> Result<()> {
        let at = self.random.index(self.files.len());
        let Named { dir: old_dir, name: old_name, ino } = &self.files[at];
        let (old_dir, ino) = (*old_dir, *ino);
        match choice {
            10 => {
                let len = self.random.below(if self.random.0 >> 60 == 0 { 3000 } else { 100 });
                let value = self.random.bytes(len);
                match self.fs.set_xattr(ino, b"user.everywhere", &value) {
                    // Symbolic links have no permissions.
                    Err(vfs::Error::NotPermitted(_)) => {}
                    other => other?,
                }
            }
            11 => {
                self.fs.link(ino, dir, &name, Some(TIME))?;
                self.files.push(Named { dir, name, ino });
            }
            12 | 13 => {
                let from = (old_dir, &old_name[..]);
                self.fs.rename(from, (dir, &name), RenameMode::NoReplace, Some(TIME))?;
                self.files[at] = Named { dir, name, ino };
            }
            14 => {
                self.fs.unlink(old_dir, old_name, Some(TIME))?;
                self.files.swap_remove(at);
            }
            _ if number_is_rare(&mut self.random) => self.fs.sync()?,
            _ => {
                let size = self.random.below(50_000);
                match self.fs.truncate(ino, size, Some(TIME)) {
                    // A symbolic link.
                    Err(vfs::Error::Invalid(_)) => {}
                    other => other?,
                }
            }
        }
        Ok(())
    }
}

fn number_is_rare(random: &mut Random) -> bool {
    random.below(20) == 0
}
