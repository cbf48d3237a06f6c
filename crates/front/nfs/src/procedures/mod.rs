//! The procedures of NFS version 3 (RFC 1813, section 3.3).
//!
//! A procedure parses its arguments and appends a status, then either its results or the attributes that the protocol
//! has for failures. Nothing is appended for invalid arguments.

mod attributes;
mod contents;
mod create;
mod listing;
mod names;
mod totals;

use vfs::Attributes;

use crate::NfsStatus;
use crate::access::Caller;
use crate::attributes::{SharedAttributes, Wcc, put_post_op, put_wcc};
use crate::handle::HANDLE_BYTES_MAX;
use crate::held::Held;
use crate::service::NfsService;
use crate::xdr::{Garbage, XdrReader, XdrWriter};

pub(crate) const PROGRAM: u32 = 100_003;
pub(crate) const VERSION: u32 = 3;

const SETATTR: u32 = 2;
const READ: u32 = 6;
const WRITE: u32 = 7;
const CREATE: u32 = 8;
const LINK: u32 = 15;
const COMMIT: u32 = 21;

/// Returns whether a repeated request must get the first reply: the procedure changes attributes or names. A repeated
/// WRITE has the same effect.
pub(crate) fn is_cached(procedure: u32) -> bool {
    procedure == SETATTR || (CREATE..=LINK).contains(&procedure)
}

/// Returns whether a procedure neither changes anything, nor waits for a disk to store it, nor transfers contents.
pub(crate) fn is_query(procedure: u32) -> bool {
    !is_cached(procedure) && !matches!(procedure, READ | WRITE | COMMIT)
}

/// Maximum size of a read or write, in bytes.
pub(crate) const TRANSFER_BYTES_MAX: u32 = 1 << 20;

/// Directory handle and name (`diropargs3`).
struct EntryName<'a> {
    dir: &'a [u8],
    name: &'a [u8],
}

impl<'a> EntryName<'a> {
    /// Names that are too long get a status, not an error of RPC.
    fn parse(arguments: &mut XdrReader<'a>) -> Result<Self, Garbage> {
        Ok(Self { dir: parse_handle(arguments)?, name: arguments.opaque(usize::MAX)? })
    }

    fn is_dots(&self) -> bool {
        matches!(self.name, b"." | b"..")
    }
}

fn parse_handle<'a>(arguments: &mut XdrReader<'a>) -> Result<&'a [u8], Garbage> {
    arguments.opaque(HANDLE_BYTES_MAX)
}

impl NfsService<'_> {
    /// Answers a procedure. Returns false if it does not exist.
    pub(crate) fn answer_nfs(
        &self,
        caller: &Caller<'_>,
        procedure: u32,
        arguments: XdrReader<'_>,
        reply: &mut XdrWriter,
    ) -> Result<bool, Garbage> {
        match procedure {
            0 => Ok(()),
            1 => self.getattr(arguments, reply),
            SETATTR => self.setattr(caller, arguments, reply),
            3 => self.lookup(caller, arguments, reply),
            4 => self.access(caller, arguments, reply),
            5 => self.readlink(arguments, reply),
            READ => self.read(caller, arguments, reply),
            WRITE => self.write(caller, arguments, reply),
            CREATE => self.create(caller, arguments, reply),
            9 => self.mkdir(caller, arguments, reply),
            10 => self.symlink(caller, arguments, reply),
            11 => self.mknod(caller, arguments, reply),
            12 => self.remove(caller, arguments, false, reply),
            13 => self.remove(caller, arguments, true, reply),
            14 => self.rename(caller, arguments, reply),
            LINK => self.link(caller, arguments, reply),
            16 => self.readdir(caller, arguments, reply),
            17 => self.readdirplus(caller, arguments, reply),
            18 => self.fsstat(arguments, reply),
            19 => self.fsinfo(arguments, reply),
            20 => self.pathconf(arguments, reply),
            COMMIT => self.commit(arguments, reply),
            _ => return Ok(false),
        }?;
        Ok(true)
    }

    /// Appends a status and the results of `act` for an inode. After an error, appends the attributes of the inode
    /// instead of results.
    fn on_inode(
        &self,
        handle: &[u8],
        reply: &mut XdrWriter,
        act: impl FnOnce(&Held<'_>, &mut XdrWriter) -> Result<(), NfsStatus>,
    ) {
        let at = reply.len();
        reply.u32(NfsStatus::Ok as u32);
        let held = self.hold(handle);
        let done = match &held {
            Ok(held) => act(held, reply),
            Err(status) => Err(*status),
        };
        if let Err(status) = done {
            reply.truncate(at);
            reply.u32(status as u32);
            let attributes = held.ok().and_then(|held| self.attributes(held.ino).ok());
            self.put_attributes(reply, attributes.as_ref());
        }
    }

    /// Appends the current attributes of an inode.
    fn put_current(&self, reply: &mut XdrWriter, held: &Held<'_>) {
        self.put_attributes(reply, self.attributes(held.ino).ok().as_ref());
    }

    fn put_attributes(&self, reply: &mut XdrWriter, attributes: Option<&Attributes>) {
        put_post_op(reply, attributes, self.shared_attributes());
    }

    fn shared_attributes(&self) -> SharedAttributes {
        SharedAttributes { fsid: self.handles.fsid(), owner: self.options.shown_owner }
    }

    fn put_wcc(&self, reply: &mut XdrWriter, wcc: &Wcc) {
        put_wcc(reply, wcc, self.shared_attributes());
    }
}
