//! Replies with data from files: the kernel splices the data, which is never copied into this
//! process.
//!
//! A pipe contains the reply header, followed by references to pages of the files. [`Pipe::send`]
//! passes it to the device, which copies the pages before the call returns. The caller must keep
//! the files' data unchanged until then.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::param::page_size;
use rustix::pipe::{
    PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, splice,
};
use zerocopy::IntoBytes;

use crate::abi::OutHeader;

/// Pages of a pipe that are not available for data. The header takes one, and each piece that
/// starts within a page needs one more.
const BESIDES_DATA: u64 = 6;

/// Minimum data pages for which pipes are used. Requests are not made smaller than this because of
/// pipes.
const PAGES_MIN: u64 = 128;

/// A pipe for one reply. Empty between replies.
#[derive(Debug)]
pub(crate) struct Pipe {
    reads: OwnedFd,
    writes: OwnedFd,
    /// Capacity in whole or partial pages.
    pages_max: u64,
}

impl Pipe {
    /// Creates a pipe for replies of `len_max` bytes, or a smaller one if the user's limit requires
    /// it.
    ///
    /// # Errors
    /// If no pipe can be created.
    pub(crate) fn new(len_max: usize) -> io::Result<Self> {
        let (reads, writes) = pipe_with(PipeFlags::CLOEXEC)?;
        let page = page_size();
        // One page for the header, and one more for data that starts within a page.
        let wanted = len_max.next_multiple_of(page) + 2 * page;
        let size = fcntl_setpipe_size(&writes, wanted)
            .or_else(|_| fcntl_setpipe_size(&writes, wanted.next_power_of_two() / 2))
            .or_else(|_| fcntl_getpipe_size(&writes))?;
        Ok(Self { reads, writes, pages_max: (size / page) as u64 })
    }

    /// Returns the number of data pages, for at most `len_max` bytes, that always fit a pipe of
    /// this user, at any alignment. Requests should not be larger. Returns `None` if pipes are so
    /// small that copying is better.
    pub(crate) fn pages_for_data(len_max: usize) -> Option<u16> {
        let pages_max = Self::new(len_max).ok()?.pages_max.saturating_sub(BESIDES_DATA);
        (pages_max >= PAGES_MIN).then(|| u16::try_from(pages_max).unwrap_or(u16::MAX))
    }

    /// Returns whether a reply with these parts fits.
    pub(crate) fn fits<'f>(&self, parts: impl Iterator<Item = (&'f File, u64, u64)>) -> bool {
        let page = page_size() as u64;
        let pages =
            parts.map(|(_, offset, len)| (offset % page).saturating_add(len).div_ceil(page));
        pages.fold(1, u64::saturating_add) <= self.pages_max
    }

    /// Sends a reply: the header, then these parts of files (first byte, length). The parts must
    /// fit.
    ///
    /// # Errors
    /// If a file is too short or cannot be read, or the device rejects the reply. The pipe must not
    /// be used again after an error.
    pub(crate) fn send<'f>(
        &self,
        device: impl AsFd,
        header: &OutHeader,
        parts: impl Iterator<Item = (&'f File, u64, u64)>,
    ) -> Result<(), Errno> {
        if rustix::io::write(&self.writes, header.as_bytes())? != size_of::<OutHeader>() {
            return Err(Errno::IO);
        }
        for (file, offset, len) in parts {
            self.take(file, offset, len)?;
        }
        let len = header.len as usize;
        let none = SpliceFlags::empty();
        let passed =
            rustix::io::retry_on_intr(|| splice(&self.reads, None, &device, None, len, none))?;
        if passed == len { Ok(()) } else { Err(Errno::IO) }
    }

    fn take(&self, file: &File, mut offset: u64, len: u64) -> Result<(), Errno> {
        let end = offset + len;
        while offset < end {
            let left = usize::try_from(end - offset).map_err(|_| Errno::INVAL)?;
            // splice advances `offset`. It must not wait for a reader of the pipe, because this
            // thread is the reader.
            let taken = rustix::io::retry_on_intr(|| {
                let now = SpliceFlags::NONBLOCK;
                splice(file, Some(&mut offset), &self.writes, None, left, now)
            })?;
            if taken == 0 {
                return Err(Errno::IO);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Seek};
    use std::os::unix::fs::FileExt;

    use zerocopy::IntoBytes;

    use super::Pipe;
    use crate::abi::OutHeader;

    fn file(bytes: &[u8]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file
    }

    fn header(len: usize) -> OutHeader {
        OutHeader { len: (size_of::<OutHeader>() + len) as u32, error: 0, unique: 9 }
    }

    #[test]
    fn an_answer_is_the_header_and_the_parts_in_order() {
        let (one, other) = (file(&[1; 20_000]), file(&[2; 20_000]));
        let parts = [(&one, 100, 9000), (&other, 4095, 2), (&one, 0, 20_000)];
        let pipe = Pipe::new(1 << 20).unwrap();
        assert!(pipe.fits(parts.into_iter()));
        for _ in 0..100 {
            let mut device = tempfile::tempfile().unwrap();
            let header = header(29_002);
            pipe.send(&device, &header, parts.into_iter()).unwrap();
            device.rewind().unwrap();
            let mut found = Vec::new();
            device.read_to_end(&mut found).unwrap();
            assert_eq!(found[..16], *header.as_bytes());
            assert!(found[16..9016].iter().all(|&byte| byte == 1));
            assert_eq!(found[9016..9018], [2, 2]);
            assert!(found[9018..].iter().all(|&byte| byte == 1));
            assert_eq!(found.len(), 29_018);
        }
    }

    #[test]
    fn bytes_that_a_file_does_not_have_are_an_error() {
        let (short, device) = (file(&[1; 5000]), tempfile::tempfile().unwrap());
        let parts = [(&short, 0, 5000), (&short, 4096, 905)];
        let sent = Pipe::new(1 << 20).unwrap().send(&device, &header(5905), parts.into_iter());
        sent.unwrap_err();
        assert_eq!(device.metadata().unwrap().len(), 0);
    }

    #[test]
    fn capacity_is_known_before_a_write() {
        let pipe = Pipe::new(8 << 10).unwrap();
        let some = file(&[]);
        let fits = |len| pipe.fits([(&some, 1, len)].into_iter());
        assert!(fits(1) && fits(8 << 10));
        assert!(!fits(pipe.pages_max * 4096) && !fits(u64::MAX));
        // Each part takes its own pages.
        let parts = |count| (0..count).map(|at| (&some, at * 4096, 1));
        assert!(pipe.fits(parts(pipe.pages_max - 1)));
        assert!(!pipe.fits(parts(pipe.pages_max)));
    }

    #[test]
    fn writes_beyond_the_capacity_fail_without_waiting() {
        let pipe = Pipe::new(8 << 10).unwrap();
        let len = (pipe.pages_max as usize + 1) * 4096;
        let (long, device) = (file(&vec![1; len]), tempfile::tempfile().unwrap());
        let parts = [(&long, 0, len as u64)].into_iter();
        pipe.send(&device, &header(len), parts).unwrap_err();
    }
}
