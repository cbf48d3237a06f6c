//! Names: look-up, creation, renaming and removal.
//!
//! The kernel locks a directory during its requests, so that other changes cannot intervene between the steps of an
//! answer. Only look-ups of `.` and `..`, from NFS, come at any time.

mod create;

use linux::abi::{EntryOut, ForgetOne, InHeader, ROOT_ID};
use linux::{Errno, Reply};
use vfs::{Corruption, Error, Ino, NAME_LEN_MAX, RenameMode};

use crate::{Adapter, clock};

// Flags of renameat2(2).
const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;

impl Adapter<'_> {
    /// Answers LOOKUP. A missing name is a valid answer, too, which the kernel caches.
    pub(crate) fn lookup(&self, dir: Ino, name: &[u8], reply: &mut Reply<'_>) -> Result<(), Errno> {
        let found = match name {
            b"." => Ok(dir),
            _ if name.len() > NAME_LEN_MAX => Err(Error::NameTooLong),
            _ => self.fs.lookup(dir, name),
        };
        let is_dots = matches!(name, b"." | b"..");
        let entry = match found {
            Ok(ino) if is_dots => self.entry(ino),
            Ok(ino) => self.entry(ino).map_err(|error| missing_inode(dir, error)),
            Err(Error::NotFound) if !is_dots => Ok(no_entry(self.entry_valid_sec)),
            Err(error) => Err(error),
        };
        self.put_entry(&self.result(entry)?, reply)
    }

    /// Returns an inode as the answer to a look-up, and counts the look-up.
    ///
    /// # Errors
    /// Returns the errors of the file system; `NotFound` if the inode is not in use. Then nothing is counted.
    pub(crate) fn entry(&self, ino: Ino) -> vfs::Result<EntryOut> {
        if ino.0 == ROOT_ID && ino != self.fs.root() {
            // This number means the root in the protocol.
            return Err(misleading("a directory entry refers to inode 1, which is reserved"));
        }
        // While it is open, its number cannot be reused before its attributes are read.
        self.lookup_counts.tell(self.fs, ino)?;
        self.told_entry(ino)
    }

    /// Like [`Self::entry`], for an inode that is counted already. After an error it is no longer counted.
    fn told_entry(&self, ino: Ino) -> vfs::Result<EntryOut> {
        let attributes = self.fs.attributes(ino);
        if attributes.is_err() {
            self.untell(ino);
        }
        Ok(self.entry_out(&attributes?))
    }

    /// Undoes the count of a look-up that will not be reported to the kernel.
    pub(crate) fn untell(&self, ino: Ino) {
        // The original error is more informative.
        let _ = self.forget(ino, 1);
    }

    /// Answers with an entry that is counted. If the answer fails, it is no longer counted.
    fn put_entry(&self, entry: &EntryOut, reply: &mut Reply<'_>) -> Result<(), Errno> {
        reply.put(entry).inspect_err(|_| self.untell(self.ino(entry.nodeid)))
    }

    /// Handles FORGET.
    pub(crate) fn forget(&self, ino: Ino, nlookup: u64) -> Result<(), Errno> {
        self.space.forget(ino);
        self.result(self.lookup_counts.forget(self.fs, ino, nlookup))
    }

    /// Handles BATCH_FORGET.
    pub(crate) fn forget_all(&self, nodes: &[ForgetOne]) -> Result<(), Errno> {
        // An error does not stop the others, and is not reported to anyone.
        let forget = |node: &ForgetOne| self.forget(self.ino(node.nodeid), node.nlookup);
        nodes.iter().map(forget).fold(Ok(()), Result::and)
    }

    /// Answers READLINK.
    pub(crate) fn readlink(&self, ino: Ino, reply: &mut Reply<'_>) -> Result<(), Errno> {
        let target = self.result(self.fs.readlink(ino))?;
        reply.put_bytes(&target)
    }

    /// Handles UNLINK.
    pub(crate) fn unlink(&self, dir: Ino, name: &[u8]) -> Result<(), Errno> {
        self.check_writable()?;
        self.result(self.fs.unlink(dir, name, Some(clock::now())))
    }

    /// Handles RMDIR.
    pub(crate) fn rmdir(&self, dir: Ino, name: &[u8]) -> Result<(), Errno> {
        self.check_writable()?;
        self.result(self.fs.rmdir(dir, name, Some(clock::now())))
    }

    /// Handles RENAME and RENAME2.
    pub(crate) fn rename(
        &self,
        header: &InHeader,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        flags: u32,
    ) -> Result<(), Errno> {
        self.check_writable()?;
        let mode = match flags & !RENAME_WHITEOUT {
            0 => RenameMode::Replace,
            RENAME_NOREPLACE => RenameMode::NoReplace,
            RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return Err(Errno::INVAL),
        };
        let time = Some(clock::now());
        if flags & RENAME_WHITEOUT == 0 {
            return self.result(self.fs.rename(from, to, mode, time));
        }
        let whiteout = self.whiteout(header, from.0)?;
        self.result(self.fs.rename_with_whiteout(from, to, mode, &whiteout, time))
    }

    /// Answers LINK.
    pub(crate) fn link(
        &self,
        ino: Ino,
        dir: Ino,
        name: &[u8],
        reply: &mut Reply<'_>,
    ) -> Result<(), Errno> {
        self.check_writable()?;
        let linked = self.fs.link(ino, dir, name, Some(clock::now()));
        let entry = linked.and_then(|()| self.entry(ino));
        self.put_entry(&self.result(entry)?, reply)
    }
}

/// Returns the answer for a missing name, which stays missing unless the kernel creates it.
fn no_entry(entry_valid: u64) -> EntryOut {
    EntryOut { nodeid: 0, entry_valid, ..EntryOut::default() }
}

/// Converts an error: the inode of a name must exist.
fn missing_inode(dir: Ino, error: Error) -> Error {
    match error {
        Error::NotFound => {
            misleading(&format!("a directory entry of {dir} refers to an unused inode"))
        }
        error => error,
    }
}

fn misleading(problem: &str) -> Error {
    Error::Corrupt(Corruption::new("directory", problem))
}
