//! Opening the file of an image, with a lock that keeps other processes from changing it.
//!
//! The locks are advisory (`flock`) and on the whole file, also for one partition of a disk. They
//! last as long as the open file. Where a file system has no locks, there is no protection.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::mounts::Mount;
use crate::{Error, Result, mount};

/// Opens an image for reading. Nobody can open it for writing meanwhile, unless `unlocked`.
pub(crate) fn open_to_read(path: &Path, unlocked: bool) -> Result<File> {
    let file = File::open(path).map_err(|e| Error::host("open", path, e))?;
    if !unlocked {
        check(path, file.try_lock_shared(), "wait for it, or read what is there now with --stale")?;
    }
    Ok(file)
}

/// Opens an image for writing. Nobody else can open it meanwhile.
pub(crate) fn open_to_write(path: &Path) -> Result<File> {
    let host = |e| Error::host("open", path, e);
    let metadata = std::fs::metadata(path).map_err(host)?;
    let mut options = File::options();
    options.read(true).write(true);
    if metadata.file_type().is_block_device() {
        // The kernel then refuses devices that are mounted or part of something.
        options.custom_flags(OFlags::EXCL.bits().cast_signed());
    }
    let file = options.open(path).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => host(
            io::Error::other(format!("{error}; changing an image needs the right to write it")),
        ),
        io::ErrorKind::ResourceBusy => in_use(path, "the kernel", "unmount it first"),
        _ => host(error),
    })?;
    check(path, file.try_lock(), "try again when it is done")?;
    if let Some(device) = loop_device(&metadata) {
        let who = format!("the kernel, through {}", crate::text::escaped(device.as_bytes()));
        return Err(in_use(path, &who, "unmount it and detach the device with losetup -d first"));
    }
    Ok(file)
}

fn check(path: &Path, locked: Result<(), TryLockError>, advice: &'static str) -> Result<()> {
    match locked {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(in_use(path, "another program", advice)),
        // Not every file system has locks.
        Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Unsupported => Ok(()),
        Err(TryLockError::Error(e)) => Err(Error::host("lock", path, e)),
    }
}

fn in_use(path: &Path, who: &str, advice: &'static str) -> Error {
    if let Some(point) = mounted_at(path) {
        let point = crate::text::escaped(point.as_os_str().as_encoded_bytes()).to_string();
        let who = format!("diskwright, which has it mounted at {point}");
        let advice = "unmount it first, with diskwright unmount";
        return Error::InUse { image: path.to_owned(), who, advice };
    }
    Error::InUse { image: path.to_owned(), who: who.to_owned(), advice }
}

/// Where a program of ours has mounted an image, if that can be told.
fn mounted_at(path: &Path) -> Option<PathBuf> {
    let image = std::fs::metadata(path).ok()?;
    let is_it = |mount: &Mount| {
        mount.fs_type == mount::FS_TYPE
            && std::fs::metadata(&mount.source)
                .is_ok_and(|source| source.dev() == image.dev() && source.ino() == image.ino())
    };
    Some(Mount::all().ok()?.into_iter().find(is_it)?.point)
}

/// Name of the loop device that a file is attached to for writing.
fn loop_device(image: &std::fs::Metadata) -> Option<String> {
    let devices = std::fs::read_dir("/sys/block").ok()?;
    devices.flatten().find_map(|device| {
        let about = |what: &str| std::fs::read_to_string(device.path().join(what)).ok();
        let backing = PathBuf::from(about("loop/backing_file")?.trim_end_matches('\n'));
        let backing = std::fs::metadata(backing).ok()?;
        let is_same = backing.dev() == image.dev() && backing.ino() == image.ino();
        let is_read_only = about("ro").is_some_and(|text| text.trim() == "1");
        (is_same && !is_read_only).then(|| format!("/dev/{}", device.file_name().display()))
    })
}
