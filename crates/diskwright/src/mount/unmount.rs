//! Unmounting from outside of the serving process, and waiting until that has let go of the image.
//!
//! The kernel takes a FUSE mount away without writing back what it caches of files that are mapped or were
//! just written, and before the server has written everything. So the first is asked for before; and when
//! the server is done, it closes the image, and with that goes the lock that it holds on it: that is waited
//! for.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, syncfs};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use super::served;
use crate::anywhere::words;
use crate::mounts::Mount;
use crate::{Error, Image, OpenImage, Result};

/// Time between two looks at the lock.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// How long to wait for the server of a mount that was only read: it has nothing to write. Somebody else
/// who reads the image cannot be told from it.
const READER_PATIENCE: Duration = Duration::from_secs(2);

/// How long a mount that is in use is tried again. A process that is just being started has copies of its
/// parent's open files for a moment, of files there that the parent has closed since, too.
const BUSY_PATIENCE: Duration = Duration::from_millis(300);

/// The programs that unmount for users, newest first.
const HELPERS: [&str; 2] = ["fusermount3", "fusermount"];

/// How to unmount.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct UnmountOptions {
    /// Though programs use it: it goes from where it is mounted at once, and for good when they are done.
    pub lazy: bool,
    /// How long to wait until the image is free.
    pub patience: Duration,
}

impl Default for UnmountOptions {
    /// Not while programs use it, and a minute for the image.
    fn default() -> Self {
        Self { lazy: false, patience: Duration::from_secs(60) }
    }
}

setters!(UnmountOptions { lazy: bool, patience: Duration });

/// What became of the image of a mount that was unmounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Released {
    /// Nobody changes it any more, and all changes are in it. (Of a partition of a disk, which cannot be
    /// told from others, only the first is known.)
    Free,
    /// Nobody changes it any more, but it is as after a crash: the process that served it was killed, failed
    /// to write, or found it damaged.
    Crashed(PathBuf),
    /// It is not known which one it was: the mount had a name of its own (`fsname=`), or the image
    /// cannot be opened for reading.
    Unknown,
    /// It is mounted elsewhere, too.
    Mounted(PathBuf),
    /// It was still in use when patience ended.
    InUse(PathBuf),
}

/// Unmounts a mount of this program's, as root or through `fusermount3`, and waits until its image can be
/// used by others.
///
/// # Errors
/// [`Error::NotMounted`] if there is none; otherwise if it cannot be unmounted, as when it is in use.
pub fn unmount(mountpoint: &Path, options: &UnmountOptions) -> Result<Released> {
    let point = absolute(mountpoint)?;
    let mount =
        find(&mounts()?, &point).ok_or_else(|| Error::NotMounted { path: point.clone() })?;
    let was_changed = !mount.options.split(',').any(|word| word == "ro");
    let synced = sync(&point, was_changed);
    take_away(&point, options.lazy)?;
    let released = released(&mount, was_changed, options)?;
    match (synced, released) {
        // Nobody has marked what was never written.
        (Ok(Server::Dead), Released::Free) if was_changed => Ok(Released::Crashed(mount.source)),
        (Err(error), Released::Free | Released::Unknown | Released::Mounted(_)) => {
            Err(Error::host("write back all of", &point, error))
        }
        (_, released) => Ok(released),
    }
}

/// Waits until an image is free that was unmounted, and tells how it is then.
fn released(mount: &Mount, was_changed: bool, options: &UnmountOptions) -> Result<Released> {
    // A name of its own (`fsname=`) may be that of mounts of any images.
    let is_same = |other: &Mount| other.is_ours() && other.source == mount.source;
    let is_place = words::is_place(&mount.source);
    // Nothing was written to what is only read, whoever else reads it.
    if is_place && !was_changed {
        return Ok(Released::Free);
    }
    if (mount.source.is_absolute() || is_place)
        && let Some(other) = mounts()?.into_iter().find(is_same)
    {
        return Ok(Released::Mounted(other.point));
    }
    if is_place {
        let Some(lock) = served::lock_of(mount.user(), mount.source.as_os_str()) else {
            return Ok(Released::Unknown);
        };
        let is_free = wait(&lock, File::try_lock, options.patience);
        return Ok(match is_free.map_err(|e| Error::host("lock", &mount.source, e))? {
            true => Released::Free,
            false => Released::InUse(mount.source.clone()),
        });
    }
    // Only now: what is mounted can hide it.
    let Some(image) = image_of(mount) else { return Ok(Released::Unknown) };
    let is_free = if was_changed {
        // A reader gets in: the server is done.
        wait(&image, File::try_lock_shared, options.patience)
    } else {
        wait(&image, File::try_lock, options.patience.min(READER_PATIENCE)).map(|_| true)
    };
    Ok(match is_free.map_err(|e| Error::host("lock", &mount.source, e))? {
        false => Released::InUse(mount.source.clone()),
        true if was_changed && !is_clean(&mount.source) => Released::Crashed(mount.source.clone()),
        true => Released::Free,
    })
}

fn mounts() -> Result<Vec<Mount>> {
    Mount::all().map_err(|e| Error::host("read", "/proc/self/mounts", e))
}

/// What is mounted at a point, if it is one of ours. Of several mounts the last one hides the others.
fn find(mounts: &[Mount], point: &Path) -> Option<Mount> {
    let last = mounts.iter().rfind(|mount| mount.point == point)?;
    last.is_ours().then(|| last.clone())
}

/// The path as the kernel has it. What is mounted there is not asked: its server may be dead.
fn absolute(path: &Path) -> Result<PathBuf> {
    let host = |e| Error::host("find", path, e);
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if !is_link(path) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            Ok(fs::canonicalize(parent).map_err(host)?.join(name))
        }
        _ => fs::canonicalize(path).map_err(host),
    }
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink())
}

/// Whether anybody answers the requests of a mount, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    Answers,
    Dead,
}

/// Has the kernel write back what it caches, and the server make all changes durable: what fails then can
/// still be told.
fn sync(point: &Path, was_changed: bool) -> io::Result<Server> {
    let root = File::options()
        .read(true)
        .custom_flags((OFlags::DIRECTORY | OFlags::NOFOLLOW).bits().cast_signed())
        .open(point);
    let root = match root {
        Ok(root) => root,
        Err(error) if is_dead(&error) => return Ok(Server::Dead),
        // It lets nobody in but the one who mounted: who closes files has them written.
        Err(_) => return Ok(Server::Answers),
    };
    let written = syncfs(&root).map_err(io::Error::from);
    // The kernel does not pass the first on, but this.
    let durable = if was_changed { root.sync_all() } else { Ok(()) };
    match written.and(durable) {
        Ok(()) => Ok(Server::Answers),
        Err(error) if is_dead(&error) => Ok(Server::Dead),
        Err(error) => Err(error),
    }
}

fn is_dead(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::NOTCONN | Errno::CONNABORTED))
}

fn take_away(point: &Path, lazy: bool) -> Result<()> {
    let lazily = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    let attempt = || rustix::mount::unmount(point, lazily | UnmountFlags::NOFOLLOW);
    let (begun, mut outcome) = (Instant::now(), attempt());
    while outcome == Err(Errno::BUSY) && begun.elapsed() < BUSY_PATIENCE {
        thread::sleep(POLL_INTERVAL);
        outcome = attempt();
    }
    let error = match outcome {
        Ok(()) => return Ok(()),
        Err(Errno::PERM) => match ask_helper(point, lazy) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        },
        Err(Errno::BUSY) => io::Error::new(
            io::ErrorKind::ResourceBusy,
            "programs use it, or work in it; end them, or use --lazy",
        ),
        Err(error) => error.into(),
    };
    Err(Error::host("unmount", point, error))
}

/// Asks the program that unmounts for users.
fn ask_helper(point: &Path, lazy: bool) -> io::Result<()> {
    for helper in HELPERS {
        let mut command = Command::new(helper);
        command.arg(if lazy { "-uz" } else { "-u" }).arg("--").arg(point);
        match command.stdin(Stdio::null()).output() {
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                return Err(io::Error::other(said.trim().to_owned()));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    let missing = "it takes root or fusermount3, which is not installed (package fuse3)";
    Err(io::Error::new(io::ErrorKind::PermissionDenied, missing))
}

/// The image of a mount, if its name is that of one.
fn image_of(mount: &Mount) -> Option<File> {
    let has_name = mount.source.is_absolute();
    File::open(&mount.source).ok().filter(|_| has_name)
}

/// Whether an image was closed, as far as it can be told: whole images tell.
fn is_clean(image: &Path) -> bool {
    let as_it_lies = OpenImage { norecovery: true, ..OpenImage::default() };
    Image::open(image, &as_it_lies).map_or(true, |image| image.is_clean())
}

/// Whether a lock could be had in time. It is not kept.
fn wait(
    image: &File,
    lock: impl Fn(&File) -> Result<(), TryLockError>,
    patience: Duration,
) -> io::Result<bool> {
    let start = Instant::now();
    loop {
        match lock(image) {
            Ok(()) => return image.unlock().map(|()| true),
            // Where there are no locks, nobody can tell.
            Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Unsupported => {
                return Ok(true);
            }
            Err(TryLockError::Error(e)) => return Err(e),
            Err(TryLockError::WouldBlock) if start.elapsed() >= patience => return Ok(false),
            Err(TryLockError::WouldBlock) => thread::sleep(POLL_INTERVAL),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(source: &str, point: &str, fs_type: &str) -> Mount {
        Mount {
            source: source.into(),
            point: point.into(),
            fs_type: fs_type.into(),
            options: "rw".into(),
        }
    }

    #[test]
    fn only_the_last_mount_of_a_point_counts_and_only_if_it_is_ours() {
        let ours = mount("/a.img", "/a", "fuse.diskwright");
        let table = [
            mount("/dev/vda", "/a", "ext4"),
            ours.clone(),
            mount("/b.img", "/b", "fuse.diskwright"),
            mount("tmpfs", "/b", "tmpfs"),
        ];
        assert_eq!(find(&table, Path::new("/a")), Some(ours));
        assert_eq!(find(&table, Path::new("/b")), None, "it is hidden");
        assert_eq!(find(&table, Path::new("/c")), None);
    }

    #[test]
    fn a_lock_is_waited_for_and_not_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.img");
        let server = File::create(&path).unwrap();
        server.lock().unwrap();
        let image = File::open(&path).unwrap();
        let start = Instant::now();
        assert!(!wait(&image, File::try_lock_shared, Duration::from_millis(30)).unwrap());
        assert!(start.elapsed() >= Duration::from_millis(30));
        let ends = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            drop(server);
        });
        assert!(wait(&image, File::try_lock_shared, Duration::from_secs(60)).unwrap());
        ends.join().unwrap();
        assert!(File::open(&path).unwrap().try_lock().is_ok(), "the lock was not kept");
    }

    #[test]
    fn what_is_no_mount_of_ours_is_refused() {
        let options = UnmountOptions { lazy: false, patience: Duration::ZERO };
        for path in ["/proc", "/"] {
            let refused = unmount(Path::new(path), &options).unwrap_err();
            assert!(matches!(refused, Error::NotMounted { .. }), "{path}: {refused}");
        }
        let refused = unmount(Path::new("/nonexistent/x"), &options).unwrap_err();
        assert!(matches!(refused, Error::Host { .. }), "{refused}");
    }
}
