//! Unmounting from another process, and waiting for the serving process to release the image.
//!
//! The kernel unmounts FUSE without writing back cached data of mapped or recently written files, and before the server
//! has written everything. Therefore a sync is requested first. The server then closes the image and drops its lock,
//! which this module waits for.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::served;
use super::take_away::{ServerState, sync, take_away};
use crate::anywhere::words;
use crate::mounts::{MountEntry, MountWay};
use crate::text::shown;
use crate::{Error, ImageOptions, ImageState, Result};

/// Interval between checks of the lock.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Maximum wait for the server of a read-only mount, which has nothing to write. Other readers of the image cannot be
/// distinguished from it.
const READER_TIMEOUT: Duration = Duration::from_secs(2);

/// Options for unmounting.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct UnmountOptions {
    /// Unmount even if in use: the mount disappears immediately and ends when its last user closes it.
    pub lazy: bool,
    /// Maximum wait until the image is released.
    pub patience: Duration,
}

impl Default for UnmountOptions {
    /// Returns the defaults: not lazy, wait for up to a minute.
    fn default() -> Self {
        Self { lazy: false, patience: Duration::from_secs(60) }
    }
}

setters!(UnmountOptions { lazy: bool, patience: Duration });

/// State of the image after unmounting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Released {
    /// The image is released and contains all changes. (For a partition of a disk, only the release is known.)
    Free,
    /// The image is released, but in the state after a crash: the serving process was killed, failed to write, or found
    /// damage.
    Crashed(PathBuf),
    /// The image is unknown, because the mount had another source name (`fsname=`) or the image cannot be opened.
    Unknown,
    /// The image is also mounted elsewhere.
    Mounted(PathBuf),
    /// The image was still in use after the maximum wait.
    InUse(PathBuf),
}

/// Unmounts a mount of this program, as root or through `fusermount3`, and waits until its image is released.
///
/// # Errors
/// [`Error::NotMounted`] if there is no such mount. Also if unmounting fails, for example because it is in use.
pub fn unmount(mountpoint: &Path, options: &UnmountOptions) -> Result<Released> {
    let point = absolute(mountpoint)?;
    // The path as given: if it is an address, messages hide its secrets.
    let mount = find(&mounts()?, &point)
        .ok_or_else(|| Error::NotMounted { path: mountpoint.to_owned() })?;
    let was_changed = !mount.is_read_only();
    let is_dead = matches!(mount.way, Some(MountWay::Nfs { is_served: false, .. }));
    // A request to the file system would wait for a server of NFS that was killed.
    let synced = if is_dead { Ok(ServerState::Dead) } else { sync(&point, was_changed) };
    if let Err(refused) = take_away(&mount, options.lazy) {
        // The kernel reports lost writes only once, so a later call would not learn of them.
        return Err(match synced {
            Err(lost) => Error::host(
                "write back",
                &point,
                lost_and(&lost, &format!("still mounted: {refused}")),
            ),
            Ok(_) => refused,
        });
    }
    let released = released(&mount, was_changed, options)?;
    match (synced, released) {
        // If the killed server had not written yet, the image is not marked as in use.
        (Ok(ServerState::Dead), Released::Free) if was_changed => {
            Ok(Released::Crashed(mount.source))
        }
        (Err(error), Released::Free | Released::Unknown | Released::Mounted(_)) => {
            Err(Error::host("write back", &point, error))
        }
        (Err(error), Released::InUse(image)) => {
            let state = format!("unmounted, but {} is still in use", shown(&image));
            Err(Error::host("write back", &point, lost_and(&error, &state)))
        }
        (_, released) => Ok(released),
    }
}

/// Returns the error for lost writes, with the state of the mount.
fn lost_and(lost: &io::Error, state: &str) -> io::Error {
    io::Error::new(lost.kind(), format!("{lost}; {state}"))
}

/// Waits for the release of an unmounted image and returns its state.
fn released(mount: &MountEntry, was_changed: bool, options: &UnmountOptions) -> Result<Released> {
    // Mounts with a chosen source name (`fsname=`) may be of different images.
    let is_same = |other: &MountEntry| other.is_ours() && other.source == mount.source;
    let is_place = words::is_place(&mount.source);
    let other = if mount.source.is_absolute() || is_place {
        mounts()?.into_iter().find(is_same)
    } else {
        None
    };
    if is_place && !was_changed {
        // A read-only remote image has nothing to release, but its server may write the record of a start.
        if other.is_none()
            && let Some(lock) = served::lock_of(mount.user(), mount.source.as_os_str())
        {
            let _ = wait(&lock, File::try_lock, options.patience.min(READER_TIMEOUT));
        }
        return Ok(Released::Free);
    }
    if let Some(other) = other {
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
    // Open the image only now, because the mount may have hidden it.
    let Some(image) = image_of(mount) else { return Ok(Released::Unknown) };
    let is_free = if was_changed {
        // A reader can lock it, so the server has released it.
        wait(&image, File::try_lock_shared, options.patience)
    } else {
        wait(&image, File::try_lock, options.patience.min(READER_TIMEOUT)).map(|_| true)
    };
    Ok(match is_free.map_err(|e| Error::host("lock", &mount.source, e))? {
        false => Released::InUse(mount.source.clone()),
        true if was_changed && !is_clean(&mount.source) => Released::Crashed(mount.source.clone()),
        true => Released::Free,
    })
}

fn mounts() -> Result<Vec<MountEntry>> {
    MountEntry::all().map_err(|e| Error::host("read", "the table of mounts", e))
}

/// Returns the mount at a path if it belongs to this program. The last mount hides earlier ones.
fn find(mounts: &[MountEntry], point: &Path) -> Option<MountEntry> {
    let last = mounts.iter().rfind(|mount| mount.point == point)?;
    last.is_ours().then(|| last.clone())
}

/// Returns the canonical path without accessing the mount, whose server may be dead.
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

/// Opens the image of a mount, if its source name is a path.
fn image_of(mount: &MountEntry) -> Option<File> {
    let has_name = mount.source.is_absolute();
    File::open(&mount.source).ok().filter(|_| has_name)
}

/// Returns whether an image was cleanly closed, if that can be determined.
fn is_clean(image: &Path) -> bool {
    let as_it_lies = ImageOptions { norecovery: true, ..ImageOptions::default() };
    let found = as_it_lies.open(image).and_then(|image| image.info());
    // The device of an external log is not known here.
    found.map_or(true, |info| info.is_clean() || info.state == ImageState::LogExternal)
}

/// Waits for a lock for a limited time. The lock is not kept.
fn wait(
    image: &File,
    lock: impl Fn(&File) -> Result<(), TryLockError>,
    patience: Duration,
) -> io::Result<bool> {
    let start = Instant::now();
    loop {
        match lock(image) {
            Ok(()) => return image.unlock().map(|()| true),
            // Without lock support, the state is unknown.
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

    fn mount(source: &str, point: &str, fs_type: &str) -> MountEntry {
        MountEntry {
            source: source.into(),
            point: point.into(),
            fs_type: fs_type.into(),
            options: "rw".into(),
            way: fs_type.starts_with("fuse").then_some(MountWay::Fuse),
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
    fn commands_wait_for_a_lock_for_a_limited_time() {
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
    fn mounts_of_other_programs_are_refused() {
        let options = UnmountOptions { lazy: false, patience: Duration::ZERO };
        for path in ["/proc", "/"] {
            let refused = unmount(Path::new(path), &options).unwrap_err();
            assert!(matches!(refused, Error::NotMounted { .. }), "{path}: {refused}");
        }
        let refused = unmount(Path::new("/nonexistent/x"), &options).unwrap_err();
        assert!(matches!(refused, Error::Host { .. }), "{refused}");
    }
}
