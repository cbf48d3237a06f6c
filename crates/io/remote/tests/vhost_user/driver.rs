//! A front end with a driver for one queue, which can also send invalid requests.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserProtocolFeatures};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};
use vmm_sys_util::eventfd::EventFd;

/// Size of the guest's memory.
const MEMORY_BYTES: usize = 16 << 20;
/// Number of descriptors of a queue.
pub(crate) const QUEUE_SIZE: u16 = 64;
/// Addresses of the first queue; the others follow.
const TABLE: u64 = 0x1000;
const AVAILABLE: u64 = 0x2000;
pub(crate) const USED: u64 = 0x3000;
pub(crate) const QUEUE_STEP: u64 = 0x4000;
/// Start of the memory for requests.
pub(crate) const FREE: u64 = 1 << 20;

/// Flags of a descriptor.
pub(crate) const NEXT: u16 = 1;
pub(crate) const WRITE: u16 = 2;
pub(crate) const INDIRECT: u16 = 4;

/// A buffer in the guest's memory: address, length, flags, and index of the next.
pub(crate) type Descriptor = (u64, u32, u16, u16);

pub(crate) struct Driver {
    pub(crate) memory: GuestMemoryMmap,
    pub(crate) features: u64,
    frontend: Frontend,
    queues: Vec<Queue>,
}

struct Queue {
    kick: EventFd,
    call: EventFd,
    available: u16,
}

impl Driver {
    /// Connects, and starts queues that continue after the given number of requests.
    pub(crate) fn connect(socket: &Path, starts: &[u16]) -> Self {
        let file = File::from(memfd_create("guest", MemfdFlags::CLOEXEC).unwrap());
        ftruncate(&file, MEMORY_BYTES as u64).unwrap();
        let region = (GuestAddress(0), MEMORY_BYTES, Some(FileOffset::new(file, 0)));
        let memory = GuestMemoryMmap::from_ranges_with_files([region]).unwrap();
        Self::with_memory(socket, memory, starts)
    }

    /// Connects with the memory of an earlier driver.
    pub(crate) fn with_memory(socket: &Path, memory: GuestMemoryMmap, starts: &[u16]) -> Self {
        let mut frontend = Frontend::connect(socket, starts.len() as u64).unwrap();
        frontend.set_owner().unwrap();
        // Without the index of events: each answer gives an interrupt.
        let features = frontend.get_features().unwrap() & !(1 << 29);
        frontend.set_features(features).unwrap();
        let wanted = VhostUserProtocolFeatures::CONFIG | VhostUserProtocolFeatures::MQ;
        let offered = frontend.get_protocol_features().unwrap();
        assert!(offered.contains(wanted));
        frontend.set_protocol_features(wanted).unwrap();
        let region = memory.find_region(GuestAddress(0)).unwrap();
        let region = VhostUserMemoryRegionInfo::from_guest_region(region).unwrap();
        frontend.set_mem_table(&[region]).unwrap();
        let host = |at: u64| memory.get_host_address(GuestAddress(at)).unwrap() as u64;
        let mut queues = Vec::new();
        for (number, &start) in starts.iter().enumerate() {
            let offset = number as u64 * QUEUE_STEP;
            let (kick, call) = (EventFd::new(0).unwrap(), EventFd::new(0).unwrap());
            frontend.set_vring_num(number, QUEUE_SIZE).unwrap();
            let addresses = VringConfigData {
                queue_max_size: QUEUE_SIZE,
                queue_size: QUEUE_SIZE,
                flags: 0,
                desc_table_addr: host(TABLE + offset),
                used_ring_addr: host(USED + offset),
                avail_ring_addr: host(AVAILABLE + offset),
                log_addr: None,
            };
            frontend.set_vring_addr(number, &addresses).unwrap();
            frontend.set_vring_base(number, start).unwrap();
            frontend.set_vring_call(number, &call).unwrap();
            frontend.set_vring_kick(number, &kick).unwrap();
            frontend.set_vring_enable(number, true).unwrap();
            queues.push(Queue { kick, call, available: start });
        }
        Self { memory, features, frontend, queues }
    }

    /// Returns the device's configuration.
    pub(crate) fn config(&mut self) -> Vec<u8> {
        let flags = VhostUserConfigFlags::WRITABLE;
        self.frontend.get_config(0, 60, flags, &[0; 60]).unwrap().1
    }

    /// Stops a queue. Returns the number of requests that it has taken, modulo 2^16.
    pub(crate) fn stop(&mut self, queue: usize) -> u16 {
        self.frontend.get_vring_base(queue).unwrap() as u16
    }

    /// Writes descriptors to the table of a queue.
    pub(crate) fn describe(&self, queue: usize, descriptors: &[Descriptor]) {
        for (index, descriptor) in descriptors.iter().enumerate() {
            let at = TABLE + queue as u64 * QUEUE_STEP + index as u64 * 16;
            self.store(at, *descriptor);
        }
    }

    /// Writes a descriptor to memory.
    pub(crate) fn store(&self, at: u64, (address, len, flags, next): Descriptor) {
        let mut bytes = Vec::new();
        bytes.extend(address.to_le_bytes());
        bytes.extend(len.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend(next.to_le_bytes());
        self.memory.write_slice(&bytes, GuestAddress(at)).unwrap();
    }

    /// Makes the chain that starts at a descriptor available, without telling the device.
    pub(crate) fn offer(&mut self, queue: usize, head: u16) {
        let ring = AVAILABLE + queue as u64 * QUEUE_STEP;
        let state = &mut self.queues[queue];
        let slot = ring + 4 + u64::from(state.available % QUEUE_SIZE) * 2;
        self.memory.write_obj(head.to_le(), GuestAddress(slot)).unwrap();
        state.available = state.available.wrapping_add(1);
        self.set_available(queue, self.queues[queue].available);
    }

    /// Sets the index of the ring of available chains.
    pub(crate) fn set_available(&self, queue: usize, index: u16) {
        let ring = AVAILABLE + queue as u64 * QUEUE_STEP;
        self.memory.write_obj(index.to_le(), GuestAddress(ring + 2)).unwrap();
    }

    /// Tells the device that there are requests.
    pub(crate) fn kick(&self, queue: usize) {
        self.queues[queue].kick.write(1).unwrap();
    }

    /// Returns the number of answered requests, modulo 2^16.
    pub(crate) fn used(&self, queue: usize) -> u16 {
        let at = USED + queue as u64 * QUEUE_STEP + 2;
        u16::from_le(self.memory.read_obj(GuestAddress(at)).unwrap())
    }

    /// Waits until all offered requests are answered.
    pub(crate) fn wait(&self, queue: usize) {
        let begun = Instant::now();
        while self.used(queue) != self.queues[queue].available {
            assert!(begun.elapsed() < Duration::from_secs(60), "queue {queue} does not answer");
            std::thread::sleep(Duration::from_millis(1));
        }
        // Without a notification, the driver of a kernel would wait for ever.
        self.call(queue).read().unwrap();
    }

    /// Returns the counter of notifications by the device.
    pub(crate) fn call(&self, queue: usize) -> &EventFd {
        &self.queues[queue].call
    }

    /// Performs a valid request, whose header, contents and status are at `at`. Returns its status.
    pub(crate) fn request(
        &mut self,
        queue: usize,
        (kind, sector): (u32, u64),
        at: u64,
        (input, output): (&[u8], &mut [u8]),
    ) -> u8 {
        let mut header = kind.to_le_bytes().to_vec();
        header.extend([0; 4]);
        header.extend(sector.to_le_bytes());
        let (contents, status) = (at + 16, at + 16 + input.len() as u64 + output.len() as u64);
        self.memory.write_slice(&header, GuestAddress(at)).unwrap();
        self.memory.write_slice(input, GuestAddress(contents)).unwrap();
        self.memory.write_slice(&[0xff], GuestAddress(status)).unwrap();
        let (len, flags) = match input {
            [] => (output.len() as u32, WRITE),
            _ => (input.len() as u32, 0),
        };
        let middle = (contents, len, flags | NEXT, 2);
        let chain = match len {
            0 => vec![(at, 16, NEXT, 1), (status, 1, WRITE, 0)],
            _ => vec![(at, 16, NEXT, 1), middle, (status, 1, WRITE, 0)],
        };
        self.describe(queue, &chain);
        self.offer(queue, 0);
        self.kick(queue);
        self.wait(queue);
        self.memory.read_slice(output, GuestAddress(contents)).unwrap();
        self.memory.read_obj(GuestAddress(status)).unwrap()
    }
}
