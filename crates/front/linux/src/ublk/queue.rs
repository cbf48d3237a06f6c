//! A queue of requests, served by one thread.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;

use io_uring::opcode::UringCmd16;
use io_uring::types::Fixed;
use io_uring::{IoUring, cqueue};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use zerocopy::IntoBytes;

use super::abi::{
    COMMIT_AND_FETCH_REQ, Descriptor, FETCH_REQ, QUEUE_DEPTH_MAX, RequestCommand, contents_offset,
    op,
};
use super::{Disk, SECTOR};
use crate::Errno;

/// Index of the character device in the registered files of a ring.
const DEVICE: Fixed = Fixed(0);

/// Descriptors of requests, which the kernel writes.
struct Descriptors {
    start: NonNull<Descriptor>,
    count: u16,
}

impl Descriptors {
    /// Maps those of a queue.
    fn map(file: &File, queue: u16, count: u16) -> io::Result<Self> {
        let len = usize::from(count) * size_of::<Descriptor>();
        let offset = u64::from(queue) * QUEUE_DEPTH_MAX * size_of::<Descriptor>() as u64;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe {
            mmap(std::ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, offset)?
        };
        let start = NonNull::new(start.cast()).ok_or(Errno::INVAL)?;
        Ok(Self { start, count })
    }

    /// Returns the descriptor of a request that was fetched.
    ///
    /// # Panics
    /// If the queue has no such request.
    fn get(&self, tag: u16) -> Descriptor {
        assert!(tag < self.count, "a request of the queue");
        // SAFETY: it is within the mapping, and page-aligned memory is aligned for it. The kernel
        // does not change it between the completion and the answer, and each value is valid.
        unsafe { self.start.add(usize::from(tag)).read_volatile() }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        let len = usize::from(self.count) * size_of::<Descriptor>();
        // SAFETY: the mapping was created with this length, and nothing refers to it.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), len) };
    }
}

/// The requests of a queue. The thread that creates it must serve it.
pub(super) struct Queue<'f> {
    file: &'f File,
    number: u16,
    descriptors: Descriptors,
    ring: IoUring,
}

impl<'f> Queue<'f> {
    pub(super) fn new(file: &'f File, number: u16, depth: u16) -> io::Result<Self> {
        let ring = IoUring::builder().build(depth.into())?;
        ring.submitter().register_files(&[file.as_raw_fd()])?;
        Ok(Self { file, number, descriptors: Descriptors::map(file, number, depth)?, ring })
    }

    /// Fetches as many requests as the queue has room for. None is there before the device starts.
    pub(super) fn fetch(&mut self) -> io::Result<()> {
        for tag in 0..self.descriptors.count {
            self.push(FETCH_REQ, tag, 0)?;
        }
        self.ring.submit()?;
        match self.completion() {
            Some(failed) => Err(io::Error::from_raw_os_error(-failed.result())),
            None => Ok(()),
        }
    }

    fn push(&mut self, command: u32, tag: u16, result: i32) -> io::Result<()> {
        let args = RequestCommand { q_id: self.number, tag, result, addr: 0 };
        let mut area = [0; 16];
        area.copy_from_slice(args.as_bytes());
        let submission = UringCmd16::new(DEVICE, command).cmd(area).build().user_data(tag.into());
        // SAFETY: the command contains no address.
        unsafe { self.ring.submission().push(&submission) }.map_err(io::Error::other)
    }

    /// Performs requests until the kernel ends them. The device has `len` bytes, and a request at
    /// most `request_bytes`.
    pub(super) fn serve(mut self, disk: &dyn Disk, len: u64, request_bytes: u32) -> io::Result<()> {
        let mut buffer = vec![0; request_bytes as usize];
        let mut waiting = self.descriptors.count;
        while waiting > 0 {
            match self.ring.submit_and_wait(1) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            while let Some(completion) = self.completion() {
                if completion.result() < 0 {
                    // The kernel stops the device.
                    waiting -= 1;
                    continue;
                }
                let tag = completion.user_data() as u16;
                let done = self.perform(disk, tag, len, &mut buffer);
                let result = done.unwrap_or_else(|error| -error.raw_os_error());
                self.push(COMMIT_AND_FETCH_REQ, tag, result)?;
            }
        }
        Ok(())
    }

    fn completion(&mut self) -> Option<cqueue::Entry> {
        self.ring.completion().next()
    }

    /// Performs a request. Returns the number of bytes that were read or written.
    fn perform(
        &self,
        disk: &dyn Disk,
        tag: u16,
        len: u64,
        buffer: &mut [u8],
    ) -> Result<i32, Errno> {
        let request = self.descriptors.get(tag);
        if request.op_flags & op::MASK == op::FLUSH {
            // The other fields are undefined.
            return disk.flush().map(|()| 0);
        }
        let offset = request.start_sector.checked_mul(SECTOR).ok_or(Errno::IO)?;
        let count = u64::from(request.nr_sectors) * SECTOR;
        if offset.checked_add(count).is_none_or(|end| end > len) {
            return Err(Errno::IO);
        }
        let contents = contents_offset(self.number, tag);
        let errno = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        match request.op_flags & op::MASK {
            op::READ => {
                let data = buffer.get_mut(..count as usize).ok_or(Errno::INVAL)?;
                disk.read(offset, data)?;
                self.file.write_all_at(data, contents).map_err(errno)?;
                Ok(data.len() as i32)
            }
            op::WRITE => {
                let data = buffer.get_mut(..count as usize).ok_or(Errno::INVAL)?;
                self.file.read_exact_at(data, contents).map_err(errno)?;
                disk.write(offset, data)?;
                Ok(data.len() as i32)
            }
            op::DISCARD => disk.discard(offset, count).map(|()| 0),
            op::WRITE_ZEROES => disk.write_zeros(offset, count).map(|()| 0),
            _ => Err(Errno::OPNOTSUPP),
        }
    }
}
