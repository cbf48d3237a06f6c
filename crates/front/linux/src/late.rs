//! Requests whose handling makes the kernel send other requests.
//!
//! A serving thread must never wait for these other requests, because it might be the thread that
//! has to serve them. A dedicated thread handles such late requests and serves nothing else. The
//! number of threads in calling programs limits the number of queued late requests.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::answer::{Complaints, ServingThread, answer_with};
use crate::buffer::Buffer;
use crate::device::Device;
use crate::mount::OwnMount;
use crate::{Handler, PageCache, Reply, Request};

/// Maximum size of a reply in bytes: all are small.
const ANSWER_LEN: usize = 4096;

/// A request as read, and its descriptor: the kernel accepts the reply only from that descriptor.
type Late = (Arc<Device>, Vec<u8>);

/// Sends requests to the late thread.
#[derive(Clone, Debug)]
pub(crate) struct ToLate(Sender<Late>);

impl ToLate {
    /// Sends a request that was read from `device`. If the thread has ended, so has the mount, and
    /// the request is dropped.
    pub(crate) fn send(&self, device: &Arc<Device>, message: &[u8]) {
        let _ = self.0.send((Arc::clone(device), message.to_vec()));
    }
}

/// The late thread. Ends when all [`ToLate`] handles are dropped.
pub(crate) struct LateThread {
    mount: Arc<OwnMount>,
    requests: Receiver<Late>,
    reply: Buffer,
}

impl LateThread {
    /// Returns the thread and a handle that sends requests to it.
    pub(crate) fn new(mount: Arc<OwnMount>) -> (Self, ToLate) {
        let (sender, requests) = channel();
        (Self { mount, requests, reply: Buffer::new(ANSWER_LEN) }, ToLate(sender))
    }
}

impl ServingThread for LateThread {
    fn transport(&self) -> &'static str {
        "late"
    }

    fn run(&mut self, handler: &dyn Handler, complaints: &Complaints) -> io::Result<()> {
        let buffer = self.reply.bytes();
        while let Ok((device, message)) = self.requests.recv() {
            let cache = PageCache::new(&device, &self.mount);
            match Request::parse(&message) {
                Ok(request) => {
                    let done = answer_with(&request, Reply::new(buffer), |reply| {
                        handler.handle_late(&request, reply, &cache)
                    });
                    let header = done.header(request.header.unique);
                    device.send(&header, &buffer[..done.len])?;
                }
                // Unreachable in practice: the request was parsed before it was queued.
                Err(malformed) => complaints.about(&malformed),
            }
        }
        Ok(())
    }
}
