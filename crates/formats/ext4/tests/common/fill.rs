//! Writes to an image, however damaged. Errors are fine.

use std::sync::Arc;

use disk::BlockDevice;
use ext4::Ext4;
use vfs::{AllocateMode, Error, FileSystem, FileType, Ino, NewInode, SetAttributes, SpecialFile};

/// Maximum number of inodes to try.
const INODES_MAX: u64 = 80;
const NEW: NewInode = NewInode {
    permissions: 0o644,
    uid: 70_000,
    gid: 5,
    time: vfs::Timestamp { sec: 1_700_000_000, nsec: 1 },
    parent_time: Some(vfs::Timestamp { sec: 1_700_000_000, nsec: 1 }),
};

/// Opens an image for filling and applies various operations to every inode; `seed` varies them. Returns the errors.
pub fn everything(device: Arc<dyn BlockDevice>, seed: u8) -> Vec<Error> {
    let fs = match Ext4::open_in_progress(device, 256 << 10) {
        Ok(fs) => fs,
        Err(error) => return vec![error],
    };
    let mut errors = Vec::new();
    let inodes = fs.statfs().map_or(0, |totals| totals.inodes).min(INODES_MAX);
    for ino in (2..=inodes).map(Ino) {
        let Ok(attributes) = fs.attributes(ino) else { continue };
        let done = match attributes.file_type {
            FileType::Directory => directory(&fs, ino, seed),
            FileType::Regular => file(&fs, ino, attributes.size, seed),
            _ => Ok(()),
        };
        errors.extend(done.err());
        errors.extend(any(&fs, ino, seed).err());
    }
    errors.extend(fs.finish(None).err());
    errors
}

fn directory(fs: &dyn FileSystem, dir: Ino, seed: u8) -> Result<(), Error> {
    let made = fs.create(dir, b"new-file", &NEW);
    if let Ok(ino) = made {
        file(fs, ino, 0, seed)?;
        fs.link(ino, dir, b"another name for it", None)?;
    }
    let _ = fs.symlink(dir, b"new-link", &[b't'; 20 + 16 * 7], &NEW);
    let _ = fs.symlink(dir, b"short-link", b"t", &NEW);
    let _ = fs.mknod(dir, b"fifo", SpecialFile::Fifo, &NEW);
    if let Ok(ino) = fs.mkdir(dir, b"new-directory", &NEW) {
        let _ = fs.create(ino, b"inside", &NEW);
    }
    // Enough to split blocks and to grow an index.
    let mut name = [b'n'; 200];
    for number in 0..seed % 32 {
        name[0] = b'A' + number;
        fs.link(made.as_ref().copied().unwrap_or(Ino(12)), dir, &name, None)?;
    }
    made.map(|_| ())
}

fn file(fs: &dyn FileSystem, ino: Ino, size: u64, seed: u8) -> Result<(), Error> {
    let data = [seed; 5_000];
    fs.write(ino, size.min(1 << 20), &data, None)?;
    fs.write(ino, 30_000 + u64::from(seed) * 1_000, &data[..1_500], None)?;
    fs.allocate(ino, 100_000, 20_000, AllocateMode::Unwritten)?;
    // An operation that fails at one part of a damaged map may succeed at another.
    let mut result = fs.truncate(ino, 105_000 + u64::from(seed), None);
    for (offset, len, mode) in [
        (31_000, 1_100, AllocateMode::PunchHole),
        (0, 12_000 + u64::from(seed) * 100, AllocateMode::Zero),
        (101_000, 2_000, AllocateMode::ZeroKeepSize),
        (u64::from(seed) * 700, 9_000, AllocateMode::PunchHole),
    ] {
        result = result.and(fs.allocate(ino, offset, len, mode));
    }
    result = result.and(fs.write(ino, 103_000, &data, None));
    if seed % 2 == 1 {
        result = result.and(fs.truncate(ino, u64::from(seed) * 50, None));
    }
    result
}

fn any(fs: &dyn FileSystem, ino: Ino, seed: u8) -> Result<(), Error> {
    let change =
        SetAttributes { permissions: Some(0o600), uid: Some(1 << 20), ..SetAttributes::default() };
    fs.set_attributes(ino, &change)?;
    fs.set_xattr(ino, b"user.new", &[seed; 40])?;
    fs.set_xattr(ino, b"user.large", &vec![seed; 100 + usize::from(seed) * 2])?;
    fs.set_xattr(ino, b"user.short", b"replaced")
}
