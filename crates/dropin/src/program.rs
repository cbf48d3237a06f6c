//! The programs, and the names that they go by.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::Path;

use crate::failure::Ended;
use crate::invoked::Invoked;
#[cfg(target_os = "linux")]
use crate::mount;
use crate::{
    android, blkid, debugfs, dumpe2fs, e2fsck, mke2fs, mkfs_xfs, resize2fs, tune2fs, xfs_admin,
    xfs_growfs, xfs_repair,
};

/// A program of e2fsprogs, xfsprogs or others that there is a namesake of.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    name: &'static str,
    run: fn(Vec<OsString>, &Invoked) -> Ended,
}

/// All of them.
static PROGRAMS: &[Program] = &[
    Program { name: "mke2fs", run: mke2fs::run },
    Program { name: "mkfs.ext2", run: mke2fs::run },
    Program { name: "mkfs.ext3", run: mke2fs::run },
    Program { name: "mkfs.ext4", run: mke2fs::run },
    Program { name: "mkfs.xfs", run: mkfs_xfs::run },
    Program { name: "e2fsck", run: e2fsck::run },
    Program { name: "fsck.ext2", run: e2fsck::run },
    Program { name: "fsck.ext3", run: e2fsck::run },
    Program { name: "fsck.ext4", run: e2fsck::run },
    Program { name: "xfs_repair", run: xfs_repair::run },
    Program { name: "fsck.xfs", run: xfs_repair::fsck },
    Program { name: "resize2fs", run: resize2fs::run },
    Program { name: "xfs_growfs", run: xfs_growfs::run },
    Program { name: "dumpe2fs", run: dumpe2fs::run },
    Program { name: "tune2fs", run: tune2fs::run },
    Program { name: "e2label", run: tune2fs::label },
    Program { name: "debugfs", run: debugfs::run },
    Program { name: "xfs_info", run: xfs_growfs::info },
    Program { name: "xfs_admin", run: xfs_admin::run },
    Program { name: "blkid", run: blkid::run },
    Program { name: "make_ext4fs", run: android::make_ext4fs },
    Program { name: "e2fsdroid", run: android::e2fsdroid },
    #[cfg(target_os = "linux")]
    Program { name: "fuse2fs", run: mount::fuse2fs },
    #[cfg(target_os = "linux")]
    Program { name: "mount.diskwright", run: mount::helper },
    #[cfg(target_os = "linux")]
    Program { name: "mount.fuse.diskwright", run: mount::helper },
];

impl Program {
    /// All programs.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        PROGRAMS.iter()
    }

    /// The program that goes by this name: the last part of the path that it was called by.
    pub fn called(path: &OsStr) -> Option<&'static Self> {
        let name = Path::new(path).file_name()?;
        PROGRAMS.iter().find(|program| name == program.name)
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Runs it with these arguments, which do not begin with its name, and returns the status to end with. What it
    /// says goes to standard output and standard error.
    pub fn run(&self, arguments: impl IntoIterator<Item = OsString>) -> u8 {
        let invoked = Invoked { name: self.name };
        let ended = (self.run)(arguments.into_iter().collect(), &invoked);
        ended.unwrap_or_else(|failure| {
            let _ = writeln!(io::stderr(), "{}: {}", self.name, failure.message);
            failure.status
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_by_the_end_of_the_path() {
        let name = |path: &str| Program::called(OsStr::new(path)).map(Program::name);
        assert_eq!(name("/usr/sbin/mkfs.ext4"), Some("mkfs.ext4"));
        assert_eq!(name("e2fsck"), Some("e2fsck"));
        assert_eq!(name("diskwright"), None);
        assert_eq!(name("/mke2fs/x"), None);
        assert_eq!(name(""), None);
    }

    #[test]
    fn each_name_is_there_once() {
        let mut names = Program::all().map(Program::name).collect::<Vec<_>>();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PROGRAMS.len());
    }
}
