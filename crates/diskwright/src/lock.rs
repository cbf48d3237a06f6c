//! Opening the file of an image, with a lock that keeps other processes from changing it, and asking for
//! the lock of a file that is about to be replaced.
//!
//! The locks are advisory (`flock`) and on the whole file, also for one partition of a disk. They
//! last as long as the open file. Where a file system has no locks, there is no protection.
//!
//! A lock is on a file, not on a name. A program that got one checks that the name still leads to that file:
//! it may have been replaced since it was opened, and then the lock keeps nobody out.

use std::cell::OnceCell;
use std::fs::{File, Metadata, TryLockError};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;

use crate::mounts::Mount;
use crate::{Error, Result, mounts};

/// How often a name may lead to another file than the one just locked. Each time, another program has
/// finished a new file of that name.
const TRIES: u32 = 100;

/// How long a lock is waited for that somebody else may have by chance only.
const GRACE: Duration = Duration::from_millis(250);

/// Opens an image for reading. Nobody can open it for writing meanwhile, unless `unlocked`.
pub(crate) fn open_to_read(path: &Path, unlocked: bool) -> Result<File> {
    let failed = |e| Error::host("open", path, e);
    for _ in 0..TRIES {
        let file = open(path, File::options().read(true), OFlags::empty()).map_err(failed)?;
        if unlocked {
            return Ok(file);
        }
        let id = id(&file.metadata().map_err(failed)?);
        lock(|| file.try_lock_shared(), id, READER_ADVICE)
            .map_err(|refused| refused.at("lock", path))?;
        if is_at(path, &file).map_err(failed)? {
            return Ok(file);
        }
    }
    Err(Refused::always_replaced().at("open", path))
}

/// Opens an image for writing. Nobody else can open it meanwhile.
pub(crate) fn open_to_write(path: &Path) -> Result<File> {
    let failed = |e: io::Error| match e.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Error::host(
            "open",
            path,
            io::Error::other(format!("{e}; changing an image needs the right to write it")),
        ),
        io::ErrorKind::ResourceBusy => {
            let id = std::fs::metadata(path).ok().as_ref().map(id);
            Refused::in_use(id, "the kernel", "unmount it first").at("open", path)
        }
        _ => Error::host("open", path, e),
    };
    for _ in 0..TRIES {
        // The kernel then refuses devices that are mounted or part of something.
        let file = open(path, File::options().read(true).write(true), OFlags::EXCL);
        let file = file.map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if is_protected_device(&metadata) {
            return Err(failed(io::ErrorKind::ReadOnlyFilesystem.into()));
        }
        let id = id(&metadata);
        let locked = lock(|| file.try_lock(), id, WRITER_ADVICE);
        locked.map_err(|refused| refused.at("lock", path))?;
        if is_at(path, &file).map_err(failed)? {
            LoopFiles::attached().refuse(id).map_err(|refused| refused.at("open", path))?;
            return Ok(file);
        }
    }
    Err(Refused::always_replaced().at("open", path))
}

/// Whether it is a block device to which the kernel refuses all writes. Some can be opened for writing all the same.
pub(crate) fn is_protected_device(metadata: &Metadata) -> bool {
    if !metadata.file_type().is_block_device() {
        return false;
    }
    let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
    let says = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro"));
    says.is_ok_and(|says| says.trim() == "1")
}

/// Refuses a file that the kernel has attached to change it: what is read then is of no one moment.
///
/// # Errors
/// If it is attached.
pub(crate) fn refuse_attached(path: &Path, file: &File) -> Result<()> {
    let metadata = file.metadata().map_err(|e| Error::host("read", path, e))?;
    LoopFiles::attached().refuse(id(&metadata)).map_err(|refused| refused.at("open", path))
}

const READER_ADVICE: &str = "wait for it, or read what is there now with --norecovery";
const WRITER_ADVICE: &str = "try again when it is done";

/// Opens what an image may lie in: a regular file, or a block device, with these flags. Anything else is
/// refused, and the other end of a pipe is never waited for.
fn open(path: &Path, how: &mut std::fs::OpenOptions, of_device: OFlags) -> io::Result<File> {
    let is_device = check_type(&std::fs::metadata(path)?)?;
    // A pipe may have taken its place since.
    let flags = if is_device { of_device } else { OFlags::NONBLOCK } | OFlags::NOCTTY;
    let file = how.custom_flags(flags.bits().cast_signed()).open(path)?;
    check_type(&file.metadata()?)?;
    Ok(file)
}

/// Whether it is a block device rather than a regular file; an error for anything else.
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
    Err(io::Error::other(format!("it is {what}; an image is a regular file or a block device")))
}

/// What identifies a file on the host: device and inode.
type Id = (u64, u64);

fn id(metadata: &Metadata) -> Id {
    (metadata.dev(), metadata.ino())
}

/// Whether a path leads to this open file.
fn is_at(path: &Path, file: &File) -> io::Result<bool> {
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(id(&metadata) == id(&file.metadata()?)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// Why a file cannot be used or replaced.
#[derive(Debug)]
pub(crate) enum Refused {
    /// There is one, and it is not to be replaced.
    Exists,
    /// Somebody uses it.
    InUse {
        who: String,
        advice: &'static str,
    },
    Host(io::Error),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::Host(error)
    }
}

impl From<Errno> for Refused {
    fn from(error: Errno) -> Self {
        Self::Host(error.into())
    }
}

impl Refused {
    fn in_use(id: Option<Id>, who: &str, advice: &'static str) -> Self {
        if let Some(point) = id.and_then(mounted_at) {
            let point = crate::text::escaped(point.as_os_str().as_encoded_bytes()).to_string();
            let who = format!("diskwright, which has it mounted at {point}");
            return Self::InUse { who, advice: "unmount it first, with diskwright unmount" };
        }
        Self::InUse { who: who.to_owned(), advice }
    }

    fn always_replaced() -> Self {
        Self::Host(io::Error::other("other programs replace it all the time"))
    }

    /// As an error of the file at `path`, to which `operation` was to be done.
    pub(crate) fn at(self, operation: &'static str, path: &Path) -> Error {
        match self {
            Self::InUse { who, advice } => Error::InUse { image: path.to_owned(), who, advice },
            other => Error::host(operation, path, io::Error::from(other)),
        }
    }
}

/// For who names the file himself.
impl From<Refused> for io::Error {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Exists => {
                Self::new(io::ErrorKind::AlreadyExists, "it exists; use --force to replace it")
            }
            Refused::InUse { who, advice } => {
                Self::new(io::ErrorKind::ResourceBusy, format!("in use by {who}: {advice}"))
            }
            Refused::Host(error) => error,
        }
    }
}

/// Locks, as `try_lock` does. Who has just ended using a file and starts a program at the same moment still has the
/// lock until that program runs: the open file is shared with it so long. Such a lock is waited for.
fn lock(
    try_lock: impl Fn() -> Result<(), TryLockError>,
    id: Id,
    advice: &'static str,
) -> Result<(), Refused> {
    let begun = Instant::now();
    let mut locked = try_lock();
    while matches!(locked, Err(TryLockError::WouldBlock)) && begun.elapsed() < GRACE {
        std::thread::sleep(GRACE / 50);
        locked = try_lock();
    }
    match locked {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(Refused::in_use(Some(id), "another program", advice)),
        // Not every file system has locks.
        Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Unsupported => Ok(()),
        Err(TryLockError::Error(e)) => Err(Refused::Host(e)),
    }
}

/// Whether a link at the end of a path is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Follow,
    /// The link itself is meant.
    Keep,
}

/// Locks the regular file that has a name, as who changes it would, so that it can be replaced. It has to
/// be kept until it is. `None` if there is none, or none that could be an image.
///
/// # Errors
/// If somebody uses the file, also the kernel through one of `loops`, or if it cannot be opened.
pub(crate) fn claim(
    dir: BorrowedFd<'_>,
    name: &[u8],
    link: Link,
    loops: &OnceCell<LoopFiles>,
) -> Result<Option<File>, Refused> {
    for _ in 0..TRIES {
        let Some(found) = regular(dir, name, link)? else { return Ok(None) };
        let Some(file) = open_to_claim(dir, name, link, &found)? else { return Ok(None) };
        let opened = fstat(&file)?;
        // A pipe may have taken its place, or it may have been replaced before it was locked.
        let id = (opened.st_dev, opened.st_ino);
        if is_regular(&opened) {
            lock(|| file.try_lock(), id, WRITER_ADVICE)?;
        }
        if is_regular(&opened) && is_named(dir, name, link, &file)? {
            loops.get_or_init(LoopFiles::attached).refuse(id)?;
            return Ok(Some(file));
        }
    }
    Err(Refused::always_replaced())
}

/// Whether a name leads to this open file.
pub(crate) fn is_named(
    dir: BorrowedFd<'_>,
    name: &[u8],
    link: Link,
    file: &File,
) -> Result<bool, Errno> {
    let Some(found) = regular(dir, name, link)? else { return Ok(false) };
    let opened = fstat(file)?;
    Ok((found.st_dev, found.st_ino) == (opened.st_dev, opened.st_ino))
}

fn regular(dir: BorrowedFd<'_>, name: &[u8], link: Link) -> Result<Option<Stat>, Errno> {
    let flags = if link == Link::Keep { AtFlags::SYMLINK_NOFOLLOW } else { AtFlags::empty() };
    match statat(dir, name, flags) {
        Ok(stat) => Ok(Some(stat).filter(is_regular)),
        Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(e),
    }
}

fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// Opens a file in a way in which it can be locked. `None` for one of the user's own that gives nobody any
/// right: nobody could have opened it as an image.
fn open_to_claim(
    dir: BorrowedFd<'_>,
    name: &[u8],
    link: Link,
    found: &Stat,
) -> Result<Option<File>, Refused> {
    let mut flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    if link == Link::Keep {
        flags |= OFlags::NOFOLLOW;
    }
    // Some network file systems lock only what is open for writing, but not everything can be.
    let mut denied = Errno::ACCESS;
    for access in [OFlags::RDWR, OFlags::RDONLY, OFlags::WRONLY] {
        match openat(dir, name, flags | access, Mode::empty()) {
            Ok(file) => return Ok(Some(file.into())),
            Err(Errno::NOENT) => return Ok(None),
            Err(e @ (Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::TXTBSY)) => denied = e,
            Err(e) => return Err(e.into()),
        }
    }
    if found.st_uid == rustix::process::geteuid().as_raw() {
        return Ok(None);
    }
    let problem = format!("cannot see whether somebody uses the file that is there: {denied}");
    Err(Refused::Host(io::Error::other(problem)))
}

/// Where a program of ours has mounted an image, if that can be told.
fn mounted_at(image: Id) -> Option<PathBuf> {
    let is_it = |mount: &Mount| {
        mount.fs_type == mounts::FS_TYPE
            && std::fs::metadata(&mount.source).is_ok_and(|source| id(&source) == image)
    };
    Some(Mount::all().ok()?.into_iter().find(is_it)?.point)
}

/// The files that are attached to loop devices for writing. Such a device knows no locks.
#[derive(Debug, Default)]
pub(crate) struct LoopFiles(Vec<(Id, String)>);

impl LoopFiles {
    /// Those of this moment.
    pub(crate) fn attached() -> Self {
        let Ok(devices) = std::fs::read_dir("/sys/block") else { return Self::default() };
        let attached = devices.flatten().filter_map(|device| {
            let about = |what: &str| std::fs::read_to_string(device.path().join(what)).ok();
            let backing = PathBuf::from(about("loop/backing_file")?.trim_end_matches('\n'));
            let backing = std::fs::metadata(backing).ok()?;
            let is_read_only = about("ro").is_some_and(|text| text.trim() == "1");
            let name = format!("/dev/{}", device.file_name().display());
            (!is_read_only).then(|| (id(&backing), name))
        });
        Self(attached.collect())
    }

    fn refuse(&self, file: Id) -> Result<(), Refused> {
        let Some((_, device)) = self.0.iter().find(|(attached, _)| *attached == file) else {
            return Ok(());
        };
        let who = format!("the kernel, through {}", crate::text::escaped(device.as_bytes()));
        let advice = "unmount it and detach the device with losetup -d first";
        Err(Refused::in_use(Some(file), &who, advice))
    }
}
