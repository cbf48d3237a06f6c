//! Memory of a request and its reply, shared with the kernel.
//!
//! It belongs to the kernel from [`Entry::push`] until [`RingEntry::completed`], which the caller calls
//! on completion, and to this process otherwise. Only then may it be accessed or freed. If a ring
//! is dropped before its completions arrive, the memory is leaked.
#![allow(unsafe_code)]

use std::io;
use std::ptr::NonNull;

use io_uring::squeue::Entry128;
use io_uring::types::Fixed;
use io_uring::{SubmissionQueue, opcode::UringCmd80};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::Errno;
use crate::abi::{InHeader, OutHeader};

/// `FUSE_IO_URING_CMD_REGISTER`: registers an entry for requests.
const CMD_REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`: submits a reply and fetches the next request into its
/// entry.
const CMD_COMMIT_AND_FETCH: u32 = 2;
/// Index of the device in the registered files of a ring.
const DEVICE: Fixed = Fixed(0);

/// Page size in bytes. The header has the first page to itself.
const PAGE: usize = 4096;
/// Offset of the field `len` in a submission (`struct io_uring_sqe`).
const SUBMISSION_LEN_OFFSET: usize = 24;
/// A `u32` in a submission can be written at any multiple of 4.
const _: () = assert!(size_of::<Entry128>() == 128 && align_of::<Entry128>() >= 4);

/// Headers of a request and its reply, without data. (`fuse_uring_req_header`)
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RingHeader {
    /// `fuse_in_header` of the request, `fuse_out_header` of the reply.
    in_out: [u8; 128],
    /// Structure of the request.
    op_in: [u8; 128],
    entry: EntryInOut,
}

/// Fields of the transport. (`fuse_uring_ent_in_out`)
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct EntryInOut {
    flags: u64,
    /// Identifies the request; the reply returns it.
    commit_id: u64,
    /// Length in bytes of the request's payload, or of the reply.
    payload_sz: u32,
    padding: u32,
    reserved: u64,
}

/// Command of a submission. (`fuse_uring_cmd_req`)
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Command {
    flags: u64,
    commit_id: u64,
    qid: u16,
    padding: [u8; 6],
}

const _: () = assert!(size_of::<RingHeader>() == 288 && size_of::<Command>() == 24);

/// Memory for one request at a time.
pub(super) struct RingEntry {
    queue: u16,
    /// Header page, then payload. Created by `Box::leak`; starts before the first page.
    words: NonNull<[u64]>,
    /// Number of words before the first page.
    skipped: usize,
    /// Addresses and lengths of header and payload (`struct iovec`). The kernel reads them when the
    /// entry is registered.
    parts: Box<[[usize; 2]; 2]>,
    is_registered: bool,
    is_with_kernel: bool,
}

// SAFETY: the memory belongs to the entry alone or to the kernel, and neither depends on the
// thread.
unsafe impl Send for RingEntry {}

impl RingEntry {
    /// Creates an entry of a queue for requests and replies with payloads of up to `len` bytes.
    pub(super) fn new(queue: u16, len: usize) -> Self {
        let len = len.next_multiple_of(PAGE);
        // Zeroed by the allocator, so that unused parts take no memory.
        let words = Box::leak(vec![0_u64; (2 * PAGE + len) / size_of::<u64>()].into_boxed_slice());
        let skipped = words.as_ptr().align_offset(PAGE);
        let words = NonNull::from(words);
        let start = words.cast::<u64>().as_ptr().expose_provenance() + skipped * size_of::<u64>();
        let parts = Box::new([[start, PAGE], [start + PAGE, len]]);
        Self { queue, words, skipped, parts, is_registered: false, is_with_kernel: false }
    }

    /// Queues the entry for the next submission of the ring: the first time to register it, then
    /// with its reply. The completion has the user data `index`.
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
        // SAFETY: the address is within the submission and aligned. Every `u32` is valid there. The
        // crate has no setter for this field.
        unsafe { len.cast::<u32>().write(self.parts.len() as u32) };
        // SAFETY: `addr` and the memory it refers to are not accessed or freed until the
        // completion: `is_with_kernel` ensures this.
        unsafe { submissions.push(&submission) }.map_err(io::Error::other)?;
        self.is_with_kernel = true;
        Ok(())
    }

    /// Takes the entry back after its completion with `result`. On success it contains a request.
    pub(super) fn completed(&mut self, result: i32) -> Result<(), Errno> {
        self.is_with_kernel = false;
        if result < 0 {
            return Err(Errno::from_raw_os_error(-result));
        }
        self.is_registered = true;
        Ok(())
    }

    /// Returns whether the kernel has accepted the registration.
    pub(super) fn is_registered(&self) -> bool {
        self.is_registered
    }

    /// Returns the header of the request.
    pub(super) fn in_header(&mut self) -> InHeader {
        let (header, _) = InHeader::read_from_prefix(&self.header().in_out).expect("128 bytes");
        header
    }

    /// Returns the length of the request's payload in bytes.
    pub(super) fn payload_len(&mut self) -> usize {
        let [_, [_, room]] = *self.parts;
        room.min(self.header().entry.payload_sz as usize)
    }

    /// Returns the space of the request's structure, which may be longer than the structure, and
    /// the whole payload.
    pub(super) fn parts(&mut self) -> (&[u8], &mut [u8]) {
        let (header, payload) = self.memory();
        (&header.op_in, payload)
    }

    /// Stores the header of the reply, whose data is the first `payload_len` bytes of the payload.
    pub(super) fn set_answer(&mut self, out: OutHeader, payload_len: usize) {
        let header = self.header();
        out.write_to_prefix(&mut header.in_out).expect("128 bytes");
        // At most the size of the payload area, which is a few MiB.
        header.entry.payload_sz = payload_len as u32;
    }

    fn header(&mut self) -> &mut RingHeader {
        self.memory().0
    }

    /// # Panics
    /// If the entry belongs to the kernel.
    fn memory(&mut self) -> (&mut RingHeader, &mut [u8]) {
        assert!(!self.is_with_kernel, "the entry belongs to the kernel");
        // SAFETY: this is the leaked slice. The kernel does not use it now, and `self` is borrowed
        // exclusively.
        let words = unsafe { self.words.as_mut() };
        let [_, [_, len]] = *self.parts;
        let (header, rest) =
            words.as_mut_bytes()[self.skipped * size_of::<u64>()..].split_at_mut(PAGE);
        let (header, _) = RingHeader::mut_from_prefix(header).expect("page-aligned memory");
        (header, &mut rest[..len])
    }
}

impl Drop for RingEntry {
    fn drop(&mut self) {
        if self.is_with_kernel {
            // The kernel may still write to this memory, so leak it.
            Box::leak(std::mem::take(&mut self.parts));
        } else {
            // SAFETY: this is the leaked slice, and nothing else refers to it.
            drop(unsafe { Box::from_raw(self.words.as_ptr()) });
        }
    }
}
