//! Images that the kernel left with a dirty log, and recovery of copies of them.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::{BlockDevice, FileDevice, MemoryDevice};
use rustix::fs::{FallocateFlags, Mode, OFlags, XattrFlags};
use testkit::{Ignore, KernelMount, MkfsXfs, MountOptions, Tree};
use xfs::format::superblock::Superblock;
use xfs::{OpenOptions, RecoverReport, Xfs};

pub(crate) const MIB: u64 = 1 << 20;

/// Way of stopping the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// All changes reach the log first.
    Flushed,
    /// No further changes reach the log.
    AtOnce,
}

/// Makes an image in `home`, mounts it with the kernel, runs `load`, and stops the kernel.
pub(crate) fn dirty(
    home: &Path,
    options: &str,
    size: u64,
    stop: Stop,
    load: impl FnOnce(&Path),
) -> PathBuf {
    let image = home.join("dirty");
    MkfsXfs::default().options(options).create(&image, size);
    let mount = KernelMount::new(&image, &MountOptions::read_write("xfs"));
    load(mount.path());
    shut_down(mount.path(), stop);
    mount.unmount();
    image
}

pub(crate) fn shut_down(root: &Path, stop: Stop) {
    let command = if stop == Stop::Flushed { "shutdown -f" } else { "shutdown" };
    let mut xfs_io = testkit::command("xfs_io");
    assert!(xfs_io.args(["-x", "-c", command]).arg(root).status().unwrap().success());
}

/// Random changes of many kinds; impossible ones are skipped.
pub(crate) struct Load {
    random: fastrand::Rng,
    /// Unlinked files, kept open.
    nameless: Vec<File>,
}

impl Load {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: fastrand::Rng::with_seed(seed), nameless: Vec::new() }
    }

    fn name(&mut self, root: &Path) -> PathBuf {
        let long = "n".repeat(self.random.choice([1, 5, 60, 200]).unwrap());
        root.join(format!("{long}{}", self.random.u32(..150)))
    }

    pub(crate) fn run(&mut self, root: &Path, steps: usize) {
        for _ in 0..steps {
            let (path, other) = (self.name(root), self.name(root));
            // Many steps fail, because a file does not exist or already exists.
            let _ = self.step(root, &path, &other);
        }
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.random.fill(&mut bytes);
        bytes
    }

    fn step(&mut self, root: &Path, path: &Path, other: &Path) -> std::io::Result<()> {
        let at = |random: &mut fastrand::Rng| {
            let bits = random.u32(10..22);
            random.u64(..1 << bits)
        };
        match self.random.u32(..20) {
            0..=4 => {
                let mut file =
                    File::options().write(true).create(true).truncate(false).open(path)?;
                for _ in 0..self.random.choice([1, 1, 3, 20]).unwrap() {
                    file.seek(SeekFrom::Start(at(&mut self.random)))?;
                    let len = self.random.choice([10, 4096, 9000]).unwrap();
                    file.write_all(&self.bytes(len))?;
                }
                if self.random.u32(..4) == 0 {
                    file.sync_all()?;
                }
            }
            5 | 6 => fs::remove_file(path)?,
            7 | 8 => fs::rename(path, other)?,
            9 => fs::hard_link(path, other)?,
            10 => {
                let len = self.random.choice([5, 400, 1000]).unwrap();
                std::os::unix::fs::symlink("t".repeat(len), path)?;
            }
            11 => fs::create_dir(path)?,
            12 => fs::remove_dir(path)?,
            13 | 14 => {
                let name = format!("user.a{}", self.random.u32(..30));
                let len = self.random.choice([3, 100, 1000, 5000]).unwrap();
                rustix::fs::setxattr(path, name, &self.bytes(len), XattrFlags::empty())?;
            }
            15 => rustix::fs::removexattr(path, format!("user.a{}", self.random.u32(..30)))?,
            16 => File::options().write(true).open(path)?.set_len(at(&mut self.random))?,
            17 => rustix::fs::ioctl_ficlone(&File::create(other)?, File::open(path)?)?,
            18 => {
                let file = File::options().read(true).write(true).open(path)?;
                let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let kinds = [punch, FallocateFlags::KEEP_SIZE, FallocateFlags::ZERO_RANGE];
                let (start, len) = (at(&mut self.random), 1 + at(&mut self.random));
                rustix::fs::fallocate(&file, self.random.choice(kinds).unwrap(), start, len)?;
            }
            _ => {
                // Without CLOEXEC, a guest started by another test keeps the mount busy.
                let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
                let file = rustix::fs::open(root, flags, Mode::from_raw_mode(0o600))?;
                self.nameless.push(file.into());
                if self.nameless.len() > 10 {
                    self.nameless.remove(0);
                }
            }
        }
        Ok(())
    }
}

pub(crate) fn sync(root: &Path) {
    rustix::fs::syncfs(File::open(root).unwrap()).unwrap();
}

pub(crate) fn copy(image: &Path, name: &str) -> PathBuf {
    let copy = image.with_file_name(name);
    testkit::copy_image(image, &copy);
    copy
}

pub(crate) fn device(image: &Path) -> Arc<FileDevice> {
    let file = File::options().read(true).write(true).open(image).unwrap();
    Arc::new(FileDevice::new(file).unwrap())
}

/// Returns an image as a device in memory.
pub(crate) fn in_memory(image: &Path) -> MemoryDevice {
    let file = File::open(image).unwrap();
    let device = MemoryDevice::new(file.metadata().unwrap().len());
    let (zeros, mut bytes) = (vec![0; MIB as usize], vec![0; MIB as usize]);
    for at in (0..device.len()).step_by(bytes.len()) {
        let len = bytes.len().min((device.len() - at) as usize);
        file.read_exact_at(&mut bytes[..len], at).unwrap();
        if bytes[..len] != zeros[..len] {
            device.write_at(at, &bytes[..len]).unwrap();
        }
    }
    device
}

pub(crate) fn superblock(device: &dyn BlockDevice) -> Superblock {
    let mut sector = vec![0; 4096];
    device.read_at(0, &mut sector).unwrap();
    Superblock::parse(&sector, device.len()).unwrap()
}

/// Returns the byte range of the log on the device.
pub(crate) fn log_place(sb: &Superblock) -> std::ops::Range<u64> {
    let geometry = xfs::format::geometry::Geometry::new(sb);
    let start = xfs::format::address::FsBlock(sb.raw.logstart.get());
    let start = geometry.byte_of(geometry.device_block(start));
    start..start + (u64::from(sb.raw.logblocks.get()) << sb.raw.blocklog)
}

/// Replays a log in place and closes the image.
pub(crate) fn by_us(image: &Path) -> vfs::Result<RecoverReport> {
    let fs = Xfs::open_writable(device(image), &OpenOptions::default())?;
    let report = *fs.recovered();
    fs.close().map(|()| report)
}

/// Lets the kernel replay a log, if it can.
pub(crate) fn by_kernel(image: &Path) -> Result<(), String> {
    KernelMount::attempt(image, &MountOptions::read_write("xfs")).map(KernelMount::unmount)
}

pub(crate) fn tree(image: &Path) -> Tree {
    let mount = KernelMount::new(image, &MountOptions::read_only("xfs"));
    Tree::of(mount.path())
}

/// Asserts that this implementation and the kernel recover an image to the same state, without damage. Leaves the
/// copies next to it.
#[track_caller]
pub(crate) fn assert_replayed_alike(image: &Path, what: &str) -> RecoverReport {
    let before = testkit::digest(image);
    let (ours, theirs) = (copy(image, "ours"), copy(image, "theirs"));
    by_kernel(&theirs).unwrap_or_else(|error| panic!("{what}: {error}"));
    let report = by_us(&ours).unwrap_or_else(|error| panic!("{what}: {error}"));
    let expected = tree(&theirs);
    let found = testkit::differences(&expected, &tree(&ours), &Ignore::default());
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
    if let Err(remarks) = testkit::xfs_repair_verdict(&ours) {
        let of_theirs = testkit::xfs_repair_verdict(&theirs);
        assert!(of_theirs.is_err(), "{what}: {remarks}");
    }
    // A read-only open shows the same, and changes nothing.
    crate::changing::kernel::assert_same(&expected, image, Default::default());
    assert_eq!(testkit::digest(image), before, "{what}: it was changed");
    report
}
