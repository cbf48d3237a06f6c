//! Random trees, and random changes of them, on the host.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};

/// Only a few names, so that changes often affect existing files.
const NAMES: [&str; 9] = ["a", "b", "c", "d", "a.b", "a-b", "long name \u{e4}", "..x", ".h"];

/// Creates files below a directory, and changes them.
pub(crate) struct Gardener {
    root: PathBuf,
    random: fastrand::Rng,
    step: i64,
}

impl Gardener {
    pub(crate) fn new(root: &Path, seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        Self { root: root.to_owned(), random, step: 0 }
    }

    /// Performs a number of random operations.
    pub(crate) fn work(&mut self, steps: usize) {
        for _ in 0..steps {
            self.step += 1;
            let path = self.any_place();
            match self.random.u8(..20) {
                0..=6 => self.make(&path),
                7 | 8 => self.remove(&path),
                9 => self.rename(&path),
                10..=11 => self.link(&path),
                12..=13 => self.change_contents(&path),
                14 => self.change_mode(&path),
                15 => self.change_owner(&path),
                16..=17 => self.change_xattrs(&path),
                _ => self.touch(&path),
            }
        }
    }

    fn any_place(&mut self) -> PathBuf {
        let mut path = self.root.clone();
        loop {
            path.push(self.random.choice(NAMES).unwrap());
            let is_directory = path.symlink_metadata().is_ok_and(|found| found.is_dir());
            if !is_directory || self.random.u8(..3) == 0 {
                return path;
            }
        }
    }

    fn make(&mut self, path: &Path) {
        if path.symlink_metadata().is_ok() {
            self.remove(path);
        }
        match self.random.u8(..12) {
            0..=4 => fs::create_dir(path).unwrap(),
            5 => symlink(self.random.choice(NAMES).unwrap(), path).unwrap(),
            6 => self.node(path, FileType::Fifo),
            7 => self.node(path, FileType::CharacterDevice),
            _ => self.write(path),
        }
        self.touch(path);
    }

    fn node(&mut self, path: &Path, kind: FileType) {
        let device = rustix::fs::makedev(self.random.u32(..200), self.random.u32(..200));
        rustix::fs::mknodat(CWD, path, kind, Mode::RWXU, device).unwrap();
    }

    fn write(&mut self, path: &Path) {
        let file = File::create(path).unwrap();
        let len = self.random.choice([0, 1, 100, 4096, 70_000]).unwrap();
        let bytes: Vec<u8> = std::iter::repeat_with(|| self.random.u8(..)).take(len).collect();
        file.write_all_at(&bytes, 0).unwrap();
        if self.random.u8(..4) == 0 {
            file.set_len(300_000).unwrap();
            file.write_all_at(b"behind a hole", self.random.u64(100_000..250_000)).unwrap();
        }
    }

    fn remove(&mut self, path: &Path) {
        let Ok(found) = path.symlink_metadata() else { return };
        if found.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
    }

    fn rename(&mut self, path: &Path) {
        let to = self.any_place();
        // Some renames are impossible.
        let _ = fs::rename(path, to);
    }

    fn link(&mut self, path: &Path) {
        let to = self.any_place();
        if path.symlink_metadata().is_ok_and(|found| !found.is_dir()) && to != path {
            if to.symlink_metadata().is_ok_and(|found| !found.is_dir()) {
                fs::remove_file(&to).unwrap();
            }
            let _ = fs::hard_link(path, to);
        }
    }

    fn change_contents(&mut self, path: &Path) {
        if !path.symlink_metadata().is_ok_and(|found| found.is_file()) {
            return;
        }
        let file = File::options().write(true).open(path).unwrap();
        match self.random.u8(..3) {
            0 => file.set_len(self.random.u64(..200_000)).unwrap(),
            1 => file.write_all_at(b"changed", self.random.u64(..100_000)).unwrap(),
            // Changes only the contents.
            _ => {
                let found = file.metadata().unwrap();
                if found.len() > 0 {
                    file.write_all_at(&[self.random.u8(..)], self.random.u64(..found.len()))
                        .unwrap();
                    file.set_modified(found.modified().unwrap()).unwrap();
                }
            }
        }
    }

    fn change_mode(&mut self, path: &Path) {
        if path.symlink_metadata().is_ok_and(|found| !found.is_symlink()) {
            let mode = self.random.u32(..0o10000);
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
    }

    fn change_owner(&mut self, path: &Path) {
        let owner = self.random.choice([0, 1000, 70_000, 4_000_000_000]).unwrap();
        let _ = lchown(path, Some(owner), Some(self.random.u32(..100_000)));
    }

    fn change_xattrs(&mut self, path: &Path) {
        let Ok(found) = path.symlink_metadata() else { return };
        let kind = if found.is_file() || found.is_dir() { "user" } else { "trusted" };
        let name = format!("{kind}.{}", self.random.choice(["x", "y=%", "z"]).unwrap());
        if self.random.u8(..3) == 0 {
            let _ = rustix::fs::lremovexattr(path, name.as_str());
            return;
        }
        let len = self.random.choice([0, 5, 200]).unwrap();
        let value = vec![self.random.u8(..); len];
        rustix::fs::lsetxattr(path, name.as_str(), &value, XattrFlags::empty()).unwrap();
    }

    fn touch(&mut self, path: &Path) {
        if path.symlink_metadata().is_ok() {
            let time = Timespec {
                tv_sec: 1_000_000_000 + self.step,
                tv_nsec: self.random.i64(0..1_000_000_000),
            };
            let times = Timestamps { last_access: time, last_modification: time };
            rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        }
    }
}
