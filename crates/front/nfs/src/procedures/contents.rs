//! READ, WRITE, COMMIT and READLINK.

use vfs::{Attributes, ChangePurpose, FileType, SetAttributes, Timestamp};

use super::{TRANSFER_BYTES_MAX, parse_handle};
use crate::NfsStatus;
use crate::access::{Caller, EXECUTE, READ, WRITE};
use crate::service::{Durability, NfsService};
use crate::xdr::{Garbage, XdrReader, XdrWriter};

/// Maximum end of a file, in bytes: offsets of programs are signed.
const END_MAX: u64 = i64::MAX as u64;

/// Durability of a write when it is answered (`stable_how`).
const UNSTABLE: u32 = 0;
const DATA_SYNC: u32 = 1;
const FILE_SYNC: u32 = 2;

impl NfsService<'_> {
    pub(super) fn readlink(
        &self,
        mut arguments: XdrReader<'_>,
        reply: &mut XdrWriter,
    ) -> Result<(), Garbage> {
        self.on_inode(parse_handle(&mut arguments)?, reply, |held, reply| {
            if held.file_type != FileType::Symlink {
                return Err(NfsStatus::Inval);
            }
            let target = self.result(self.fs.readlink(held.ino))?;
            self.put_current(reply, held);
            reply.opaque(&target);
            Ok(())
        });
        Ok(())
    }

    pub(super) fn read(
        &self,
        caller: &Caller<'_>,
        mut arguments: XdrReader<'_>,
        reply: &mut XdrWriter,
    ) -> Result<(), Garbage> {
        let handle = parse_handle(&mut arguments)?;
        let (offset, count) = (arguments.u64()?, arguments.u32()?);
        self.on_inode(handle, reply, |held, reply| {
            check_regular(held)?;
            self.check_reading(caller, held)?;
            // The buffer is not larger than the rest of the file.
            let rest = held.size.saturating_sub(offset);
            let len = u64::from(count.min(TRANSFER_BYTES_MAX)).min(rest) as usize;
            let at = reply.len();
            let put_head = |reply: &mut XdrWriter, attributes, count, is_end| {
                self.put_attributes(reply, Some(attributes));
                reply.u32(count);
                reply.bool(is_end);
            };
            put_head(reply, held, 0, false);
            let data = reply.opaque_with(len, |buffer| self.fs.read(held.ino, offset, buffer));
            let len = self.result(data)?;
            let now = self.attributes(held.ino)?;
            let is_end = offset.saturating_add(len as u64) >= now.size;
            // The head has a fixed size, so it can follow the data.
            let mut head = XdrWriter::new();
            put_head(&mut head, &now, len as u32, is_end);
            reply.overwrite(at, &head);
            Ok(())
        });
        Ok(())
    }

    /// Checks that a caller may read a file. The owner always may, because programs keep files open after a change of
    /// their permissions. Permission to execute suffices, because clients must read programs to execute them.
    fn check_reading(&self, caller: &Caller<'_>, file: &Attributes) -> Result<(), NfsStatus> {
        if caller.is_owner(file) || self.result(caller.may(self.fs, file, READ))? {
            return Ok(());
        }
        self.check(caller, file, EXECUTE)
    }

    pub(super) fn write(
        &self,
        caller: &Caller<'_>,
        mut arguments: XdrReader<'_>,
        reply: &mut XdrWriter,
    ) -> Result<(), Garbage> {
        let handle = parse_handle(&mut arguments)?;
        let (offset, count, stable) = (arguments.u64()?, arguments.u32()?, arguments.u32()?);
        let data = arguments.opaque(usize::MAX)?;
        let durability = match stable {
            UNSTABLE => Durability::None,
            DATA_SYNC => Durability::Data,
            FILE_SYNC => Durability::All,
            _ => return Err(Garbage),
        };
        // Read first: if another sync fails, the data may be lost, and the verifier must not match that of COMMIT.
        let verifier = self.write_verifier();
        let changed = self.change([handle; 2], durability, |[file, _], now| {
            check_regular(file)?;
            if !caller.is_owner(file) {
                self.check(caller, file, WRITE)?;
            }
            let data = data.get(..count as usize).ok_or(NfsStatus::Inval)?;
            if offset.checked_add(u64::from(count)).is_none_or(|end| end > END_MAX) {
                return Err(NfsStatus::FBig);
            }
            self.result(file.protection.check_addition())?;
            self.drop_privileges(caller, file, now)?;
            self.result(self.fs.write(file.ino, offset, data, Some(now)))
        });
        Self::put_status(reply, &changed.outcome);
        self.put_wcc(reply, &changed.wcc[0]);
        if changed.outcome.is_ok() {
            reply.u32(count);
            reply.u32(stable);
            reply.u64(verifier);
        }
        Ok(())
    }

    /// Removes set-id bits and capabilities of a file whose contents change.
    pub(super) fn drop_privileges(
        &self,
        caller: &Caller<'_>,
        file: &Attributes,
        now: Timestamp,
    ) -> Result<(), NfsStatus> {
        if let Some(permissions) = self.reduced_permissions(caller, file) {
            let change = SetAttributes {
                permissions: Some(permissions),
                ctime: Some(now),
                purpose: ChangePurpose::Consequence,
                ..SetAttributes::default()
            };
            self.result(self.fs.set_attributes(file.ino, &change))?;
        }
        self.remove_capabilities(file.ino)
    }

    pub(super) fn commit(
        &self,
        mut arguments: XdrReader<'_>,
        reply: &mut XdrWriter,
    ) -> Result<(), Garbage> {
        let handle = parse_handle(&mut arguments)?;
        let (_offset, _count) = (arguments.u64()?, arguments.u32()?);
        let held = self.hold(handle);
        let outcome = held.as_ref().map_err(|status| *status).and_then(|file| {
            check_regular(file)?;
            self.make_durable(Durability::All)
        });
        Self::put_status(reply, &outcome);
        let before = held.as_ref().ok().map(|held| **held);
        let after = held.ok().and_then(|held| self.attributes(held.ino).ok());
        self.put_wcc(reply, &crate::attributes::Wcc { before, after });
        if outcome.is_ok() {
            // Read last: it contains all syncs that failed before this one.
            reply.u64(self.write_verifier());
        }
        Ok(())
    }
}

fn check_regular(attributes: &Attributes) -> Result<(), NfsStatus> {
    match attributes.file_type {
        FileType::Regular => Ok(()),
        FileType::Directory => Err(NfsStatus::IsDir),
        _ => Err(NfsStatus::Inval),
    }
}
