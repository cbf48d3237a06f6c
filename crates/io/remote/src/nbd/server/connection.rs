//! Serves one client: one thread reads requests, and several workers perform them.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::handshake::{self, HandshakeOutcome};
use super::replies::Replies;
use super::{Exported, transmission};
use crate::nbd::protocol::{PAYLOAD_BYTES_MAX, REQUEST_BYTES, Request, command, violation};
use crate::nbd::stream::{Stream, read_vec};

/// Number of worker threads.
const WORKERS: usize = 4;
/// Maximum number of queued requests.
const WAITING_MAX: usize = 16;
/// Maximum total contents of a connection's unanswered requests, in bytes.
const CONTENTS_BYTES_MAX: u32 = 2 * PAYLOAD_BYTES_MAX;
/// Timeout for a client that stalls within a request or does not read a reply.
const STALL: Duration = Duration::from_secs(60);

/// A request with its contents.
struct PendingRequest<'a> {
    request: Request,
    contents: Vec<u8>,
    _room: Room<'a>,
}

/// Serves a client until its connection ends. Errors of a connection are not reported.
pub(super) fn serve(stream: &Stream, exported: &Exported, establish: impl FnOnce() -> bool) {
    let Ok(HandshakeOutcome::Requests(negotiated)) = handshake::serve(stream, exported) else {
        return;
    };
    if !establish() {
        return;
    }
    if stream.set_write_timeout(Some(STALL)).is_err() {
        return;
    }
    let budget = Budget::default();
    let replies = Replies::new(stream, negotiated);
    thread::scope(|scope| {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        // The last worker to end drops the receiver, and then sending fails.
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..WORKERS {
            let receiver = Arc::clone(&receiver);
            let work = || work(exported, receiver, &replies);
            if thread::Builder::new().spawn_scoped(scope, work).is_err() {
                return;
            }
        }
        drop(receiver);
        // Ends with the client's last request or its first error.
        while let Ok(Some(work)) = next(stream, &budget) {
            if sender.send(work).is_err() {
                return;
            }
        }
    });
    if !exported.read_only {
        // Earlier failures were reported to the client. Writes that it did not flush have no guarantee.
        let _ = exported.device.flush();
    }
}

/// Reads the next request; `None` at the end.
fn next<'a>(stream: &Stream, budget: &'a Budget) -> io::Result<Option<PendingRequest<'a>>> {
    let mut reader = stream;
    // The timeout applies only within a request: a client may be idle between requests.
    stream.set_read_timeout(None)?;
    let mut header = [0; REQUEST_BYTES];
    let first = loop {
        match reader.read(&mut header) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => break read?,
        }
    };
    if first == 0 {
        return Ok(None);
    }
    stream.set_read_timeout(Some(STALL))?;
    reader.read_exact(&mut header[first..])?;
    let request = Request::parse(&header)?;
    let (takes, brings) = match request.command {
        command::DISCONNECT => return Ok(None),
        command::WRITE => (request.len, request.len),
        command::READ if request.len <= PAYLOAD_BYTES_MAX => (request.len, 0),
        _ => (0, 0),
    };
    if brings > PAYLOAD_BYTES_MAX {
        return Err(violation(format!("a request that writes {brings} bytes")));
    }
    let room = budget.take(takes);
    let contents = read_vec(&mut reader, brings)?;
    Ok(Some(PendingRequest { request, contents, _room: room }))
}

/// Performs requests until the queue is closed.
fn work(
    exported: &Exported,
    receiver: Arc<Mutex<Receiver<PendingRequest<'_>>>>,
    replies: &Replies<'_>,
) {
    loop {
        let next = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(work) = next else { return };
        let negotiated = replies.negotiated();
        let done = transmission::perform(exported, negotiated, &work.request, &work.contents);
        replies.send(&work.request, done);
    }
}

/// Memory budget of a connection, in bytes of contents.
#[derive(Default)]
struct Budget {
    held: Mutex<u32>,
    given_back: Condvar,
}

/// A reserved part of the budget.
struct Room<'a> {
    budget: &'a Budget,
    bytes: u32,
}

impl Budget {
    fn hold(&self) -> MutexGuard<'_, u32> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `bytes` are available. No request exceeds the whole budget.
    fn take(&self, bytes: u32) -> Room<'_> {
        let is_full = |held: &mut u32| *held > CONTENTS_BYTES_MAX - bytes.min(CONTENTS_BYTES_MAX);
        let held = self.given_back.wait_while(self.hold(), is_full);
        *held.unwrap_or_else(PoisonError::into_inner) += bytes;
        Room { budget: self, bytes }
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        *self.budget.hold() -= self.bytes;
        self.budget.given_back.notify_all();
    }
}
