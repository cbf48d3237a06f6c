//! The contents of files: reading, writing, space, holes, copies, and what makes them durable.
//!
//! The kernel caches writes. What it writes back later (`WRITE_CACHE`) changes bytes and size alone: it
//! keeps size and times itself meanwhile, and sends the times with SETATTR. All other changes set the
//! times here.

mod access;
mod allocate;
mod copy;
mod privileges;
mod seek;

use fuse_device::abi::{InHeader, ReadIn, WRITE_CACHE, WRITE_KILL_SUIDGID, WriteIn, WriteOut};
use fuse_device::{Errno, Reply};
use rustix::fs::OFlags;
use vfs::{ChangePurpose, Error, Ino, SetAttributes};

use crate::{Adapter, clock, space};

impl Adapter<'_> {
    /// Reads straight into the answer.
    pub(crate) fn read(&self, ino: Ino, args: &ReadIn, reply: &mut Reply<'_>) -> Result<(), Errno> {
        let room = reply.room(args.size as usize)?;
        let len = self.result(self.fs.read(ino, args.offset, room))?;
        reply.advance(len);
        // The flags are those of the open file, with `O_NOATIME`.
        if len > 0 && args.flags & OFlags::NOATIME.bits() == 0 {
            self.accessed(ino);
        }
        Ok(())
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

    /// Makes an inode durable, and with it everything else that was done before.
    pub(crate) fn fsync(&self, ino: Ino) -> Result<(), Errno> {
        self.check_durable()?;
        self.fs.fsync(ino).map_err(|error| self.not_stored(&error))
    }

    /// Makes everything durable.
    pub(crate) fn syncfs(&self) -> Result<(), Errno> {
        self.check_durable()?;
        self.fs.sync().map_err(|error| self.not_stored(&error))
    }

    /// Something is asked to be durable. After damage it cannot become so: nothing is written any more.
    fn check_durable(&self) -> Result<(), Errno> {
        if self.has_stopped() { Err(Errno::IO) } else { Ok(()) }
    }

    /// The contents of a file have changed: now.
    fn contents_changed(&self, ino: Ino) -> Result<(), Errno> {
        let now = Some(clock::now());
        let purpose = ChangePurpose::Consequence;
        let times = SetAttributes { mtime: now, ctime: now, purpose, ..SetAttributes::default() };
        self.result(self.fs.set_attributes(ino, &times))
    }

    /// A result of the file system, its error as a number.
    pub(crate) fn result<T>(&self, result: Result<T, Error>) -> Result<T, Errno> {
        result.map_err(|error| self.failed(&error))
    }
}
