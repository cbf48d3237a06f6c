//! State shared by an image and its open files: the file system and the gates that protect it from being closed.
//!
//! Every call holds one gate while it runs. Closing acquires all gates, so no call is running, and removes the file
//! system from each. Later calls then fail. There are two kinds of gates.
//!
//! - Calls that follow a path hold the gate of names; calls that remove a name hold it exclusively. An inode number
//!   found by a path therefore belongs to the same file until the call ends or the inode is held ([`Held`]).
//! - Calls on a held inode hold one of many gates of contents, so threads on different files rarely share one. Appends
//!   hold it exclusively, so the size cannot change meanwhile.
//!
//! A gate of contents is acquired after the gate of names, and a thread never holds two gates of contents.
//!
//! Operations of other modules use the file system through a [`FileSystemRef`](super::FileSystemRef), which has a
//! [`Lease`] instead of a gate: closing first waits for the gates, then for the leases.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use vfs::{FileSystem, FileType, Ino, NewInode, Paths, Timestamp};

use super::cache_share::CacheShare;
use crate::dispatch::OpenFs;
use crate::inode::inherit_group;
use crate::{Error, Result};

/// Owner of new files: user and group.
pub(crate) type Owner = (u32, u32);

/// Number of gates of contents: a power of two, larger than the usual number of threads.
const GATES: usize = 64;

/// Aligned, so that threads at different gates do not share cache lines. `None` after closing.
#[repr(align(64))]
struct Gate(RwLock<Option<Arc<dyn OpenFs>>>);

impl Gate {
    fn new(fs: &Arc<dyn OpenFs>) -> Self {
        Self(RwLock::new(Some(Arc::clone(fs))))
    }
}

pub(crate) struct Shared {
    names: Gate,
    contents: Box<[Gate]>,
    /// Number of leases.
    leases: Mutex<usize>,
    /// Signalled when the last lease ends.
    released: Condvar,
    /// Held while a thread closes the image, so that others wait for it.
    closing: Mutex<()>,
    /// Name in errors.
    pub(super) path: PathBuf,
    is_writable: bool,
    /// Owner of new files.
    owner: Owner,
    /// Number of calls that removed or renamed, or attempted to.
    removals: AtomicU64,
    /// Memory of the file system's cache, unless its user chose the size.
    _cache: Option<CacheShare>,
}

/// Context of a call that follows a path.
#[derive(Clone, Copy)]
pub(crate) struct PathContext<'a> {
    pub(crate) paths: Paths<'a>,
    pub(crate) fs: &'a dyn FileSystem,
    /// Time of this call.
    pub(crate) now: Timestamp,
    owner: Owner,
}

impl PathContext<'_> {
    /// Returns the context with another owner of new files, if one is given.
    pub(crate) fn owned_by(self, owner: Option<Owner>) -> Self {
        Self { owner: owner.unwrap_or(self.owner), ..self }
    }

    /// Returns the initial attributes of a new file in `dir`.
    pub(crate) fn new_inode(
        &self,
        dir: Ino,
        mode: u32,
        file_type: FileType,
    ) -> vfs::Result<NewInode> {
        let ((uid, gid), time) = (self.owner, self.now);
        let permissions = (mode & 0o7777) as u16;
        let new = NewInode { permissions, uid, gid, time, parent_time: Some(time) };
        inherit_group(self.fs, dir, new, file_type)
    }
}

/// Returns the current time, or 1970 if the host has no clock.
pub(crate) fn now() -> Timestamp {
    vfs::clock::now().unwrap_or_default()
}

impl Shared {
    pub(super) fn new(
        fs: &Arc<dyn OpenFs>,
        path: &Path,
        (is_writable, owner): (bool, Owner),
        cache: Option<CacheShare>,
    ) -> Arc<Self> {
        Arc::new(Self {
            names: Gate::new(fs),
            contents: (0..GATES).map(|_| Gate::new(fs)).collect(),
            leases: Mutex::new(0),
            released: Condvar::new(),
            closing: Mutex::new(()),
            path: path.to_owned(),
            is_writable,
            owner,
            removals: AtomicU64::new(0),
            _cache: cache,
        })
    }

    /// Creates an error for the whole image.
    pub(super) fn error(&self, source: vfs::Error) -> Error {
        Error::image(&self.path, source)
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Returns the owner of new files.
    #[cfg(feature = "build")]
    pub(crate) fn owner(&self) -> Owner {
        self.owner
    }

    /// Returns a counter that changes whenever a name was removed or renamed.
    pub(crate) fn removals(&self) -> u64 {
        self.removals.load(Ordering::Relaxed)
    }

    /// Calls `act` with the gate of names held. Errors name `path`.
    pub(crate) fn names<R>(
        &self,
        path: &[u8],
        act: impl FnOnce(PathContext<'_>) -> vfs::Result<R>,
    ) -> Result<R> {
        let gate: RwLockReadGuard<'_, _> = self.names.0.read();
        self.act_on(path, gate.as_deref(), act)
    }

    /// Same as [`Self::names`], but holds the gate exclusively, for calls that remove names.
    pub(crate) fn removing<R>(
        &self,
        path: &[u8],
        act: impl FnOnce(PathContext<'_>) -> vfs::Result<R>,
    ) -> Result<R> {
        let gate: RwLockWriteGuard<'_, _> = self.names.0.write();
        self.removals.fetch_add(1, Ordering::Relaxed);
        self.act_on(path, gate.as_deref(), act)
    }

    fn act_on<R>(
        &self,
        path: &[u8],
        opened: Option<&dyn OpenFs>,
        act: impl FnOnce(PathContext<'_>) -> vfs::Result<R>,
    ) -> Result<R> {
        let fs = opened.ok_or(Error::Closed)?.file_system();
        let names = PathContext { paths: Paths::new(fs), fs, now: now(), owner: self.owner };
        check(path).and_then(|()| act(names)).map_err(|error| Error::file(path, error))
    }

    /// Calls `act` for an operation that needs no path.
    pub(crate) fn whole<R>(&self, act: impl FnOnce(&dyn FileSystem) -> Result<R>) -> Result<R> {
        let gate = self.names.0.read();
        act(gate.as_deref().ok_or(Error::Closed)?.file_system())
    }

    fn gate(&self, ino: Ino) -> &RwLock<Option<Arc<dyn OpenFs>>> {
        &self.contents[ino.0 as usize % GATES].0
    }

    /// Calls `act` for a held inode. Errors name `path`.
    pub(crate) fn contents<R>(
        &self,
        ino: Ino,
        path: &[u8],
        act: impl FnOnce(&dyn FileSystem) -> vfs::Result<R>,
    ) -> Result<R> {
        let gate = self.gate(ino).read();
        let fs = gate.as_deref().ok_or(Error::Closed)?.file_system();
        act(fs).map_err(|error| Error::file(path, error))
    }

    /// Same as [`Self::contents`], but with exclusive access to the inode's gate.
    pub(crate) fn contents_alone<R>(
        &self,
        ino: Ino,
        path: &[u8],
        act: impl FnOnce(&dyn FileSystem) -> vfs::Result<R>,
    ) -> Result<R> {
        let gate = self.gate(ino).write();
        let fs = gate.as_deref().ok_or(Error::Closed)?.file_system();
        act(fs).map_err(|error| Error::file(path, error))
    }

    /// Returns the file system with a lease of it.
    pub(super) fn lease(shared: &Arc<Self>) -> Result<(Arc<dyn OpenFs>, Lease)> {
        let gate = shared.names.0.read();
        let fs = gate.clone().ok_or(Error::Closed)?;
        *shared.leases.lock() += 1;
        Ok((fs, Lease(Arc::clone(shared))))
    }

    /// Waits for running calls and leases and takes the file system. Open files are closed. Returns `None` if it was
    /// taken before. This is the last reference: any other user would still have a gate or a lease.
    pub(super) fn take(&self) -> Option<Arc<dyn OpenFs>> {
        let taken = {
            let mut names = self.names.0.write();
            let contents: Vec<_> = self.contents.iter().map(|gate| gate.0.write()).collect();
            for mut gate in contents {
                *gate = None;
            }
            names.take()
        };
        let mut leases = self.leases.lock();
        self.released.wait_while(&mut leases, |leases| *leases > 0);
        taken
    }

    /// Waits for running calls and leases, makes all changes durable and marks the image clean. Open files are closed
    /// too.
    pub(super) fn close(&self) -> Result<()> {
        let _closing = self.closing.lock();
        match self.take() {
            Some(fs) if self.is_writable => fs.close().map_err(|source| self.error(source)),
            _ => Ok(()),
        }
    }
}

/// Use of the file system by an operation of another module.
pub(super) struct Lease(Arc<Shared>);

impl Lease {
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.0
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut leases = self.0.leases.lock();
        *leases -= 1;
        if *leases == 0 {
            self.0.released.notify_all();
        }
    }
}

impl Drop for Shared {
    /// Closes the image if it is still open and discards errors. A panicking thread leaves the image in the state after
    /// a crash instead.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = self.close();
        }
    }
}

/// Rejects paths that are never valid.
fn check(path: &[u8]) -> vfs::Result<()> {
    match () {
        () if path.is_empty() => Err(vfs::Error::NotFound),
        () if path.contains(&0) => Err(vfs::Error::Invalid("a path must not contain NUL")),
        () => Ok(()),
    }
}

/// Reference to an inode. The inode is not freed before this is dropped, even if its last name is removed.
pub(crate) struct Held {
    shared: Arc<Shared>,
    ino: Ino,
}

impl Held {
    /// Holds an inode that was just found or created under the gate of names.
    pub(crate) fn new(shared: &Arc<Shared>, fs: &dyn FileSystem, ino: Ino) -> vfs::Result<Self> {
        fs.open(ino)?;
        Ok(Self { shared: Arc::clone(shared), ino })
    }

    pub(crate) fn ino(&self) -> Ino {
        self.ino
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Calls `act` for the inode. Errors name `path`.
    pub(crate) fn with<R>(
        &self,
        path: &[u8],
        act: impl FnOnce(&dyn FileSystem) -> vfs::Result<R>,
    ) -> Result<R> {
        self.shared.contents(self.ino, path, act)
    }
}

impl Drop for Held {
    /// An error here is harmless: the inode is then freed when the image is next opened.
    fn drop(&mut self) {
        let _ = self.shared.contents(self.ino, b"", |fs| fs.close(self.ino));
    }
}
