//! One thread of the load.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use fastrand::Rng;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags, XattrFlags, copy_file_range,
    fallocate, ioctl_ficlone, linkat, lremovexattr, lsetxattr, makedev, mknodat, open,
    renameat_with,
};

use super::promise::Keeper;
use super::{below, bytes_of};

/// Number of different names in a directory.
const NAMES: u32 = 40;
/// Maximum number of directories that a thread keeps track of.
const DIRS_MAX: usize = 12;
/// Maximum number of open files without a name.
const OPEN_MAX: usize = 10;
/// Maximum size of files in bytes.
const REACH: u64 = 600_000;
/// A multiple of every block size used here.
const ALIGNED: u64 = 4096;

#[derive(Debug)]
pub(super) struct Worker {
    dirs: Vec<PathBuf>,
    rng: Rng,
    keeper: Keeper,
    /// Open files, most of them without a name.
    open: Vec<File>,
}

impl Worker {
    pub(super) fn new(dirs: Vec<PathBuf>, rng: Rng, keeper: Keeper) -> Self {
        Self { dirs, rng, keeper, open: Vec::new() }
    }

    /// Executes one action, if it is possible.
    pub(super) fn step(&mut self) {
        let _ = match self.rng.u32(..100) {
            0..14 => self.make(),
            14..24 => self.remove(),
            24..34 => self.rename(),
            34..54 => self.change_contents(),
            54..62 => self.share(),
            62..76 => self.attributes(),
            76..82 => self.hold(),
            82..86 => self.burst(),
            86..88 => self.exchange(),
            88..91 => self.durable(),
            _ => self.keep(),
        };
    }

    fn dir(&mut self) -> PathBuf {
        self.dirs[self.rng.usize(..self.dirs.len())].clone()
    }

    fn path(&mut self) -> PathBuf {
        let (dir, number) = (self.dir(), self.rng.u32(..NAMES));
        let long = if number % 5 == 4 { "x".repeat(150) } else { String::new() };
        below(&dir, format!("n{number}{long}"))
    }

    fn file(&mut self) -> io::Result<File> {
        let path = self.path();
        open_any(&path, self.rng.bool())
    }

    fn make(&mut self) -> io::Result<()> {
        let path = self.path();
        match self.rng.u8(..10) {
            0..5 => {
                let (len, seed) = (self.rng.usize(..60_000), self.rng.u64(..));
                let file = open_any(&path, true)?;
                file.set_len(0)?;
                file.write_all_at(&bytes_of(seed, len), 0)
            }
            5 | 6 => {
                fs::create_dir(&path)?;
                if self.dirs.len() < DIRS_MAX {
                    self.dirs.push(path);
                }
                Ok(())
            }
            7 => symlink("t".repeat(self.rng.usize(1..1000)), path),
            8 => {
                // Numbers without a driver, because the device will be opened.
                let dev = makedev(self.rng.u32(240..255), self.rng.u32(..200));
                let kinds = [FileType::CharacterDevice, FileType::Fifo, FileType::Socket];
                let kind = kinds[self.rng.usize(..3)];
                Ok(mknodat(CWD, &path, kind, Mode::from_raw_mode(0o640), dev)?)
            }
            _ => {
                let target = self.path();
                fs::hard_link(target, path)
            }
        }
    }

    fn remove(&mut self) -> io::Result<()> {
        let path = self.path();
        if self.rng.u8(..6) > 0 {
            return fs::remove_file(path);
        }
        fs::remove_dir(&path)?;
        self.dirs.retain(|dir| *dir != path);
        Ok(())
    }

    fn rename(&mut self) -> io::Result<()> {
        let (from, to) = (self.path(), self.path());
        let flags = [RenameFlags::empty(), RenameFlags::EXCHANGE, RenameFlags::NOREPLACE];
        let flag = flags[self.rng.usize(..3)];
        Ok(renameat_with(CWD, from, CWD, to, flag)?)
    }

    fn range(&mut self) -> (u64, u64) {
        let (offset, len) = (self.rng.u64(..REACH), self.rng.u64(1..80_000));
        if self.rng.bool() {
            (offset / ALIGNED * ALIGNED, len.div_ceil(ALIGNED) * ALIGNED)
        } else {
            (offset, len)
        }
    }

    fn change_contents(&mut self) -> io::Result<()> {
        let file = self.file()?;
        let ((offset, len), seed) = (self.range(), self.rng.u64(..));
        let flags = match self.rng.u8(..16) {
            0..7 => return file.write_all_at(&bytes_of(seed, len as usize), offset),
            7 | 8 => return file.set_len(if self.rng.u8(..3) == 0 { 0 } else { offset }),
            9 => {
                // Many extents, so that the map needs separate blocks.
                for piece in 0..60 {
                    file.write_all_at(&bytes_of(seed, 900), offset + piece * 2 * ALIGNED)?;
                }
                return Ok(());
            }
            10 | 11 => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            12 => FallocateFlags::ZERO_RANGE,
            13 => FallocateFlags::COLLAPSE_RANGE,
            14 => FallocateFlags::INSERT_RANGE,
            _ => FallocateFlags::KEEP_SIZE,
        };
        Ok(fallocate(file, flags, offset, len)?)
    }

    /// Lets files share blocks, and writes to such files.
    fn share(&mut self) -> io::Result<()> {
        let (from, to) = (self.file()?, self.file()?);
        if self.rng.bool() {
            ioctl_ficlone(&to, &from)?;
        } else {
            let (mut offset, len) = self.range();
            let mut to_offset = self.range().0;
            copy_file_range(&from, Some(&mut offset), &to, Some(&mut to_offset), len as usize)?;
        }
        if self.rng.u8(..3) > 0 {
            let ((offset, len), seed) = (self.range(), self.rng.u64(..));
            to.write_all_at(&bytes_of(seed, len as usize / 4), offset)?;
        }
        if self.rng.u8(..3) == 0 { to.sync_data() } else { Ok(()) }
    }

    fn attributes(&mut self) -> io::Result<()> {
        let path = self.path();
        let names = ["user.a", "user.a longer name than the others", "trusted.b", "security.c"];
        let name = names[self.rng.usize(..4)];
        match self.rng.u8(..12) {
            0..4 => {
                let len = [10, 100, 1000, 6000][self.rng.usize(..4)];
                let value = bytes_of(self.rng.u64(..), self.rng.usize(..len));
                Ok(lsetxattr(&path, name, &value, XattrFlags::empty())?)
            }
            4 | 5 => Ok(lremovexattr(&path, name)?),
            6 => {
                for number in 0..self.rng.u32(..60) {
                    let value = bytes_of(number.into(), self.rng.usize(..200));
                    lsetxattr(
                        &path,
                        format!("trusted.many-{number}"),
                        &value,
                        XattrFlags::empty(),
                    )?;
                }
                Ok(())
            }
            7 => {
                for number in 0..60 {
                    let _ = lremovexattr(&path, format!("trusted.many-{number}"));
                }
                Ok(())
            }
            8 | 9 => lchown(path, Some(self.rng.u32(..5)), Some(self.rng.u32(..5))),
            _ => {
                let permissions = fs::Permissions::from_mode(self.rng.u32(..0o10000));
                fs::set_permissions(path, permissions)
            }
        }
    }

    /// Keeps files open that lose their names or have none; some of them get a name again.
    fn hold(&mut self) -> io::Result<()> {
        if self.open.len() >= OPEN_MAX {
            let file = self.open.swap_remove(self.rng.usize(..OPEN_MAX));
            let path = self.path();
            if self.rng.bool() {
                let own = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
                linkat(CWD, own, CWD, path, AtFlags::SYMLINK_FOLLOW)?;
            }
            return Ok(());
        }
        let len = self.rng.usize(..50_000);
        let file = if self.rng.bool() {
            let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
            File::from(open(self.dir(), flags, Mode::from_raw_mode(0o600))?)
        } else {
            let path = self.path();
            let file = open_any(&path, true)?;
            fs::remove_file(path)?;
            file
        };
        file.write_all_at(&bytes_of(7, len), self.rng.u64(..REACH))?;
        self.open.push(file);
        Ok(())
    }

    /// Fills or empties a directory, so that it and the inodes take all forms.
    fn burst(&mut self) -> io::Result<()> {
        let dir = self.dir();
        let (count, makes) = (self.rng.u32(1..250), self.rng.bool());
        for number in 0..count {
            let path = below(&dir, format!("burst-{number:030}"));
            if makes { drop(File::create(path)) } else { drop(fs::remove_file(path)) }
        }
        Ok(())
    }

    /// Exchanges the contents of two files, if a program supports it.
    fn exchange(&mut self) -> io::Result<()> {
        let (from, to) = (self.path(), self.path());
        exchange_contents(&from, &to);
        Ok(())
    }

    fn durable(&mut self) -> io::Result<()> {
        if self.rng.u8(..8) == 0 {
            return Ok(rustix::fs::syncfs(File::open(&self.dirs[0])?)?);
        }
        let file = self.file()?;
        if self.rng.bool() { file.sync_all() } else { file.sync_data() }
    }

    fn keep(&mut self) -> io::Result<()> {
        self.keeper.keep(&mut self.rng)
    }
}

/// Opens the file with this name, without blocking on a pipe.
fn open_any(path: &Path, create: bool) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits() as i32;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(create).truncate(false).custom_flags(flags).open(path)
}

fn exchange_contents(from: &Path, to: &Path) {
    let is_file = |path: &Path| path.symlink_metadata().is_ok_and(|found| found.is_file());
    if is_file(from) && is_file(to) && crate::program("xfs_io").is_some() {
        let command = format!("exchangerange {}", from.display());
        let _ = crate::tool::finish(crate::tool::command("xfs_io").args(["-c", &command]).arg(to));
    }
}
