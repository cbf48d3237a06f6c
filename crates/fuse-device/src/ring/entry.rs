//! The memory that a request comes in and its answer goes out of, shared with the kernel.
//!
//! It belongs to one side at a time: to the kernel from [`Entry::push`] until the completion, which
//! [`Entry::completed`] is told of, and to this process otherwise. Only then it can be looked at, and only
//! then it is freed: a ring that ends before its completions leaves the memory behind.
#![allow(unsafe_code)]

use std::io;
use std::ptr::NonNull;

use io_uring::squeue::Entry128;
use io_uring::types::Fixed;
use io_uring::{SubmissionQueue, opcode::UringCmd80};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::Errno;
use crate::abi::{InHeader, OutHeader};

/// `FUSE_IO_URING_CMD_REGISTER`: here is an entry for requests.
const CMD_REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`: here is an answer, and the entry for the next request.
const CMD_COMMIT_AND_FETCH: u32 = 2;
/// Where the device is among the files of a ring.
const DEVICE: Fixed = Fixed(0);

/// Bytes of a page: what comes first of the memory is the header, in a page of its own.
const PAGE: usize = 4096;
/// Where the field `len` is in a submission (`struct io_uring_sqe`).
const SUBMISSION_LEN_OFFSET: usize = 24;
/// Alignment of a submission; a `u32` in it can be written at any multiple of 4.
const _: () = assert!(size_of::<Entry128>() == 128 && align_of::<Entry128>() >= 4);

/// What a request and its answer have beside their data. (`fuse_uring_req_header`)
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Header {
    /// `fuse_in_header` of the request, `fuse_out_header` of the answer.
    in_out: [u8; 128],
    /// The structure of the request.
    op_in: [u8; 128],
    entry: EntryInOut,
}

/// What the transport itself needs. (`fuse_uring_ent_in_out`)
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct EntryInOut {
    flags: u64,
    /// Tells requests apart; it comes back with the answer.
    commit_id: u64,
    /// Bytes that follow the structure of the request, or those of the answer.
    payload_sz: u32,
    padding: u32,
    reserved: u64,
}

/// What a submission says. (`fuse_uring_cmd_req`)
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Command {
    flags: u64,
    commit_id: u64,
    qid: u16,
    padding: [u8; 6],
}

const _: () = assert!(size_of::<Header>() == 288 && size_of::<Command>() == 24);

/// A place for one request at a time.
pub(super) struct Entry {
    queue: u16,
    /// The header's page, then the payload. Made by `Box::leak`; starts before the first page.
    words: NonNull<[u64]>,
    /// Words before the first page.
    skipped: usize,
    /// Addresses and lengths of header and payload (`struct iovec`), which the kernel reads when the
    /// entry is registered.
    parts: Box<[[usize; 2]; 2]>,
    is_registered: bool,
    is_with_kernel: bool,
}

// SAFETY: the memory belongs to the entry alone, or to the kernel, which does not mind who gave it.
unsafe impl Send for Entry {}

impl Entry {
    /// One of a queue, with room for requests and answers whose payload has up to `len` bytes.
    pub(super) fn new(queue: u16, len: usize) -> Self {
        let len = len.next_multiple_of(PAGE);
        // From the allocator's zeros, so that what is never used takes no memory.
        let words = Box::leak(vec![0_u64; (2 * PAGE + len) / size_of::<u64>()].into_boxed_slice());
        let skipped = words.as_ptr().align_offset(PAGE);
        let words = NonNull::from(words);
        let start = words.cast::<u64>().as_ptr().expose_provenance() + skipped * size_of::<u64>();
        let parts = Box::new([[start, PAGE], [start + PAGE, len]]);
        Self { queue, words, skipped, parts, is_registered: false, is_with_kernel: false }
    }

    /// Gives it to the kernel when the ring is submitted next: the first time for requests, then with
    /// the answer that was put in. The completion will have the number `index`.
    pub(super) fn push(
        &mut self,
        submissions: &mut SubmissionQueue<'_, Entry128>,
        index: u64,
    ) -> io::Result<()> {
        let command = if self.is_registered { CMD_COMMIT_AND_FETCH } else { CMD_REGISTER };
        let commit_id = self.header().entry.commit_id;
        let args = Command { flags: 0, commit_id, qid: self.queue, padding: [0; 6] };
        let mut area = [0; 80];
        area[..size_of::<Command>()].copy_from_slice(args.as_bytes());
        let mut submission = UringCmd80::new(DEVICE, command)
            .cmd(area)
            .addr(Some((&raw const *self.parts).expose_provenance() as u64))
            .build()
            .user_data(index);
        let len = (&raw mut submission).cast::<u8>().wrapping_add(SUBMISSION_LEN_OFFSET);
        // SAFETY: inside of the submission, aligned, and a number there, which the crate lets nobody set.
        unsafe { len.cast::<u32>().write(self.parts.len() as u32) };
        // SAFETY: what `addr` names and what that names is not touched or freed until the completion:
        // `is_with_kernel` sees to it.
        unsafe { submissions.push(&submission) }.map_err(io::Error::other)?;
        self.is_with_kernel = true;
        Ok(())
    }

    /// Takes it back: `result` is that of its completion. If it is well, a request is in it.
    pub(super) fn completed(&mut self, result: i32) -> Result<(), Errno> {
        self.is_with_kernel = false;
        if result < 0 {
            return Err(Errno::from_raw_os_error(-result));
        }
        self.is_registered = true;
        Ok(())
    }

    /// Whether the kernel ever took it.
    pub(super) fn is_registered(&self) -> bool {
        self.is_registered
    }

    /// The header of the request.
    pub(super) fn in_header(&mut self) -> InHeader {
        let (header, _) = InHeader::read_from_prefix(&self.header().in_out).expect("128 bytes");
        header
    }

    /// Bytes of the payload that belong to the request.
    pub(super) fn payload_len(&mut self) -> usize {
        let [_, [_, room]] = *self.parts;
        room.min(self.header().entry.payload_sz as usize)
    }

    /// The structure of the request, with what room there is for others, and all of the payload.
    pub(super) fn parts(&mut self) -> (&[u8], &mut [u8]) {
        let (header, payload) = self.memory();
        (&header.op_in, payload)
    }

    /// Puts the header of the answer in; `payload_len` bytes of the payload belong to it.
    pub(super) fn set_answer(&mut self, out: OutHeader, payload_len: usize) {
        let header = self.header();
        out.write_to_prefix(&mut header.in_out).expect("128 bytes");
        // No longer than the payload, which has at most a few MiB.
        header.entry.payload_sz = payload_len as u32;
    }

    fn header(&mut self) -> &mut Header {
        self.memory().0
    }

    /// # Panics
    /// If it is with the kernel.
    fn memory(&mut self) -> (&mut Header, &mut [u8]) {
        assert!(!self.is_with_kernel, "what the kernel has is not looked at");
        // SAFETY: this is the leaked slice, and nobody else has it: not the kernel, and of this process
        // only who has this entry.
        let words = unsafe { self.words.as_mut() };
        let [_, [_, len]] = *self.parts;
        let (header, rest) =
            words.as_mut_bytes()[self.skipped * size_of::<u64>()..].split_at_mut(PAGE);
        let (header, _) = Header::mut_from_prefix(header).expect("a page, aligned");
        (header, &mut rest[..len])
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if self.is_with_kernel {
            // What the kernel may still write to stays.
            Box::leak(std::mem::take(&mut self.parts));
        } else {
            // SAFETY: this is what was leaked, and nobody else has it.
            drop(unsafe { Box::from_raw(self.words.as_ptr()) });
        }
    }
}
