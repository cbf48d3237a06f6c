//! Generated source trees with every kind of entry that a file system must store.
//!
//! The same [`Sample`] gives the same tree on every run, including modification times.

mod kinds;

use std::collections::HashMap;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, lsetxattr, mknodat, utimensat,
};

/// Contents of a sample tree. The default fits a default ext4 with 4 KiB blocks.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Seed of all random data: contents, times, names.
    pub seed: u64,
    /// Block size of the target in bytes. File sizes are chosen around it; symbolic links and the extended attributes
    /// of an inode are smaller.
    pub block_size: u32,
    /// Number of names in the largest directory.
    pub wide_names: u32,
    /// Depth of the deepest directory.
    pub depth: u32,
    /// Maximum size of an extended attribute in bytes. More than a block requires `ea_inode` in the target, and a
    /// source file system that supports it.
    pub xattr_bytes_max: usize,
    /// Times with nanoseconds, and outside of 1901 to 2038; not for 128-byte inodes.
    pub wide_times: bool,
    /// A sparse file of 5 GiB.
    pub huge_sparse: bool,
    /// Maximum major and minor number of a device. Linux has 12 and 20 bits; XFS supports 9 and 18.
    pub device_max: (u32, u32),
    /// Maximum length of a symbolic link's target in bytes. XFS supports 1023.
    pub symlink_bytes_max: usize,
}

impl Default for Sample {
    fn default() -> Self {
        Sample {
            seed: 1,
            block_size: 4096,
            wide_names: 5000,
            depth: 60,
            xattr_bytes_max: 2048,
            wide_times: true,
            huge_sparse: true,
            device_max: ((1 << 12) - 1, (1 << 20) - 1),
            symlink_bytes_max: usize::MAX,
        }
    }
}

impl Sample {
    /// Returns a sample for another block size.
    pub fn for_block_size(block_size: u32) -> Self {
        let xattr_bytes_max = block_size as usize / 2;
        Sample { block_size, xattr_bytes_max, ..Self::default() }
    }

    /// Returns a sample for XFS with any block size.
    pub fn for_xfs() -> Self {
        Sample {
            device_max: ((1 << 9) - 1, (1 << 18) - 1),
            symlink_bytes_max: 1023,
            ..Self::default()
        }
    }
}

/// Fills an existing directory. Returns the parts that this machine or user could not create (devices and foreign
/// owners need root, attributes need a file system that supports them). They are also printed to standard error.
///
/// # Panics
/// If a path could not be created for any other reason.
#[track_caller]
pub fn sample_tree(root: &Path, sample: &Sample) -> Vec<String> {
    let mut maker = Maker {
        root: root.to_path_buf(),
        sample: sample.clone(),
        random: fastrand::Rng::with_seed(sample.seed),
        times: HashMap::new(),
        skipped: Vec::new(),
    };
    kinds::make_all(&mut maker);
    maker.set_times(PathBuf::new());
    for part in &maker.skipped {
        eprintln!("SKIPPED in the sample tree: {part}");
    }
    maker.skipped
}

/// Creates entries by path from the root. Panics with the path on errors.
pub(crate) struct Maker {
    root: PathBuf,
    pub(crate) sample: Sample,
    pub(crate) random: fastrand::Rng,
    /// Modification times that are not random, by path.
    times: HashMap<PathBuf, Timespec>,
    skipped: Vec<String>,
}

impl Maker {
    pub(crate) fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join(path)
    }

    pub(crate) fn directory(&mut self, path: impl AsRef<Path>) {
        let path = self.path(path);
        done(&path, fs::create_dir(&path));
        done(&path, fs::set_permissions(&path, Permissions::from_mode(0o755)));
    }

    /// Creates a regular file with data at these offsets and holes in between.
    pub(crate) fn sparse_file(&mut self, path: impl AsRef<Path>, size: u64, data: &[(u64, u64)]) {
        let path = self.path(path);
        let file = done(&path, File::create(&path));
        done(&path, file.set_permissions(Permissions::from_mode(0o644)));
        done(&path, file.set_len(size));
        for &(offset, length) in data {
            let mut bytes = vec![0; length as usize];
            self.random.fill(&mut bytes);
            done(&path, file.write_all_at(&bytes, offset));
        }
    }

    /// Creates a regular file of random bytes without holes.
    pub(crate) fn file(&mut self, path: impl AsRef<Path>, size: u64) {
        self.sparse_file(path, size, &[(0, size)]);
    }

    pub(crate) fn symlink(&mut self, path: impl AsRef<Path>, target: impl AsRef<Path>) {
        let path = self.path(path);
        done(&path, std::os::unix::fs::symlink(target, &path));
    }

    pub(crate) fn hard_link(&mut self, original: &str, path: &str) {
        let path = self.path(path);
        done(&path, fs::hard_link(self.path(original), &path));
    }

    /// Creates a FIFO, socket or device; devices are skipped without root.
    pub(crate) fn special(&mut self, path: &str, file_type: FileType, device: (u32, u32)) {
        let device = rustix::fs::makedev(device.0, device.1);
        let full = self.path(path);
        let mode = Mode::from_raw_mode(0o640);
        let result = mknodat(CWD, &full, file_type, mode, device);
        if self.allowed(path, result) {
            done(&full, fs::set_permissions(&full, Permissions::from_mode(0o640)));
        }
    }

    pub(crate) fn mode(&mut self, path: impl AsRef<Path>, mode: u32) {
        let path = self.path(path);
        done(&path, fs::set_permissions(&path, Permissions::from_mode(mode)));
    }

    /// Returns the modes with which the tree remains readable for its creator; root can read with any.
    pub(crate) fn readable<const N: usize>(&mut self, modes: [u32; N]) -> Vec<u32> {
        let is_root = rustix::process::geteuid().is_root();
        let (readable, others): (Vec<_>, Vec<_>) =
            modes.into_iter().partition(|mode| is_root || mode & 0o400 != 0);
        self.skipped.extend(others.iter().map(|mode| format!("mode {mode:04o}: it needs root")));
        readable
    }

    /// Changes owner and group; skipped without root.
    pub(crate) fn owner(&mut self, path: &str, uid: u32, gid: u32) {
        let result = std::os::unix::fs::lchown(self.path(path), Some(uid), Some(gid));
        self.allowed(path, result.map_err(|error| errno_of(&error)));
    }

    /// Sets an extended attribute; skipped if the source or the user does not permit it.
    pub(crate) fn xattr(&mut self, path: &str, name: &[u8], value: &[u8]) {
        let result = lsetxattr(self.path(path), name, value, XattrFlags::empty());
        self.allowed(&format!("{path} with {}", name.escape_ascii()), result);
    }

    /// Sets a modification time that is not random.
    pub(crate) fn time(&mut self, path: &str, tv_sec: i64, tv_nsec: i64) {
        self.times.insert(path.into(), Timespec { tv_sec, tv_nsec });
    }

    /// Returns whether an action succeeded; records actions that may fail on some machines as skipped.
    fn allowed(&mut self, what: &str, result: rustix::io::Result<()>) -> bool {
        use rustix::io::Errno;
        match result {
            Ok(()) => return true,
            Err(error @ (Errno::PERM | Errno::OPNOTSUPP | Errno::NOSPC | Errno::TOOBIG)) => {
                self.skipped.push(format!("{what}: {error}"));
            }
            Err(error) => panic!("{what}: {error}"),
        }
        false
    }

    /// Sets the times of a directory's entries, in the order of their names, then its own.
    fn set_times(&mut self, directory: PathBuf) {
        let path = self.path(&directory);
        let mut names = Vec::new();
        for entry in done(&path, fs::read_dir(&path)) {
            let entry = done(&path, entry);
            names.push((entry.file_name(), done(&path, entry.file_type()).is_dir()));
        }
        names.sort();
        for (name, is_directory) in names {
            let entry = directory.join(name);
            if is_directory {
                self.set_times(entry);
            } else {
                self.set_time(&entry);
            }
        }
        self.set_time(&directory);
    }

    fn set_time(&mut self, entry: &Path) {
        let nanoseconds =
            if self.sample.wide_times { self.random.i64(0..1_000_000_000) } else { 0 };
        let random =
            Timespec { tv_sec: self.random.i64(0..i64::from(i32::MAX)), tv_nsec: nanoseconds };
        let time = self.times.get(entry).copied().unwrap_or(random);
        let times = Timestamps { last_access: time, last_modification: time };
        // Joining an empty path would add a slash.
        let path = if entry.as_os_str().is_empty() { self.root.clone() } else { self.path(entry) };
        let result = utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW);
        done(&path, result.map_err(io::Error::from));
    }
}

#[track_caller]
fn done<T>(path: &Path, result: io::Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn errno_of(error: &io::Error) -> rustix::io::Errno {
    rustix::io::Errno::from_io_error(error).unwrap_or(rustix::io::Errno::IO)
}
