//! Random changes by several owners and in several projects.

use fastrand::Rng;
use vfs::{
    AllocateMode, Error, FileAttributesChange, FileSystem, Ino, InodeFlags, NewInode, RenameMode,
    Result, SetAttributes, SpecialFile, Timestamp,
};
use xfs::Xfs;

/// Identifiers of owners: several in one block of records, and others far away.
const IDS: [u32; 8] = [0, 1, 29, 30, 1000, 1001, 70_000, 4_000_000_000];
const PROJECTS: [u32; 4] = [0, 42, 43, 1_000_000];
/// Seconds since the epoch.
const NOW: i64 = 1_790_000_000;

/// A name in a directory.
#[derive(Clone)]
struct Name {
    dir: Ino,
    name: Vec<u8>,
    ino: Ino,
    is_dir: bool,
}

/// A run of random changes.
pub(crate) struct QuotaRun {
    pub(crate) fs: Xfs,
    rng: Rng,
    dirs: Vec<Ino>,
    names: Vec<Name>,
    next: u32,
}

impl QuotaRun {
    pub(crate) fn new(fs: Xfs, seed: u64) -> Self {
        let dirs = vec![fs.root()];
        Self { fs, rng: Rng::with_seed(seed), dirs, names: Vec::new(), next: 0 }
    }

    pub(crate) fn steps(&mut self, steps: usize) {
        for _ in 0..steps {
            match self.step() {
                Ok(()) | Err(Error::NotEmpty | Error::OtherProject | Error::Invalid(_)) => {}
                // The image may get full.
                Err(Error::NoSpace) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn time(&mut self) -> Option<Timestamp> {
        Some(Timestamp { sec: NOW + i64::from(self.next), nsec: 0 })
    }

    fn id(&mut self) -> u32 {
        IDS[self.rng.usize(..IDS.len())]
    }

    fn new_inode(&mut self) -> NewInode {
        let (uid, gid) = (self.id(), self.id());
        let time = self.time().unwrap();
        NewInode { permissions: 0o755, uid, gid, time, parent_time: Some(time) }
    }

    fn dir(&mut self) -> Ino {
        self.dirs[self.rng.usize(..self.dirs.len())]
    }

    fn any(&mut self) -> Option<usize> {
        (!self.names.is_empty()).then(|| self.rng.usize(..self.names.len()))
    }

    fn file(&mut self) -> Option<Ino> {
        let at = self.any()?;
        (!self.names[at].is_dir).then(|| self.names[at].ino)
    }

    fn step(&mut self) -> Result<()> {
        self.next += 1;
        let name = format!("a name of some length {}", self.next).into_bytes();
        match self.rng.u32(..24) {
            0..=6 => self.make(name),
            7..=10 => self.change_contents(),
            11 | 12 => self.remove(),
            13 | 14 => self.change_owner(),
            15 | 16 => self.change_attributes(),
            17 => {
                let Some(at) = self.any() else { return Ok(()) };
                let to = self.dir();
                let Name { dir, name: old, ino, is_dir } = self.names[at].clone();
                if is_dir {
                    return Ok(());
                }
                let time = self.time();
                self.fs.rename((dir, &old), (to, &name), RenameMode::Replace, time)?;
                self.names[at] = Name { dir: to, name, ino, is_dir };
                Ok(())
            }
            18 => {
                let (Some(ino), dir) = (self.file(), self.dir()) else { return Ok(()) };
                self.fs.link(ino, dir, &name, None)?;
                self.names.push(Name { dir, name, ino, is_dir: false });
                Ok(())
            }
            19 => {
                let (dir, new) = (self.dir(), self.new_inode());
                let ino = self.fs.create_unlinked(dir, &new)?;
                let written = self.fs.write(ino, 0, &[1; 30_000], None);
                FileSystem::close(&self.fs, ino)?;
                written
            }
            20 if self.next.is_multiple_of(5) => self.fs.sync(),
            _ => self.make(name),
        }
    }

    fn make(&mut self, name: Vec<u8>) -> Result<()> {
        let (dir, new) = (self.dir(), self.new_inode());
        let ino = match self.rng.u32(..12) {
            0 => {
                let ino = self.fs.mkdir(dir, &name, &new)?;
                if self.dirs.len() < 12 {
                    self.dirs.push(ino);
                }
                self.names.push(Name { dir, name, ino, is_dir: true });
                let project_id = Some(PROJECTS[self.rng.usize(..PROJECTS.len())]);
                let set = InodeFlags::PROJINHERIT;
                let change = FileAttributesChange { set, project_id, ..Default::default() };
                return self.fs.set_file_attributes(ino, &change);
            }
            1 => {
                let len = [20, 700][self.rng.usize(..2)];
                self.fs.symlink(dir, &name, &vec![b'x'; len], &new)?
            }
            2 => self.fs.mknod(dir, &name, SpecialFile::Fifo, &new)?,
            _ => self.fs.create(dir, &name, &new)?,
        };
        self.names.push(Name { dir, name, ino, is_dir: false });
        Ok(())
    }

    fn change_contents(&mut self) -> Result<()> {
        let Some(ino) = self.file() else { return Ok(()) };
        if self.fs.attributes(ino)?.file_type != vfs::FileType::Regular {
            return Ok(());
        }
        let (at, len) = (self.rng.u64(..200_000), self.rng.usize(1..40_000));
        let time = self.time();
        match self.rng.u32(..6) {
            0 => self.fs.truncate(ino, at, time),
            1 => self.fs.allocate(ino, at, len as u64, AllocateMode::UnwrittenKeepSize),
            2 => self.fs.allocate(ino, at, len as u64, AllocateMode::PunchHole),
            _ => self.fs.write(ino, at, &vec![7; len], time),
        }
    }

    fn remove(&mut self) -> Result<()> {
        let Some(at) = self.any() else { return Ok(()) };
        let Name { dir, name, ino, is_dir } = self.names[at].clone();
        let time = self.time();
        if is_dir {
            self.fs.rmdir(dir, &name, time)?;
            self.dirs.retain(|dir| *dir != ino);
        } else {
            self.fs.unlink(dir, &name, time)?;
        }
        self.names.swap_remove(at);
        Ok(())
    }

    fn change_owner(&mut self) -> Result<()> {
        let Some(at) = self.any() else { return Ok(()) };
        let ino = self.names[at].ino;
        if self.rng.bool() && self.names[at].is_dir {
            let project_id = Some(PROJECTS[self.rng.usize(..PROJECTS.len())]);
            let change = FileAttributesChange { project_id, ..Default::default() };
            return self.fs.set_file_attributes(ino, &change);
        }
        let (uid, gid) = (Some(self.id()), self.rng.bool().then_some(self.id()));
        self.fs.set_attributes(ino, &SetAttributes { uid, gid, ..Default::default() })
    }

    fn change_attributes(&mut self) -> Result<()> {
        let Some(at) = self.any() else { return Ok(()) };
        let ino = self.names[at].ino;
        if !matches!(
            self.fs.attributes(ino)?.file_type,
            vfs::FileType::Regular | vfs::FileType::Directory
        ) {
            return Ok(());
        }
        let name = format!("user.{}", self.rng.u32(..4));
        if self.rng.u32(..4) == 0 {
            return match self.fs.remove_xattr(ino, name.as_bytes()) {
                Err(Error::NoAttribute) => Ok(()),
                other => other,
            };
        }
        let len = [10, 500, 9_000][self.rng.usize(..3)];
        self.fs.set_xattr(ino, name.as_bytes(), &vec![b'v'; len])
    }
}
