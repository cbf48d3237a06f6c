//! Client of vhost-user-blk, with the driver of the tests and one queue.

use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Instant;

use vm_memory::{Bytes, GuestAddress};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};

use crate::driver::{Driver, FREE, NEXT, QUEUE_SIZE, USED, WRITE};
use crate::{Client, REQUEST_BYTES};

/// Addresses of the contents of requests. Headers and states are at [`FREE`].
const CONTENTS: u64 = 2 << 20;
/// Distance of headers in bytes.
const HEADER_STEP: u64 = 64;
/// Descriptors of a request: header, contents, status.
const CHAIN: u16 = 3;

pub(crate) struct VhostClient {
    driver: Driver,
    len: u64,
    random: fastrand::Rng,
    /// Number of answers taken, modulo 2^16.
    taken: u16,
    /// Waits for notifications. A server may have made their counter non-blocking.
    notified: Epoll,
}

impl VhostClient {
    pub(crate) fn connect(socket: &Path) -> Self {
        let mut driver = Driver::connect(socket, &[0]);
        let config = driver.config();
        let sectors = u64::from_le_bytes(config[..8].try_into().expect("eight bytes"));
        let notified = Epoll::new().expect("epoll");
        let event = EpollEvent::new(EventSet::IN, 0);
        let call = driver.call(0).as_raw_fd();
        notified.ctl(ControlOperation::Add, call, event).expect("epoll");
        let random = fastrand::Rng::with_seed(1);
        Self { driver, len: sectors * 512, random, taken: 0, notified }
    }

    /// Waits for a notification.
    fn wait(&self) {
        let mut events = [EpollEvent::default()];
        self.notified.wait(-1, &mut events).expect("epoll");
        self.driver.call(0).read().expect("a counter");
    }

    fn header(request: u16) -> u64 {
        FREE + u64::from(request) * HEADER_STEP
    }

    /// Writes the descriptors of `depth` requests.
    fn describe(&self, writes: bool, depth: u16) {
        let flags = if writes { NEXT } else { NEXT | WRITE };
        let chains = (0..depth).flat_map(|request| {
            let (header, head) = (Self::header(request), request * CHAIN);
            let contents = CONTENTS + u64::from(request) * REQUEST_BYTES;
            [
                (header, 16, NEXT, head + 1),
                (contents, REQUEST_BYTES as u32, flags, head + 2),
                (header + 16, 1, WRITE, 0),
            ]
        });
        self.driver.describe(0, &chains.collect::<Vec<_>>());
    }

    fn send(&mut self, request: u16, writes: bool) {
        let offset = self.random.u64(..self.len / REQUEST_BYTES) * REQUEST_BYTES;
        let words = [u64::from(writes).to_le_bytes(), (offset / 512).to_le_bytes()];
        let header = GuestAddress(Self::header(request));
        self.driver.memory.write_slice(&words.concat(), header).expect("guest memory");
        self.driver.offer(0, request * CHAIN);
    }

    /// Takes an answer, if there is one. Returns the number of its request.
    fn receive(&mut self) -> Option<u16> {
        if self.driver.used(0) == self.taken {
            return None;
        }
        let slot = USED + 4 + u64::from(self.taken % QUEUE_SIZE) * 8;
        let head: u32 = self.driver.memory.read_obj(GuestAddress(slot)).expect("guest memory");
        let request = head as u16 / CHAIN;
        let status = GuestAddress(Self::header(request) + 16);
        let status: u8 = self.driver.memory.read_obj(status).expect("guest memory");
        assert_eq!(status, 0, "the server reports an error");
        self.taken = self.taken.wrapping_add(1);
        Some(request)
    }
}

impl Client for VhostClient {
    fn run(&mut self, writes: bool, depth: u16, until: Instant) -> u64 {
        self.describe(writes, depth);
        (0..depth).for_each(|request| self.send(request, writes));
        self.driver.kick(0);
        let (mut count, mut in_flight) = (0, depth);
        while in_flight > 0 {
            self.wait();
            let is_over = Instant::now() >= until;
            let mut sent = false;
            while let Some(request) = self.receive() {
                count += 1;
                if is_over {
                    in_flight -= 1;
                } else {
                    self.send(request, writes);
                    sent = true;
                }
            }
            if sent {
                self.driver.kick(0);
            }
        }
        count
    }
}
