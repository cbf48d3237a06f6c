//! Listings of directories, with and without what the kernel would look up next.
//!
//! A listing goes on after the cookie of its last record, so an entry that does not fit is simply not
//! put in: the next request begins with it.

use std::ops::ControlFlow;

use fuse_device::abi::{Dirent, EntryOut, ReadIn, padded};
use fuse_device::{Errno, Reply};
use vfs::{Cookie, DirEntry, FileType, Ino};
use zerocopy::{FromBytes, IntoBytes};

use crate::Adapter;

impl Adapter<'_> {
    /// READDIR.
    pub(crate) fn readdir(
        &self,
        dir: Ino,
        args: &ReadIn,
        reply: &mut Reply<'_>,
    ) -> Result<(), Errno> {
        self.list(dir, args, 0, reply)
    }

    /// READDIRPLUS. Names come first, because nothing may be asked of the file system while it lists;
    /// then every inode is looked at. Of one that cannot be read nothing is said: the kernel will ask
    /// for it by name, and whoever wants it gets the error.
    pub(crate) fn readdirplus(
        &self,
        dir: Ino,
        args: &ReadIn,
        reply: &mut Reply<'_>,
    ) -> Result<(), Errno> {
        self.list(dir, args, size_of::<EntryOut>(), reply)?;
        let mut records = reply.as_bytes_mut();
        while let Some((record, rest)) = split_record(records) {
            self.fill_in(record);
            records = rest;
        }
        Ok(())
    }

    /// Puts in records with `head_len` zeros before each, as many as the request has room for.
    fn list(
        &self,
        dir: Ino,
        args: &ReadIn,
        head_len: usize,
        reply: &mut Reply<'_>,
    ) -> Result<(), Errno> {
        let size = args.size as usize;
        let mut is_full = false;
        let listed = self.fs.readdir(dir, Cookie(args.offset), &mut |entry| {
            is_full = put_record(reply, size, head_len, &entry).is_none();
            if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if let Err(error) = listed {
            let errno = self.failed(&error);
            // What was listed before is delivered; the next request meets the error again.
            return if reply.is_empty() { Err(errno) } else { Ok(()) };
        }
        if is_full && reply.is_empty() {
            // An empty answer would say that the directory ends here.
            return Err(Errno::INVAL);
        }
        if args.offset == 0 && !self.options.keep_directory_times {
            self.accessed(dir);
        }
        Ok(())
    }

    /// Completes a record of READDIRPLUS, and counts that the kernel is told of the inode.
    fn fill_in(&self, record: &mut [u8]) {
        let (head, rest) = record.split_at_mut(size_of::<EntryOut>());
        let Ok((dirent, name)) = Dirent::mut_from_prefix(rest) else { return };
        if matches!(&name[..dirent.namelen as usize], b"." | b"..") {
            return;
        }
        match self.entry(Ino(dirent.ino)) {
            Ok(entry) => {
                dirent.r#type = entry.attr.mode >> 12;
                head.copy_from_slice(entry.as_bytes());
            }
            Err(error) => {
                self.failed(&error);
            }
        }
    }
}

/// Appends a record. `None`, and nothing is appended, if it does not fit.
fn put_record(
    reply: &mut Reply<'_>,
    size: usize,
    head_len: usize,
    entry: &DirEntry<'_>,
) -> Option<()> {
    let dirent = Dirent {
        ino: entry.ino.0,
        off: entry.next.0,
        namelen: entry.name.len() as u32,
        r#type: type_bits(entry.file_type),
    };
    let name_at = head_len + size_of::<Dirent>();
    let name_end = name_at + entry.name.len();
    let len = padded(name_end);
    if len > size.saturating_sub(reply.len()) {
        return None;
    }
    let record = reply.room(len).ok()?;
    record[..head_len].fill(0);
    record[head_len..name_at].copy_from_slice(dirent.as_bytes());
    record[name_at..name_end].copy_from_slice(entry.name);
    record[name_end..].fill(0);
    reply.advance(len);
    Some(())
}

/// The first record of READDIRPLUS, and those after it.
fn split_record(records: &mut [u8]) -> Option<(&mut [u8], &mut [u8])> {
    let dirent_at = size_of::<EntryOut>();
    let (dirent, _) = Dirent::read_from_prefix(records.get(dirent_at..)?).ok()?;
    let len = padded(dirent_at + size_of::<Dirent>() + dirent.namelen as usize);
    records.split_at_mut_checked(len)
}

/// A type as a record has it; 0 if it is not known.
fn type_bits(file_type: Option<FileType>) -> u32 {
    file_type.map_or(0, |file_type| u32::from(file_type.mode_bits() >> 12))
}
