//! What an image and the files that are open in it share: the file system, and when it may be closed.
//!
//! Every call passes one gate, for as long as it lasts. Closing takes all gates, so that no call is under way
//! then, and takes the file system out of each: whoever comes later is told so. There are two kinds of gates.
//!
//! - Calls that follow a path pass the gate of names, those that remove a name alone. So a bare inode number that
//!   a path led to stays that of the same file until the call ends, or until it is held ([`Held`]).
//! - Calls on an inode that is held pass one of the gates of contents, which are many, so that threads on different
//!   files do not meet. Who appends passes alone: nobody changes the size meanwhile.
//!
//! A gate of contents is passed after the gate of names, if both are, and never two of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use vfs::{FileSystem, FileType, Ino, NewInode, Paths, Timestamp};

use crate::inode::inherit_group;
use crate::open_to_edit::OpenToEdit;
use crate::{Error, Image as ReadOnly, Result};

/// Who owns what is made: user and group.
pub(super) type Owner = (u32, u32);

/// Gates of contents: a power of two, more than threads that run at once.
const GATES: usize = 64;

/// An image of the host, open one way or the other.
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

/// Apart in memory, so that threads at different gates do not share cache lines. `None` once it is closed.
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
    /// Who owns what is made.
    owner: Owner,
    /// Calls that removed or moved names, or tried to.
    removals: AtomicU64,
}

/// What a call that follows a path works with.
#[derive(Clone, Copy)]
pub(super) struct Names<'a> {
    pub(super) paths: Paths<'a>,
    pub(super) fs: &'a dyn FileSystem,
    /// The time of this call.
    pub(super) now: Timestamp,
    owner: Owner,
}

impl Names<'_> {
    /// What a new file in `dir` starts with.
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

/// The time of a change that is made now; 1970 where nobody knows the time.
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

    /// Who owns what is made.
    #[cfg(feature = "build")]
    pub(super) fn owner(&self) -> Owner {
        self.owner
    }

    /// A number that is another one after a name was removed or moved.
    pub(super) fn removals(&self) -> u64 {
        self.removals.load(Ordering::Relaxed)
    }

    /// Follows `path`, and does something with what it leads to.
    pub(super) fn names<R>(
        &self,
        path: &[u8],
        act: impl FnOnce(Names<'_>) -> vfs::Result<R>,
    ) -> Result<R> {
        let gate: RwLockReadGuard<'_, _> = self.names.0.read();
        self.act_on(path, gate.as_deref(), act)
    }

    /// The same where a name may go, which nobody else may follow meanwhile.
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

    /// Does something that no path is needed for.
    pub(super) fn whole<R>(&self, act: impl FnOnce(&dyn FileSystem) -> Result<R>) -> Result<R> {
        let gate = self.names.0.read();
        act(gate.as_deref().ok_or(Error::Closed)?.file_system())
    }

    fn gate(&self, ino: Ino) -> &RwLock<Option<Arc<Backing>>> {
        &self.contents[ino.0 as usize % GATES].0
    }

    /// Does something to an inode that is held; errors name `path`.
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

    /// The same while nobody else does anything to it.
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

    /// Waits for the calls that are under way, makes all changes durable and leaves the image clean. Files that
    /// are still open are closed with it.
    pub(super) fn close(&self) -> Result<()> {
        let mut names = self.names.0.write();
        let mut contents: Vec<_> = self.contents.iter().map(|gate| gate.0.write()).collect();
        for gate in &mut contents {
            **gate = None;
        }
        // Nobody else has it: whoever had passed a gate would still hold that.
        names.take().and_then(Arc::into_inner).map_or(Ok(()), Backing::close)
    }
}

impl Drop for Shared {
    /// Closes the image if nobody did; what goes wrong then is not told. A thread that panics leaves the image as
    /// after a crash instead.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = self.close();
        }
    }
}

/// What no path can be, wherever it leads.
fn check(path: &[u8]) -> vfs::Result<()> {
    match () {
        () if path.is_empty() => Err(vfs::Error::NotFound),
        () if path.contains(&0) => Err(vfs::Error::Invalid("a path must not contain NUL")),
        () => Ok(()),
    }
}

/// An inode in use, which stays so until this is dropped, also if its last name goes.
pub(super) struct Held {
    shared: Arc<Shared>,
    ino: Ino,
}

impl Held {
    /// Holds an inode that a path has just led to, or that was just made.
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

    /// Does something to the inode; errors name `path`.
    pub(super) fn with<R>(
        &self,
        path: &[u8],
        act: impl FnOnce(&dyn FileSystem) -> vfs::Result<R>,
    ) -> Result<R> {
        self.shared.contents(self.ino, path, act)
    }
}

impl Drop for Held {
    /// What keeps the inode from being freed now will not when the image is next opened.
    fn drop(&mut self) {
        let _ = self.shared.contents(self.ino, b"", |fs| fs.close(self.ino));
    }
}
