//! Requests that can be answered only after the kernel has done something for which it sends other ones.
//!
//! A thread that serves requests must never wait for such a thing: the requests it waits for could be its
//! own to serve. So these few go to a thread that serves nothing else. How many of them wait is bounded by
//! how many threads there are that ask.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::answer::{Complaints, ServingThread, answer_with};
use crate::buffer::Buffer;
use crate::device::Device;
use crate::mount::Mount;
use crate::{Handler, PageCache, Reply, Request};

/// Most bytes of an answer: all are small.
const ANSWER_LEN: usize = 4096;

/// A request as it was read, and where: the kernel takes the answer from that descriptor only.
type Late = (Arc<Device>, Vec<u8>);

/// Hands requests to the thread.
#[derive(Clone, Debug)]
pub(crate) struct ToLate(Sender<Late>);

impl ToLate {
    /// Hands over a request that was read from `device`. If the thread has ended, so has the mount.
    pub(crate) fn send(&self, device: &Arc<Device>, message: &[u8]) {
        let _ = self.0.send((Arc::clone(device), message.to_vec()));
    }
}

/// The thread. It ends when nobody can hand it anything any more.
pub(crate) struct LateThread {
    mount: Arc<Mount>,
    requests: Receiver<Late>,
    reply: Buffer,
}

impl LateThread {
    /// The thread's part, and what the others hand it requests with.
    pub(crate) fn new(mount: Arc<Mount>) -> (Self, ToLate) {
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
                // It was well made when it was handed over.
                Err(malformed) => complaints.about(&malformed),
            }
        }
        Ok(())
    }
}
