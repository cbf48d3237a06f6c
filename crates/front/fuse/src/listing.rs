//! Directory listings, with or without the attributes of the entries.
//!
//! A listing continues after the cookie of its last record, so an entry that does not fit is omitted: the next request
//! begins with it.

use std::ops::ControlFlow;

use linux::abi::{Dirent, EntryOut, ReadIn, padded};
use linux::{Errno, Reply};
use vfs::{Cookie, DirEntry, FileType, Ino};
use zerocopy::{FromBytes, IntoBytes};

use crate::Adapter;

impl Adapter<'_> {
    /// Answers READDIR.
    pub(crate) fn readdir(
        &self,
        dir: Ino,
        args: &ReadIn,
        reply: &mut Reply<'_>,
    ) -> Result<(), Errno> {
        self.list(dir, args, 0, reply)
    }

    /// Answers READDIRPLUS. Names are collected first, because the file system must not be called while it lists; then
    /// the attributes of every inode are read. An unreadable inode gets no attributes: the kernel will look it up by
    /// name, and the caller gets the error then.
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

    /// Appends records with `head_len` zeros before each, as many as fit into the request.
    fn list(
        &self,
        dir: Ino,
        args: &ReadIn,
        head_len: usize,
        reply: &mut Reply<'_>,
    ) -> Result<(), Errno> {
        if args.offset == 0
            && let Some(observer) = self.observer
        {
            observer.listed(dir);
        }
        let size = args.size as usize;
        let mut is_full = false;
        let listed = self.fs.readdir(dir, Cookie(args.offset), &mut |entry| {
            is_full = put_record(reply, size, head_len, &entry).is_none();
            if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if let Err(error) = listed {
            let errno = self.failed(&error);
            // The entries before the error are returned; the next request gets the error again.
            return if reply.is_empty() { Err(errno) } else { Ok(()) };
        }
        if is_full && reply.is_empty() {
            // An empty answer would mean the end of the directory.
            return Err(Errno::INVAL);
        }
        if args.offset == 0 && !self.options.keep_directory_times {
            self.accessed(dir);
        }
        Ok(())
    }

    /// Completes a record of READDIRPLUS, and counts the look-up of the inode.
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

/// Appends a record. Returns `None`, and appends nothing, if it does not fit.
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

/// Splits off the first record of READDIRPLUS.
fn split_record(records: &mut [u8]) -> Option<(&mut [u8], &mut [u8])> {
    let dirent_at = size_of::<EntryOut>();
    let (dirent, _) = Dirent::read_from_prefix(records.get(dirent_at..)?).ok()?;
    let len = padded(dirent_at + size_of::<Dirent>() + dirent.namelen as usize);
    records.split_at_mut_checked(len)
}

/// Returns the type bits of a record; 0 if the type is unknown.
fn type_bits(file_type: Option<FileType>) -> u32 {
    file_type.map_or(0, |file_type| u32::from(file_type.mode_bits() >> 12))
}
