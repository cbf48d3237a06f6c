//! Opening and locking image files, and checking the locks of files that are to be replaced.
//!
//! Locks are advisory (`flock`) and apply to the whole file, even for one partition of a disk. They last as long as the
//! open file. File systems without locks offer no protection. [`qemu`] acquires and respects the locks of QEMU
//! programs.
//!
//! A lock applies to a file, not to a name. After locking, a program checks that the name still refers to the file. If
//! it was replaced meanwhile, the lock excludes no other program.

pub(crate) mod kernel;
pub(crate) mod qemu;

use std::fs::{File, Metadata, TryLockError};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vfs::hint::{Advice, Hint, Setting};

use disk::FileDevice;

use crate::anywhere::words;
use crate::host::{self, FileId, FileTypeExt};
use crate::{Error, Result};
pub(crate) use kernel::LoopFiles;
#[cfg(feature = "build")]
pub(crate) use kernel::refuse_changing;
use kernel::{is_released_soon, user_of_device, wait_for_release};
use qemu::ImageAccess;

/// Maximum number of attempts when the name refers to another file than the one just locked. Each time, another program
/// has completed a new file of that name.
pub(crate) const TRIES: u32 = 100;

/// Maximum wait for a lock that is held only briefly.
const GRACE: Duration = Duration::from_millis(250);

/// Returns the device of an open image file.
pub(crate) fn device(path: &Path, file: File) -> Result<FileDevice> {
    FileDevice::new(file).map_err(|e| Error::host("read", path, e))
}

/// Opens an image for reading. Other programs cannot open it for writing meanwhile, unless `unlocked`.
pub(crate) fn open_to_read(path: &Path, unlocked: bool) -> Result<File> {
    let failed = |e| words::missing(path, &e).unwrap_or_else(|| Error::host("open", path, e));
    for _ in 0..TRIES {
        let file = open(path, File::options().read(true), false).map_err(failed)?;
        if unlocked {
            return Ok(file);
        }
        let id = host::id_of(&file).map_err(failed)?;
        let locked = lock(&file, File::try_lock_shared, id, ANOTHER, READER_ADVICE);
        unless_for_us(locked, &file, id)
            .and_then(|()| {
                lock(&file, |file| qemu::try_lock(file, ImageAccess::Read), id, QEMU, READER_ADVICE)
            })
            .map_err(|refused| refused.at("lock", path))?;
        if is_at(path, &file).map_err(failed)? {
            return Ok(file);
        }
    }
    Err(Refused::always_replaced().at("open", path))
}

/// Opens an image for writing. Other programs cannot open it meanwhile.
pub(crate) fn open_to_write(path: &Path) -> Result<File> {
    open_writable(path, true)
}

/// Open block device with an exclusive claim in the kernel (`O_EXCL`). The kernel itself needs the claim to mount the
/// device, so this one must be dropped first.
#[cfg(all(feature = "mount", target_os = "linux"))]
#[derive(Debug)]
pub(crate) struct DeviceClaim {
    _exclusive: File,
}

#[cfg(all(feature = "mount", target_os = "linux"))]
impl DeviceClaim {
    pub(crate) fn new(path: &Path) -> Result<Self> {
        Ok(Self { _exclusive: open_released(path, true)? })
    }
}

/// Opens an image for writing like [`open_to_write`]. If the kernel can mount it as a block device, the claim is
/// returned separately.
#[cfg(all(feature = "mount", target_os = "linux"))]
pub(crate) fn open_to_mount(path: &Path) -> Result<(File, Option<DeviceClaim>)> {
    let is_device = std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
    if !is_device || !rustix::process::geteuid().is_root() {
        return Ok((open_to_write(path)?, None));
    }
    let claim = DeviceClaim::new(path)?;
    Ok((open_writable(path, false)?, Some(claim)))
}

/// Opens a file for writing, and a block device exclusively on request: the kernel then refuses one that is mounted or
/// part of another device. Waits for a device that is about to be released.
fn open_released(path: &Path, is_exclusive: bool) -> Result<File> {
    let open = || open(path, File::options().read(true).write(true), is_exclusive);
    let file = wait_for_release(open, |e: &io::Error| {
        e.kind() == io::ErrorKind::ResourceBusy && is_released_soon(path)
    });
    file.map_err(|e| not_writable(path, e))
}

fn not_writable(path: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Error::host(
            "open",
            path,
            io::Error::other(format!("{error}; changing an image requires write permission")),
        ),
        io::ErrorKind::ResourceBusy => {
            let (who, advice) = user_of_device(path);
            Refused::in_use(host::id_at(path).ok(), &who, advice).at("open", path)
        }
        _ => words::missing(path, &error).unwrap_or_else(|| Error::host("open", path, error)),
    }
}

fn open_writable(path: &Path, is_exclusive: bool) -> Result<File> {
    let failed = |e| not_writable(path, e);
    for _ in 0..TRIES {
        let file = open_released(path, is_exclusive)?;
        if host::is_protected_device(&file.metadata().map_err(failed)?) {
            return Err(failed(io::ErrorKind::ReadOnlyFilesystem.into()));
        }
        let id = host::id_of(&file).map_err(failed)?;
        let locked = lock(&file, File::try_lock, id, ANOTHER, WRITER_ADVICE);
        unless_for_us(locked, &file, id)
            .and_then(|()| {
                lock(
                    &file,
                    |file| qemu::try_lock(file, ImageAccess::Write),
                    id,
                    QEMU,
                    WRITER_ADVICE,
                )
            })
            .map_err(|refused| refused.at("lock", path))?;
        if is_at(path, &file).map_err(failed)? {
            LoopFiles::attached().refuse(id).map_err(|refused| refused.at("open", path))?;
            if file.metadata().map_err(failed)?.file_type().is_block_device() {
                forget_earlier_error(&file).map_err(|e| Error::host("write", path, e))?;
            }
            return Ok(file);
        }
    }
    Err(Refused::always_replaced().at("open", path))
}

/// Clears the error of an earlier writer on a file that this program has not written yet. The kernel keeps a write-back
/// error until the next sync and reports it then, whichever program wrote. Pages that failed to be written may remain
/// in the cache as if they were stored, so they are dropped.
///
/// # Errors
/// If the device still fails.
pub(crate) fn forget_earlier_error(file: &File) -> io::Result<()> {
    if file.sync_data().is_ok() {
        return Ok(());
    }
    host::drop_cache(file)?;
    file.sync_data()
}

/// Ignores a lock of a block device if an ancestor of this process holds it.
fn unless_for_us(
    locked: std::result::Result<(), Refused>,
    file: &File,
    id: FileId,
) -> std::result::Result<(), Refused> {
    #[cfg(target_os = "linux")]
    if matches!(locked, Err(Refused::InUse { .. }))
        && file.metadata()?.file_type().is_block_device()
        && crate::lock_of_caller::is_held(id)
    {
        return Ok(());
    }
    let _ = (file, id);
    locked
}

/// Rejects a file that the kernel has attached for writing, because reads would be inconsistent.
///
/// # Errors
/// If it is attached.
pub(crate) fn refuse_attached(path: &Path, file: &File) -> Result<()> {
    let id = host::id_of(file).map_err(|e| Error::host("read", path, e))?;
    LoopFiles::attached().refuse(id).map_err(|refused| refused.at("open", path))
}

const READER_ADVICE: Advice =
    Advice::before("wait for it, or read the current state with ", Hint::Use(Setting::NORECOVERY));
pub(crate) const WRITER_ADVICE: Advice = Advice::text("retry after it ends");

/// Description of the owner of a whole-file lock.
pub(crate) const ANOTHER: &str = "another program";
/// Description of the owner of QEMU's locks.
pub(crate) const QEMU: &str = "QEMU (a virtual machine, qemu-nbd, qemu-io or qemu-img)";

/// Opens a regular file or a block device, the latter exclusively if `is_exclusive`. Rejects other types without
/// waiting for the other end of a pipe.
fn open(path: &Path, how: &mut std::fs::OpenOptions, is_exclusive: bool) -> io::Result<File> {
    let is_device = check_type(&std::fs::metadata(path)?)?;
    // The file may have been replaced by a pipe meanwhile.
    let file = host::open_image(path, how, is_device, is_exclusive)?;
    check_type(&file.metadata()?)?;
    Ok(file)
}

/// Returns whether it is a block device rather than a regular file. Other types are an error.
fn check_type(metadata: &Metadata) -> io::Result<bool> {
    let file_type = metadata.file_type();
    let what = match () {
        () if file_type.is_file() => return Ok(false),
        () if file_type.is_block_device() => return Ok(true),
        () if file_type.is_dir() => "a directory",
        () if file_type.is_fifo() => "a pipe",
        () if file_type.is_socket() => "a socket",
        () if file_type.is_char_device() => "a character device",
        () => "of another type",
    };
    Err(io::Error::other(format!(
        "it is {what}; an image must be a regular file or a block device"
    )))
}

/// Returns whether a path refers to this open file.
fn is_at(path: &Path, file: &File) -> io::Result<bool> {
    match host::id_at(path) {
        Ok(found) => Ok(found == host::id_of(file)?),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// Files that a new file may replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replace {
    Nothing,
    /// An empty regular file.
    Empty,
    Anything,
}

/// Reason why a file cannot be used or replaced.
#[derive(Debug)]
pub(crate) enum Refused {
    /// It exists and must not be replaced.
    Exists,
    /// It is in use.
    InUse {
        who: String,
        advice: Advice,
    },
    Host(io::Error),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::Host(error)
    }
}

impl Refused {
    fn in_use(id: Option<FileId>, who: &str, advice: impl Into<Advice>) -> Self {
        if let Some(point) = id.and_then(mounted_at) {
            let point = crate::text::escaped(point.as_os_str().as_encoded_bytes()).to_string();
            let who = format!("diskwright, mounted at {point}");
            let advice = Advice::text("unmount it first, with diskwright unmount");
            return Self::InUse { who, advice };
        }
        Self::InUse { who: who.to_owned(), advice: advice.into() }
    }

    pub(crate) fn always_replaced() -> Self {
        Self::Host(io::Error::other("other programs keep replacing it; retry later"))
    }

    /// Converts to an error of `operation` on the file at `path`.
    pub(crate) fn at(self, operation: &'static str, path: &Path) -> Error {
        match self {
            Self::InUse { who, advice } => Error::InUse { image: path.to_owned(), who, advice },
            other => Error::host(operation, path, io::Error::from(other)),
        }
    }
}

/// For callers that add the file name themselves.
impl From<Refused> for io::Error {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Exists => {
                let problem = format!("it exists; use {} to replace it", Setting::FORCE);
                Self::new(io::ErrorKind::AlreadyExists, problem)
            }
            Refused::InUse { who, advice } => {
                Self::new(io::ErrorKind::ResourceBusy, format!("in use by {who}: {advice}"))
            }
            Refused::Host(error) => error,
        }
    }
}

/// Locks with `try_lock`. Errors name `who` as the owner. A starting process shares the open files of its parent until
/// its program runs, so such locks are waited for. The same applies to a server that closes an image after its mount
/// has ended (`Ending`).
pub(crate) fn lock(
    file: &File,
    try_lock: impl Fn(&File) -> Result<(), TryLockError>,
    id: FileId,
    who: &str,
    advice: Advice,
) -> Result<(), Refused> {
    let begun = Instant::now();
    let is_awaited = || match begun.elapsed() {
        passed if passed < GRACE => true,
        passed => passed < ENDING_GRACE && is_ending(file),
    };
    let mut locked = try_lock(file);
    while matches!(locked, Err(TryLockError::WouldBlock)) && is_awaited() {
        std::thread::sleep(GRACE / 50);
        locked = try_lock(file);
    }
    match locked {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(Refused::in_use(Some(id), who, advice)),
        // Some file systems do not support locks.
        Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Unsupported => Ok(()),
        Err(TryLockError::Error(e)) => Err(Refused::Host(e)),
    }
}

/// Byte of `Ending`, after those of QEMU.
const ENDING_BYTE: Range<u64> = 310..311;

/// Maximum time for a server to close an image.
const ENDING_GRACE: Duration = Duration::from_secs(60);

/// Lock of one byte of the image. It shows that the mount has ended and that the server is closing the image. Programs
/// that need the image wait, like umount(8) of a kernel file system.
#[cfg(all(feature = "mount", target_os = "linux"))]
pub(crate) struct Ending {
    _locked: File,
}

#[cfg(all(feature = "mount", target_os = "linux"))]
impl Ending {
    /// Marks the image file of an ended mount. Returns `None` if that is not possible.
    pub(crate) fn mark(image: &Path) -> Option<Self> {
        let file = open(image, File::options().read(true), false).ok()?;
        host::lock_bytes(&file, ENDING_BYTE, true).ok()?;
        Some(Self { _locked: file })
    }
}

/// Returns whether a server is about to close the image.
fn is_ending(file: &File) -> bool {
    host::are_bytes_locked(file, ENDING_BYTE).unwrap_or(false)
}

/// Returns the mount point of an image that a program of this project has mounted, if known.
#[cfg(unix)]
fn mounted_at(image: FileId) -> Option<PathBuf> {
    use crate::mounts::MountEntry;
    let is_it = |mount: &MountEntry| {
        mount.is_ours() && host::id_at(&mount.source).is_ok_and(|source| source == image)
    };
    Some(MountEntry::all().ok()?.into_iter().find(is_it)?.point)
}

/// Mounts are supported on Unix only.
#[cfg(not(unix))]
fn mounted_at(_: FileId) -> Option<PathBuf> {
    None
}

#[cfg(all(test, feature = "mount", target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_closes_an_image_is_waited_for() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let server = open_to_write(file.path()).unwrap();
        assert!(matches!(open_to_write(file.path()), Err(Error::InUse { .. })));
        let ending = Ending::mark(file.path()).unwrap();
        let closes = std::thread::spawn(move || {
            std::thread::sleep(GRACE * 3);
            drop((server, ending));
        });
        drop(open_to_write(file.path()).unwrap());
        closes.join().unwrap();
    }
}
