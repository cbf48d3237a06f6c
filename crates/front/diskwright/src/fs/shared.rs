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

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use vfs::{FileSystem, FileType, Ino, NewInode, Paths, Timestamp};

use crate::inode::inherit_group;
use crate::open_to_edit::OpenToEdit;
use crate::{Error, Image as ReadOnly, Result};

/// Owner of new files: user and group.
pub(super) type Owner = (u32, u32);

/// Number of gates of contents: a power of two, larger than the usual number of threads.
const GATES: usize = 64;

/// Image opened for reading or for writing.
pub(super) enum Backing {
    Read(ReadOnly),
    Write(OpenToEdit),
}

impl Backing {
    fn file_system(&self) -> &dyn FileSystem {
        match self {
            Self::Read(image) => image.file_system(),
            Self::Write(image) => image.file_system(),
        }
    }

    fn close(self) -> Result<()> {
        match self {
            Self::Read(_) => Ok(()),
            Self::Write(image) => image.close(),
        }
    }
}

/// Aligned, so that threads at different gates do not share cache lines. `None` after closing.
#[repr(align(64))]
struct Gate(RwLock<Option<Arc<Backing>>>);

impl Gate {
    fn new(backing: &Arc<Backing>) -> Self {
        Self(RwLock::new(Some(Arc::clone(backing))))
    }
}

pub(super) struct Shared {
    names: Gate,
    contents: Box<[Gate]>,
    is_writable: bool,
    /// Owner of new files.
    owner: Owner,
    /// Number of calls that removed or renamed, or attempted to.
    removals: AtomicU64,
}

/// Context of a call that follows a path.
#[derive(Clone, Copy)]
pub(super) struct Names<'a> {
    pub(super) paths: Paths<'a>,
    pub(super) fs: &'a dyn FileSystem,
    /// Time of this call.
    pub(super) now: Timestamp,
    owner: Owner,
}

impl Names<'_> {
    /// Returns the initial attributes of a new file in `dir`.
    pub(super) fn new_inode(
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
pub(super) fn now() -> Timestamp {
    vfs::clock::now().unwrap_or_default()
}

impl Shared {
    pub(super) fn new(backing: Backing, owner: Owner) -> Arc<Self> {
        let is_writable = matches!(backing, Backing::Write(_));
        let backing = Arc::new(backing);
        let contents = (0..GATES).map(|_| Gate::new(&backing)).collect();
        let (names, removals) = (Gate::new(&backing), AtomicU64::new(0));
        Arc::new(Self { names, contents, is_writable, owner, removals })
    }

    pub(super) fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Returns the owner of new files.
    #[cfg(feature = "build")]
    pub(super) fn owner(&self) -> Owner {
        self.owner
    }

    /// Returns a counter that changes whenever a name was removed or renamed.
    pub(super) fn removals(&self) -> u64 {
        self.removals.load(Ordering::Relaxed)
    }

    /// Calls `act` with the gate of names held. Errors name `path`.
    pub(super) fn names<R>(
        &self,
        path: &[u8],
        act: impl FnOnce(Names<'_>) -> vfs::Result<R>,
    ) -> Result<R> {
        let gate: RwLockReadGuard<'_, _> = self.names.0.read();
        self.act_on(path, gate.as_deref(), act)
    }

    /// Same as [`Self::names`], but holds the gate exclusively, for calls that remove names.
    pub(super) fn removing<R>(
        &self,
        path: &[u8],
        act: impl FnOnce(Names<'_>) -> vfs::Result<R>,
    ) -> Result<R> {
        let gate: RwLockWriteGuard<'_, _> = self.names.0.write();
        self.removals.fetch_add(1, Ordering::Relaxed);
        self.act_on(path, gate.as_deref(), act)
    }

    fn act_on<R>(
        &self,
        path: &[u8],
        backing: Option<&Backing>,
        act: impl FnOnce(Names<'_>) -> vfs::Result<R>,
    ) -> Result<R> {
        let fs = backing.ok_or(Error::Closed)?.file_system();
        let names = Names { paths: Paths::new(fs), fs, now: now(), owner: self.owner };
        check(path).and_then(|()| act(names)).map_err(|error| Error::file(path, error))
    }

    /// Calls `act` for an operation that needs no path.
    pub(super) fn whole<R>(&self, act: impl FnOnce(&dyn FileSystem) -> Result<R>) -> Result<R> {
        let gate = self.names.0.read();
        act(gate.as_deref().ok_or(Error::Closed)?.file_system())
    }

    fn gate(&self, ino: Ino) -> &RwLock<Option<Arc<Backing>>> {
        &self.contents[ino.0 as usize % GATES].0
    }

    /// Calls `act` for a held inode. Errors name `path`.
    pub(super) fn contents<R>(
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
    pub(super) fn contents_alone<R>(
        &self,
        ino: Ino,
        path: &[u8],
        act: impl FnOnce(&dyn FileSystem) -> vfs::Result<R>,
    ) -> Result<R> {
        let gate = self.gate(ino).write();
        let fs = gate.as_deref().ok_or(Error::Closed)?.file_system();
        act(fs).map_err(|error| Error::file(path, error))
    }

    /// Waits for running calls, makes all changes durable and marks the image clean. Open files are closed too.
    pub(super) fn close(&self) -> Result<()> {
        let mut names = self.names.0.write();
        let mut contents: Vec<_> = self.contents.iter().map(|gate| gate.0.write()).collect();
        for gate in &mut contents {
            **gate = None;
        }
        // This is the last reference: any other user would still hold a gate.
        names.take().and_then(Arc::into_inner).map_or(Ok(()), Backing::close)
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
pub(super) struct Held {
    shared: Arc<Shared>,
    ino: Ino,
}

impl Held {
    /// Holds an inode that was just found or created under the gate of names.
    pub(super) fn new(shared: &Arc<Shared>, fs: &dyn FileSystem, ino: Ino) -> vfs::Result<Self> {
        fs.open(ino)?;
        Ok(Self { shared: Arc::clone(shared), ino })
    }

    pub(super) fn ino(&self) -> Ino {
        self.ino
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Calls `act` for the inode. Errors name `path`.
    pub(super) fn with<R>(
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
