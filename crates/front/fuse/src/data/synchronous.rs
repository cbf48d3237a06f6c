//! Requests on files that are open with `O_SYNC` or `O_DSYNC`.
//!
//! After a write(2) to such a file the kernel sends FSYNC. After fallocate(2) and copy_file_range(2) it does not
//! (6.18), and their requests lack the flags of the open file. The mount does not get OPEN requests either, which saves
//! a request for each. So the flags are read from `/proc`, while the calling thread waits for the answer.

use std::fs;

use linux::Errno;
use linux::abi::{FSYNC_FDATASYNC, FsyncIn, InHeader};
use rustix::fs::OFlags;
use vfs::Ino;

use crate::Adapter;

/// Maximum number of open files that are examined. A caller with more open files always waits.
const FILES_MAX: usize = 1024;

/// Bit of the flags in proc_pid_stat(5) that kernel threads have (`PF_KTHREAD`).
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Durability required of a change when its request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wait {
    No,
    /// The contents and the size, for `O_DSYNC`.
    Data,
    /// The whole inode, for `O_SYNC`.
    All,
}

impl Adapter<'_> {
    /// Makes a file durable if the calling process has it open with `O_SYNC` or `O_DSYNC`, or may have.
    ///
    /// # Errors
    /// The errors of FSYNC.
    pub(super) fn sync_if_asked(&self, header: &InHeader, ino: Ino) -> Result<(), Errno> {
        let fsync_flags = match wait_of(header.pid, ino) {
            Wait::No => return Ok(()),
            Wait::Data => FSYNC_FDATASYNC,
            Wait::All => 0,
        };
        self.fsync(ino, &FsyncIn { fsync_flags, ..FsyncIn::default() })
    }
}

/// Returns the strictest flag with which a process has a file open. A process that cannot be seen, or whose files do
/// not include this one (a fixed file of io_uring), may have asked for everything. Kernel threads (loop devices, NFS)
/// never do: they send FSYNC.
fn wait_of(pid: u32, ino: Ino) -> Wait {
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fdinfo")) else { return Wait::All };
    let mut found = None;
    for (number, file) in files.enumerate() {
        if number >= FILES_MAX {
            return Wait::All;
        }
        // A file that another thread has just closed is not this one: its caller waits.
        let Some(info) = file.ok().and_then(|file| fs::read_to_string(file.path()).ok()) else {
            continue;
        };
        if let Some((found_ino, wait)) = parse(&info)
            && found_ino == ino.0
        {
            found = found.max(Some(wait));
        }
    }
    found.unwrap_or_else(|| if is_kernel_thread(pid) { Wait::No } else { Wait::All })
}

/// Reads inode number and flags of an open file, as proc_pid_fdinfo(5) shows them.
fn parse(info: &str) -> Option<(u64, Wait)> {
    let field = |name| info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let flags = u32::from_str_radix(field("flags:")?, 8).ok()?;
    let has = |flag: OFlags| flags & flag.bits() == flag.bits();
    let wait = match () {
        () if has(OFlags::SYNC) => Wait::All,
        () if has(OFlags::DSYNC) => Wait::Data,
        () => Wait::No,
    };
    Some((field("ino:")?.parse().ok()?, wait))
}

fn is_kernel_thread(pid: u32) -> bool {
    // The name in parentheses may have blanks; the flags are the seventh field after it.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let flags = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(6));
    flags
        .and_then(|flags| flags.parse::<u64>().ok())
        .is_some_and(|flags| flags & KERNEL_THREAD != 0)
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

    use rustix::fs::OFlags;
    use vfs::Ino;

    use super::{Wait, is_kernel_thread, wait_of};

    #[test]
    fn the_flags_of_open_files_are_found_by_their_inodes() {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str, flags: OFlags| {
            let mut options = OpenOptions::new();
            options.write(true).create(true).custom_flags(flags.bits() as i32);
            let file = options.open(folder.path().join(name)).unwrap();
            (Ino(file.metadata().unwrap().ino()), file)
        };
        let pid = std::process::id();
        let cases =
            [(OFlags::empty(), Wait::No), (OFlags::DSYNC, Wait::Data), (OFlags::SYNC, Wait::All)];
        for (flags, expected) in cases {
            let (ino, file) = open(&format!("{flags:?}"), flags);
            assert_eq!(wait_of(pid, ino), expected);
            let (_, strict) = open(&format!("{flags:?}"), OFlags::SYNC);
            assert_eq!(wait_of(pid, ino), Wait::All);
            drop((file, strict));
            assert_eq!(wait_of(pid, ino), Wait::All, "a file that this process does not have open");
        }
        assert_eq!(wait_of(0, Ino(1)), Wait::All, "a caller that cannot be seen");
        assert!(!is_kernel_thread(pid));
    }
}
