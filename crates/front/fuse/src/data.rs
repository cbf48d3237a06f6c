//! File contents: reads, writes, allocation, holes, copies and durability.
//!
//! The kernel caches writes. Its write-back (`WRITE_CACHE`) changes contents and size only; the kernel maintains size
//! and times in its cache and sends the times with SETATTR. All other changes set the times here.

mod access;
mod allocate;
mod bmap;
mod copy;
mod privileges;
mod seek;
mod synchronous;

use linux::abi::{
    FSYNC_FDATASYNC, FsyncIn, InHeader, ReadIn, WRITE_CACHE, WRITE_KILL_SUIDGID, WriteIn, WriteOut,
};
use linux::{Errno, Reply};
use rustix::fs::OFlags;
use vfs::{ChangePurpose, Error, Ino, SetAttributes};

use crate::{Adapter, clock, space};

/// Minimum size of a read for which splicing from the image is cheaper than copying.
const IN_PLACE_FROM: u32 = 16 << 10;

impl Adapter<'_> {
    /// Reads directly into the answer, or lets the kernel splice from the image.
    pub(crate) fn read(&self, ino: Ino, args: &ReadIn, reply: &mut Reply<'_>) -> Result<(), Errno> {
        let len = if self.send_in_place(ino, args, reply)? {
            // At least one byte.
            1
        } else {
            let room = reply.room(args.size as usize)?;
            let len = self.result(self.fs.read(ino, args.offset, room))?;
            reply.advance(len);
            if let Some(observer) = self.observer {
                observer.read(args.offset, len as u64);
            }
            len
        };
        // The flags are those of the open file, including `O_NOATIME`.
        if len > 0 && args.flags & OFlags::NOATIME.bits() == 0 {
            self.accessed(ino);
        }
        Ok(())
    }

    /// Answers a large read with file ranges. Returns whether that was possible.
    fn send_in_place(&self, ino: Ino, args: &ReadIn, reply: &mut Reply<'_>) -> Result<bool, Errno> {
        if args.size < IN_PLACE_FROM || !reply.sends_files() {
            return Ok(false);
        }
        let mut is_sent = false;
        // Runs while the file is locked: freed blocks could otherwise become another file's before the transfer.
        let found = self.fs.read_in_place(ino, args.offset, args.size.into(), &mut |parts| {
            is_sent = reply.send_files(parts.iter().map(|part| (part.file, part.offset, part.len)));
        });
        self.result(found)?;
        Ok(is_sent)
    }

    /// Writes all of `data`.
    pub(crate) fn write(
        &self,
        header: &InHeader,
        ino: Ino,
        args: &WriteIn,
        data: &[u8],
        reply: &mut Reply<'_>,
    ) -> Result<(), Errno> {
        self.check_writable()?;
        let is_written_back = args.write_flags & WRITE_CACHE != 0;
        if args.write_flags & WRITE_KILL_SUIDGID != 0 {
            self.kill_set_id(header, ino)?;
        }
        if !is_written_back {
            self.kill_capabilities(ino)?;
        }
        let written = if is_written_back {
            self.space.check(ino, args.offset)?;
            self.write_back(ino, args.offset, data)
        } else {
            self.fs.write(ino, args.offset, data, Some(clock::now()))
        };
        if is_written_back && matches!(written, Err(Error::NoSpace)) {
            self.space.ran_out(ino, args.offset, space::free_bytes(self.fs));
        }
        written.map_err(|error| self.not_stored(&error))?;
        self.space.stored(ino, args.offset, data.len() as u64);
        reply.put(&WriteOut { size: data.len() as u32, padding: 0 })
    }

    /// Makes an inode durable, together with all earlier changes. Times are included only in a full sync.
    pub(crate) fn fsync(&self, ino: Ino, args: &FsyncIn) -> Result<(), Errno> {
        self.check_durable()?;
        let is_for_data = args.fsync_flags & FSYNC_FDATASYNC != 0;
        let done = if is_for_data { self.fs.fdatasync(ino) } else { self.fs.fsync(ino) };
        done.map_err(|error| self.not_stored(&error))
    }

    /// Makes everything durable.
    pub(crate) fn syncfs(&self) -> Result<(), Errno> {
        self.check_durable()?;
        self.fs.sync().map_err(|error| self.not_stored(&error))
    }

    /// Checks that changes can still become durable. After damage nothing is written any more.
    fn check_durable(&self) -> Result<(), Errno> {
        if self.has_stopped() { Err(Errno::IO) } else { Ok(()) }
    }

    /// Sets the times of a change of contents.
    fn contents_changed(&self, ino: Ino) -> Result<(), Errno> {
        let now = Some(clock::now());
        let purpose = ChangePurpose::Consequence;
        let times = SetAttributes { mtime: now, ctime: now, purpose, ..SetAttributes::default() };
        self.result(self.fs.set_attributes(ino, &times))
    }

    /// Converts an error of the file system to an errno.
    pub(crate) fn result<T>(&self, result: Result<T, Error>) -> Result<T, Errno> {
        result.map_err(|error| self.failed(&error))
    }
}
