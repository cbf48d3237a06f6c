//! Common path from a request to its reply, for all transports.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::abi::OutHeader;
use crate::complain::complain;
use crate::{Errno, Handler, Malformed, Reply, Request};

/// A thread that serves requests.
pub(crate) trait ServingThread: Send {
    /// Short name of the transport.
    fn transport(&self) -> &'static str;

    /// Serves requests until the mount is gone.
    fn run(&mut self, handler: &dyn Handler, complaints: &Complaints) -> io::Result<()>;
}

/// Reports malformed requests, once for all threads.
#[derive(Debug, Default)]
pub(crate) struct Complaints(AtomicBool);

impl Complaints {
    pub(crate) fn about(&self, malformed: &Malformed) {
        if !self.0.swap(true, Ordering::Relaxed) {
            complain(malformed);
        }
    }
}

/// Result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// 0 or a negated error number.
    pub(crate) error: i32,
    /// Length of the reply in the buffer; 0 on error.
    pub(crate) len: usize,
    /// True if the reply was already sent to the kernel.
    pub(crate) is_sent: bool,
}

impl Answer {
    /// Creates the answer for a failed request.
    pub(crate) fn failed(error: Errno) -> Self {
        Self { error: -error.raw_os_error(), len: 0, is_sent: false }
    }

    /// Returns the reply header for the request `unique`.
    pub(crate) fn header(self, unique: u64) -> OutHeader {
        // A reply fits the buffer, which has at most a few MiB.
        let len = (size_of::<OutHeader>() + self.len) as u32;
        OutHeader { len, error: self.error, unique }
    }
}

/// Handles a request and puts the reply into `buffer`. A panic in the handler fails only this
/// request.
pub(crate) fn answer(handler: &dyn Handler, request: &Request<'_>, buffer: &mut [u8]) -> Answer {
    answer_with(request, Reply::new(buffer), |reply| handler.handle(request, reply))
}

/// Like [`answer`], but calls `handle` with `reply`, which is empty.
pub(crate) fn answer_with(
    request: &Request<'_>,
    mut reply: Reply<'_>,
    handle: impl FnOnce(&mut Reply<'_>) -> Result<(), Errno>,
) -> Answer {
    // A handler is responsible for the consistency of state that its threads share, for example by
    // poisoned locks. The reply is not used after a panic.
    match catch_unwind(AssertUnwindSafe(|| handle(&mut reply))) {
        Ok(Ok(())) => Answer { error: 0, len: reply.len(), is_sent: reply.is_sent() },
        Ok(Err(error)) => Answer::failed(error),
        Err(_) => {
            let opcode = request.header.opcode;
            complain(&format_args!(
                "a FUSE request (opcode {opcode}) failed: its handler panicked"
            ));
            Answer::failed(Errno::IO)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Answer, answer};
    use crate::abi::{InHeader, OutHeader};
    use crate::{Errno, Handler, Kernel, Operation, Reply, Request, Settings};

    struct ByNode;

    impl Handler for ByNode {
        fn init(&self, _: &Kernel) -> Settings {
            unreachable!("no session starts in this test")
        }

        fn handle(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Result<(), Errno> {
            reply.put_bytes(b"begun")?;
            match request.header.nodeid {
                1 => reply.put_bytes(b" and done"),
                2 => Err(Errno::NOENT),
                3 => reply.put_bytes(&[0; 64]),
                _ => panic!("as the test wants"),
            }
        }
    }

    fn ask(nodeid: u64) -> (Answer, [u8; 32]) {
        let header = InHeader { nodeid, ..InHeader::default() };
        let request = Request { header, operation: Operation::Statfs };
        let mut buffer = [0; 32];
        (answer(&ByNode, &request, &mut buffer), buffer)
    }

    #[test]
    fn a_reply_contains_the_given_bytes() {
        let (done, buffer) = ask(1);
        assert_eq!(done, Answer { error: 0, len: 14, is_sent: false });
        assert_eq!(&buffer[..14], b"begun and done");
        assert_eq!(done.header(7), OutHeader { len: 30, error: 0, unique: 7 });
    }

    #[test]
    fn errors_remove_the_written_part() {
        assert_eq!(ask(2).0.header(8), OutHeader { len: 16, error: -2, unique: 8 });
        assert_eq!(
            ask(3).0,
            Answer { error: -5, len: 0, is_sent: false },
            "more than there is room for"
        );
    }

    #[test]
    fn a_panic_is_an_error_of_one_request() {
        assert_eq!(ask(4).0, Answer { error: -5, len: 0, is_sent: false });
        assert_eq!(ask(1).0.len, 14);
    }
}
