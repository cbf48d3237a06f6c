//! State of an export, and the frame of its changes.

use std::sync::atomic::{AtomicU64, Ordering};

use vfs::peer::LocalUsers;
use vfs::served::Served;
use vfs::{Attributes, Error, FileSystem, Ino, Timestamp};

use crate::access::{Caller, NfsCallers};
use crate::attributes::Wcc;
use crate::duplicates::DuplicateCache;
use crate::handle::HandleCodec;
use crate::held::Held;
use crate::locks::{ChangeLocks, INODES_MAX};
use crate::mount_table::MountTable;
use crate::xdr::XdrWriter;
use crate::{ExportPath, NfsStatus};

/// Options of an export.
#[derive(Clone, Debug)]
pub struct NfsOptions {
    /// Path that clients mount.
    pub export: ExportPath,
    /// UUID of the file system. Handles of other file systems are stale.
    pub uuid: [u8; 16],
    /// Changes are not permitted.
    pub read_only: bool,
    /// Treatment of callers.
    pub callers: NfsCallers,
    /// User of clients (`AUTH_SYS`) with access, besides user 0. `None` permits all users.
    pub only_user: Option<u32>,
    /// User and group that all inodes appear to have. Requests that set them change nothing, and requests that set others
    /// fail. Clients see access as if they owned everything, so this requires [`NfsCallers::Unchecked`].
    pub shown_owner: Option<(u32, u32)>,
    /// Users of this host whose programs may connect to a loopback address.
    pub local_users: LocalUsers,
    /// Changes of names and attributes are durable when they are answered, as the protocol requires. Otherwise they
    /// become durable after some seconds, like on a local file system.
    pub sync: bool,
}

impl NfsOptions {
    /// Returns options for a writable export without permission checks, whose new files belong to user and group 0.
    pub fn new(export: ExportPath, uuid: [u8; 16]) -> Self {
        let callers = NfsCallers::Unchecked { uid: 0, gid: 0 };
        Self {
            export,
            uuid,
            read_only: false,
            callers,
            only_user: None,
            shown_owner: None,
            local_users: LocalUsers::Own,
            sync: true,
        }
    }
}

/// Durability of a change when it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Not required.
    None,
    /// Required if [`NfsOptions::sync`] is set.
    Optional,
    /// Contents and size.
    Data,
    /// Everything.
    All,
}

/// Result of a change, with attributes before and after it.
pub(crate) struct Changed<T> {
    pub(crate) outcome: Result<T, NfsStatus>,
    pub(crate) wcc: [Wcc; INODES_MAX],
}

/// Answers messages of NFS and MOUNT. Every method may be called from any thread.
pub struct NfsService<'a> {
    pub(crate) fs: &'a dyn FileSystem,
    pub(crate) served: Served<'a>,
    pub(crate) options: NfsOptions,
    pub(crate) handles: HandleCodec,
    pub(crate) mounts: MountTable,
    locks: ChangeLocks,
    pub(crate) duplicates: DuplicateCache,
    /// Differs between servers, and after changes that could not be stored. Clients repeat unstable writes then.
    write_verifier: AtomicU64,
}

impl<'a> NfsService<'a> {
    /// Creates a service for `fs`.
    ///
    /// # Errors
    /// If the host has no random numbers.
    pub fn new(fs: &'a dyn FileSystem, options: NfsOptions) -> std::io::Result<Self> {
        let mut verifier = [0; 8];
        getrandom::fill(&mut verifier).map_err(std::io::Error::other)?;
        Ok(Self {
            fs,
            served: Served::new(fs, options.read_only),
            handles: HandleCodec::new(&options.export, options.uuid),
            options,
            mounts: MountTable::default(),
            locks: ChangeLocks::default(),
            duplicates: DuplicateCache::default(),
            write_verifier: AtomicU64::new(u64::from_be_bytes(verifier)),
        })
    }

    /// Makes all changes durable, if there are any.
    ///
    /// # Errors
    /// If the file system cannot store them. Clients then repeat unstable writes.
    pub fn sync(&self) -> vfs::Result<()> {
        self.stored(self.served.sync())
    }

    /// Returns whether the image was found damaged. Changes are not permitted then.
    pub fn is_damaged(&self) -> bool {
        self.served.is_damaged()
    }

    /// Returns the verifier of unstable writes.
    pub(crate) fn write_verifier(&self) -> u64 {
        self.write_verifier.load(Ordering::SeqCst)
    }

    /// Returns the time of a change.
    pub(crate) fn now(&self) -> Timestamp {
        self.served.now()
    }

    /// Converts an error of the file system. Every error passes through here.
    pub(crate) fn failed(&self, error: &Error) -> NfsStatus {
        if self.served.note(error) {
            // The client gets a number; the log gets the details.
            tracing::error!("{error}");
        }
        NfsStatus::of(error)
    }

    /// Converts a result of the file system.
    pub(crate) fn result<T>(&self, result: vfs::Result<T>) -> Result<T, NfsStatus> {
        result.map_err(|error| self.failed(&error))
    }

    /// Returns the inode of a handle.
    ///
    /// # Errors
    /// `BadHandle` for a forged handle, `Stale` if the inode is not in use any more.
    pub(crate) fn hold(&self, handle: &[u8]) -> Result<Held<'a>, NfsStatus> {
        let known = self.handles.decode(handle)?;
        Held::new(self.fs, known).map_err(|failed| match failed {
            Ok(status) => status,
            Err(error) => self.failed(&error),
        })
    }

    /// Returns the attributes of an inode that was found by name.
    pub(crate) fn attributes(&self, ino: Ino) -> Result<Attributes, NfsStatus> {
        self.result(self.fs.attributes(ino))
    }

    /// Changes the inodes of these handles with `act`, which gets their attributes and the time of the change. No other
    /// change of them runs at the same time.
    pub(crate) fn change<T>(
        &self,
        handles: [&[u8]; INODES_MAX],
        durability: Durability,
        act: impl FnOnce([&Attributes; INODES_MAX], Timestamp) -> Result<T, NfsStatus>,
    ) -> Changed<T> {
        let mut wcc = [Wcc::default(); INODES_MAX];
        let changed = self.change_locked(handles, &mut wcc, act);
        // Without the locks, because it takes long.
        let outcome = changed.and_then(|(value, _held)| {
            self.make_durable(durability)?;
            Ok(value)
        });
        Changed { outcome, wcc }
    }

    fn change_locked<T>(
        &self,
        handles: [&[u8]; INODES_MAX],
        wcc: &mut [Wcc; INODES_MAX],
        act: impl FnOnce([&Attributes; INODES_MAX], Timestamp) -> Result<T, NfsStatus>,
    ) -> Result<(T, [Option<Held<'a>>; INODES_MAX]), NfsStatus> {
        let first = self.hold(handles[0])?;
        let is_one = handles[0] == handles[1];
        let second = if is_one { None } else { Some(self.hold(handles[1])?) };
        let inodes = [first.ino, second.as_ref().unwrap_or(&first).ino];
        let _locked = self.locks.lock(inodes);
        let current = |at: usize| self.attributes(inodes[at]);
        let before = current(0)?;
        let before = [before, if is_one { before } else { current(1)? }];
        *wcc = before.map(|before| Wcc { before: Some(before), after: Some(before) });
        self.check_writable()?;
        let outcome = act(before.each_ref(), self.now());
        self.served.set_changed();
        let after = current(0).ok();
        wcc[0].after = after;
        wcc[1].after = if is_one { after } else { current(1).ok() };
        outcome.map(|value| (value, [Some(first), second]))
    }

    /// Checks that changes are permitted.
    ///
    /// # Errors
    /// `Rofs` if they are not, or no longer.
    fn check_writable(&self) -> Result<(), NfsStatus> {
        if self.served.is_writable() { Ok(()) } else { Err(NfsStatus::Rofs) }
    }

    /// Makes a change durable.
    pub(crate) fn make_durable(&self, durability: Durability) -> Result<(), NfsStatus> {
        // The inode does not matter: both formats store all changes up to this moment.
        let root = self.fs.root();
        let stored = match durability {
            Durability::None => return Ok(()),
            Durability::Optional if !self.options.sync => return Ok(()),
            // After damage nothing is written any more.
            _ if self.is_damaged() => return Err(NfsStatus::Io),
            _ if self.options.read_only => return Ok(()),
            Durability::Data => self.fs.fdatasync(root),
            Durability::Optional | Durability::All => self.fs.fsync(root),
        };
        self.stored(stored).map_err(|error| NfsStatus::of(&error))
    }

    fn stored(&self, result: vfs::Result<()>) -> vfs::Result<()> {
        result.inspect_err(|error| {
            self.write_verifier.fetch_add(1, Ordering::SeqCst);
            self.failed(error);
            tracing::error!("a change could not be stored: {error}");
        })
    }

    /// Returns whether the caller has all permissions of `wanted` for an inode.
    ///
    /// # Errors
    /// `Acces` if not.
    pub(crate) fn check(
        &self,
        caller: &Caller<'_>,
        attributes: &Attributes,
        wanted: u16,
    ) -> Result<(), NfsStatus> {
        let may = self.result(caller.may(self.fs, attributes, wanted))?;
        if may { Ok(()) } else { Err(NfsStatus::Acces) }
    }

    /// Starts a reply with a status.
    pub(crate) fn put_status<T>(reply: &mut XdrWriter, outcome: &Result<T, NfsStatus>) {
        reply.u32(*outcome.as_ref().err().unwrap_or(&NfsStatus::Ok) as u32);
    }
}
