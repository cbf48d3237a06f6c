//! The queues of a guest.

use std::io::{self, Read, Write};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use vhost::vhost_user::VhostUserVirtioFeatures;
use vhost::vhost_user::message::VhostUserProtocolFeatures;
use vhost_user_backend::{VhostUserBackend, VringMutex, VringT};
use virtio_queue::{DescriptorChain, QueueT};
use vm_memory::{GuestAddressSpace, GuestMemoryAtomic, GuestMemoryMmap};
use vmm_sys_util::epoll::EventSet;
use zerocopy::{FromZeros, IntoBytes};

use super::config::Config;
use super::request::{Exported, RequestBuffers, RequestHeader, Status};

/// Maximum number of descriptors in a queue.
pub(super) const QUEUE_SIZE: u16 = 1024;
/// Number of the event that ends the thread of a queue. Smaller ones are reserved by [`VhostUserBackend`].
pub(super) const STOP_EVENT: u64 = 0xfff0;

/// Features of the device (VIRTIO 1.2, 5.2.3 and 6).
mod feature {
    pub(super) const SEG_MAX: u64 = 1 << 2;
    pub(super) const READ_ONLY: u64 = 1 << 5;
    pub(super) const BLOCK_SIZE: u64 = 1 << 6;
    pub(super) const FLUSH: u64 = 1 << 9;
    pub(super) const TOPOLOGY: u64 = 1 << 10;
    pub(super) const SEVERAL_QUEUES: u64 = 1 << 12;
    pub(super) const DISCARD: u64 = 1 << 13;
    pub(super) const WRITE_ZEROES: u64 = 1 << 14;
    pub(super) const INDIRECT_DESCRIPTORS: u64 = 1 << 28;
    pub(super) const EVENT_INDEX: u64 = 1 << 29;
    pub(super) const VERSION_1: u64 = 1 << 32;
}

type Memory = GuestMemoryAtomic<GuestMemoryMmap>;

/// State of one connection. Each queue has a thread, which performs requests in their order. After an interruption, the
/// index of used descriptors therefore says which requests are done.
pub(super) struct Backend {
    exported: Arc<Exported>,
    memory: Memory,
    /// Buffers by queue.
    buffers: Vec<Mutex<Vec<u8>>>,
    is_stopping: AtomicBool,
}

impl Backend {
    pub(super) fn new(exported: Arc<Exported>, memory: Memory, queues: usize) -> Self {
        let buffers = (0..queues).map(|_| Mutex::default()).collect();
        Self { exported, memory, buffers, is_stopping: AtomicBool::new(false) }
    }

    /// Ends the threads after their current requests.
    pub(super) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    /// Performs all requests of a queue. Returns whether there was one.
    fn drain(&self, vring: &VringMutex, buffer: &mut Vec<u8>) -> bool {
        let mut any = false;
        while !self.is_stopping.load(Ordering::Relaxed) {
            // Held while the request is performed: a queue that is stopped has no unfinished requests.
            let mut state = vring.get_mut();
            let memory = self.memory.memory();
            let Some(chain) = state.get_queue_mut().pop_descriptor_chain(memory.clone()) else {
                break;
            };
            any = true;
            let head = chain.head_index();
            let written = self.answer(&memory, chain, buffer).unwrap_or(0);
            if state.add_used(head, written).is_err() {
                break;
            }
            if state.needs_notification().unwrap_or(true) && state.signal_used_queue().is_err() {
                break;
            }
        }
        any
    }

    /// Performs a request. Returns the number of bytes written to the guest's memory, or `None` without room for
    /// a status.
    fn answer<M>(
        &self,
        memory: &GuestMemoryMmap,
        chain: DescriptorChain<M>,
        buffer: &mut Vec<u8>,
    ) -> Option<u32>
    where
        M: Deref<Target = GuestMemoryMmap> + Clone,
    {
        let mut input = chain.clone().reader(memory).ok()?;
        let mut output = chain.writer(memory).ok()?;
        let output_len = output.available_bytes().checked_sub(1)?;
        let mut last = output.split_at(output_len).ok()?;
        let mut header = RequestHeader::new_zeroed();
        let done = input.read_exact(header.as_mut_bytes()).map_err(Status::from).and_then(|()| {
            let input_len = input.available_bytes();
            let contents =
                RequestBuffers { input: &mut input, input_len, output: &mut output, output_len };
            self.exported.perform(&header, contents, buffer)
        });
        let status = done.err().unwrap_or(Status::Ok);
        last.write_all(&[status as u8]).ok()?;
        u32::try_from(output.bytes_written() + 1).ok()
    }
}

impl VhostUserBackend for Backend {
    type Bitmap = ();
    type Vring = VringMutex;

    fn num_queues(&self) -> usize {
        self.buffers.len()
    }

    fn max_queue_size(&self) -> usize {
        QUEUE_SIZE.into()
    }

    fn features(&self) -> u64 {
        use feature::*;
        let always = SEG_MAX | BLOCK_SIZE | FLUSH | TOPOLOGY | SEVERAL_QUEUES;
        let queues = INDIRECT_DESCRIPTORS | EVENT_INDEX | VERSION_1;
        let changes = if self.exported.read_only { READ_ONLY } else { DISCARD | WRITE_ZEROES };
        always | queues | changes | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits()
    }

    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::RESET_DEVICE
    }

    fn set_event_idx(&self, _enabled: bool) {}

    fn get_config(&self, offset: u32, size: u32) -> Vec<u8> {
        let queues = self.buffers.len() as u16;
        let config = Config::new(self.exported.device.len(), queues, QUEUE_SIZE);
        let known = config.as_bytes().iter().copied().chain(std::iter::repeat(0));
        // The size of a message bounds both numbers.
        known.skip(offset as usize).take(size as usize).collect()
    }

    fn update_memory(&self, _memory: Memory) -> io::Result<()> {
        // It is the one that `new` received.
        Ok(())
    }

    fn queues_per_thread(&self) -> Vec<u64> {
        (0..self.buffers.len()).map(|queue| 1 << queue).collect()
    }

    fn handle_event(
        &self,
        event: u16,
        _events: EventSet,
        vrings: &[VringMutex],
        thread: usize,
    ) -> io::Result<()> {
        if u64::from(event) == STOP_EVENT {
            // The only way to end a thread without a descriptor that is never closed.
            return Err(io::Error::other("the connection has ended"));
        }
        let Some(vring) = vrings.get(usize::from(event)) else { return Ok(()) };
        let mut buffer = self.buffers[thread].lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            // A queue that is not set up has no memory for this flag.
            let _ = vring.disable_notification();
            let any = self.drain(vring, &mut buffer);
            // An invalid index of the guest also looks like more requests.
            if !(vring.enable_notification().unwrap_or(false) && any) {
                return Ok(());
            }
        }
    }
}
