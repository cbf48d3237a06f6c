//! ACCESS, FSSTAT, FSINFO and PATHCONF.

use vfs::{Attributes, FileType};

use super::{TRANSFER_BYTES_MAX, parse_handle};
use crate::NfsStatus;
use crate::access::{Caller, EXECUTE, NfsCallers, READ, WRITE};
use crate::service::NfsService;
use crate::xdr::{Garbage, XdrReader, XdrWriter};

const ACCESS_READ: u32 = 0x01;
const ACCESS_LOOKUP: u32 = 0x02;
const ACCESS_MODIFY: u32 = 0x04;
const ACCESS_EXTEND: u32 = 0x08;
const ACCESS_DELETE: u32 = 0x10;
const ACCESS_EXECUTE: u32 = 0x20;

/// Rights of each file type, with the permissions that they need.
const RIGHTS_OF_DIRECTORIES: &[(u32, u16)] = &[
    (ACCESS_READ, READ),
    (ACCESS_LOOKUP, EXECUTE),
    (ACCESS_MODIFY | ACCESS_EXTEND | ACCESS_DELETE, WRITE | EXECUTE),
];
const RIGHTS_OF_FILES: &[(u32, u16)] =
    &[(ACCESS_READ, READ), (ACCESS_MODIFY | ACCESS_EXTEND, WRITE), (ACCESS_EXECUTE, EXECUTE)];
const RIGHTS_OF_OTHERS: &[(u32, u16)] =
    &[(ACCESS_READ, READ), (ACCESS_MODIFY | ACCESS_EXTEND, WRITE)];

/// Properties of the file system: hard links, symbolic links, the same for all files, times can be set.
const PROPERTIES: u32 = 0x01 | 0x02 | 0x08 | 0x10;
/// Preferred size of a listing, in bytes.
const LISTING_BYTES: u32 = 64 << 10;
/// Preferred multiple of the sizes of transfers, in bytes.
const TRANSFER_MULTIPLE: u32 = 4096;
/// Maximum number of links that both formats can count for a file.
const LINKS_MAX: u32 = 65_000;
const NAME_BYTES_MAX: u32 = vfs::NAME_LEN_MAX as u32;

impl NfsService<'_> {
    pub(super) fn access(
        &self,
        caller: &Caller<'_>,
        mut arguments: XdrReader<'_>,
        reply: &mut XdrWriter,
    ) -> Result<(), Garbage> {
        let (handle, asked) = (parse_handle(&mut arguments)?, arguments.u32()?);
        self.on_inode(handle, reply, |held, reply| {
            let granted = self.granted(caller, held)?;
            self.put_current(reply, held);
            reply.u32(asked & granted);
            Ok(())
        });
        Ok(())
    }

    /// Returns the rights of a caller. They agree with the checks of the other procedures.
    fn granted(&self, caller: &Caller<'_>, attributes: &Attributes) -> Result<u32, NfsStatus> {
        let rights = match attributes.file_type {
            FileType::Directory => RIGHTS_OF_DIRECTORIES,
            FileType::Regular => RIGHTS_OF_FILES,
            _ => RIGHTS_OF_OTHERS,
        };
        let mut granted = 0;
        for (bits, permissions) in rights {
            if self.result(caller.may(self.fs, attributes, *permissions))? {
                granted |= bits;
            }
        }
        let protection = attributes.protection;
        if self.options.read_only || self.is_damaged() || protection.is_immutable {
            granted &= !(ACCESS_MODIFY | ACCESS_EXTEND | ACCESS_DELETE);
        }
        if protection.is_append_only {
            granted &= !(ACCESS_MODIFY | ACCESS_DELETE);
        }
        Ok(granted)
    }

    pub(super) fn fsstat(
        &self,
        mut arguments: XdrReader<'_>,
        reply: &mut XdrWriter,
    ) -> Result<(), Garbage> {
        self.on_inode(parse_handle(&mut arguments)?, reply, |held, reply| {
            let totals = self.result(self.fs.statfs_of(held.ino))?;
            let bytes = |blocks: u64| blocks.saturating_mul(totals.block_size.into());
            self.put_current(reply, held);
            for value in [
                bytes(totals.blocks),
                bytes(totals.blocks_free),
                bytes(totals.blocks_available),
                totals.inodes,
                totals.inodes_free,
                totals.inodes_free,
            ] {
                reply.u64(value);
            }
            // The totals may change at any time.
            reply.u32(0);
            Ok(())
        });
        Ok(())
    }

    pub(super) fn fsinfo(
        &self,
        mut arguments: XdrReader<'_>,
        reply: &mut XdrWriter,
    ) -> Result<(), Garbage> {
        self.on_inode(parse_handle(&mut arguments)?, reply, |held, reply| {
            self.put_current(reply, held);
            for _read_and_write in 0..2 {
                for bytes in [TRANSFER_BYTES_MAX, TRANSFER_BYTES_MAX, TRANSFER_MULTIPLE] {
                    reply.u32(bytes);
                }
            }
            reply.u32(LISTING_BYTES);
            // The format has its own maximum, and reports it when it is exceeded.
            reply.u64(i64::MAX as u64);
            // Times are exact to a nanosecond.
            reply.u32(0);
            reply.u32(1);
            reply.u32(PROPERTIES);
            Ok(())
        });
        Ok(())
    }

    pub(super) fn pathconf(
        &self,
        mut arguments: XdrReader<'_>,
        reply: &mut XdrWriter,
    ) -> Result<(), Garbage> {
        self.on_inode(parse_handle(&mut arguments)?, reply, |held, reply| {
            self.put_current(reply, held);
            reply.u32(LINKS_MAX);
            reply.u32(NAME_BYTES_MAX);
            let is_chown_restricted = self.options.callers == NfsCallers::Checked;
            // Names that are too long are refused. Case is preserved in all directories.
            for value in [true, is_chown_restricted, self.fs.folds_names(), true] {
                reply.bool(value);
            }
            Ok(())
        });
        Ok(())
    }
}
