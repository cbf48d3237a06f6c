//! Threads that read requests from the device, one thread at a time.
//!
//! Waking a sleeping thread takes longer than most requests, especially in virtual machines. So the
//! reading thread polls for a short time before it sleeps, as long as this pays off. It does not
//! pay off if requests are rare, or if the calling program needs the processor.
//!
//! The reading thread handles quick requests itself before it reads on, unless requests arrive
//! faster than that. For all others it first lets another thread read.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use zerocopy::FromBytes;

use crate::abi::InHeader;
use crate::answer::{Answer, Complaints, ServingThread, answer_with};
use crate::buffer::Buffer;
use crate::device::Device;
use crate::handshake::Agreed;
use crate::late::ToLate;
use crate::pipe::Pipe;
use crate::reply::ByPipe;
use crate::request::is_answered;
use crate::unmounted::Unmounted;
use crate::{Errno, Handler, Operation, Reply, Request};

/// Polling time: a few times the interval between a reply and a program's next request, and about
/// the cost of waking a thread.
const LOOKOUT: Duration = Duration::from_micros(25);

/// Maximum of [`Trust::level`].
const TRUST_MAX: u8 = 8;
/// Amount that each unsuccessful poll subtracts from [`Trust::level`].
const TRUST_LOST: u8 = 2;
/// Number of requests after which a thread with trust level 0 polls again.
const TRIED_AGAIN: u8 = 64;

/// Number of consecutive requests that were already pending from which one thread is not enough.
const CROWD: u32 = 4;

/// The right to read, held by one thread of a session at a time.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    state: Mutex<ReadersState>,
    /// DESTROY ends all threads and is answered later. This is impossible if threads wait for other
    /// descriptors.
    answers_destroy_late: bool,
}

/// State shared by the threads.
#[derive(Debug, Default)]
struct ReadersState {
    /// Number of consecutive requests that were already pending when they were read.
    crowd: u32,
    /// DESTROY was received: no request follows.
    is_over: bool,
    /// End of the mount, until the session takes it.
    unmounted: Unmounted,
}

impl Turn {
    pub(crate) fn new(answers_destroy_late: bool) -> Self {
        Self { answers_destroy_late, ..Self::default() }
    }

    /// Returns the end of the mount. Call it after all threads have ended.
    pub(crate) fn take_unmounted(&self) -> Unmounted {
        std::mem::take(&mut self.state.lock().unmounted)
    }
}

/// Success of polling so far.
#[derive(Debug)]
struct Trust {
    level: u8,
    since_last: u8,
}

impl Trust {
    /// Returns whether to poll for the next request.
    fn is_enough(&mut self) -> bool {
        self.since_last = self.since_last.saturating_add(1);
        self.level > 0 || self.since_last >= TRIED_AGAIN
    }

    /// Records whether a request arrived during a poll.
    fn learn(&mut self, came: bool) {
        self.since_last = 0;
        self.level = if came {
            (self.level + 1).min(TRUST_MAX)
        } else {
            self.level.saturating_sub(TRUST_LOST)
        };
    }
}

/// A thread that reads and handles requests, one at a time.
pub(crate) struct DeviceThread {
    /// Device with blocking reads.
    pub(crate) waiting: Arc<Device>,
    /// Device with non-blocking reads. The kernel accepts a reply only from the descriptor that the
    /// request was read from.
    looking: Option<Arc<Device>>,
    turn: Arc<Turn>,
    trust: Trust,
    late: ToLate,
    request: Buffer,
    reply: Buffer,
    /// Pipe for replies from files, if available.
    pipe: Option<Pipe>,
    max_write: usize,
}

impl DeviceThread {
    pub(crate) fn new(
        device: &Device,
        agreed: &Agreed,
        late: ToLate,
        turn: Arc<Turn>,
    ) -> io::Result<Self> {
        let len = agreed.buffer_len();
        Ok(Self {
            waiting: Arc::new(device.for_another_thread()?),
            looking: device.without_waiting().ok().map(Arc::new),
            turn,
            trust: Trust { level: TRUST_MAX, since_last: 0 },
            late,
            request: Buffer::new(len),
            reply: Buffer::new(len),
            pipe: None,
            max_write: agreed.max_write,
        })
    }

    /// Adds a pipe, if one can be created, for replies from files.
    pub(crate) fn with_pipe(mut self) -> Self {
        self.pipe = Pipe::new(self.max_write).ok();
        self
    }

    /// Reads the next request. Returns `None` if the mount is gone.
    fn receive(&mut self) -> io::Result<Option<Received>> {
        if let Some(looking) = &self.looking
            && self.trust.is_enough()
        {
            let came = look_out(looking, self.request.bytes());
            self.trust.learn(came.is_some());
            if let Some((len, at_once)) = came {
                return Ok(Some(Received { len, at_once, device: Arc::clone(looking) }));
            }
        }
        let len = self.waiting.receive(self.request.bytes())?;
        Ok(len.map(|len| Received { len, at_once: false, device: Arc::clone(&self.waiting) }))
    }

    /// Handles a request. Other threads read meanwhile if it may take longer than waking one of
    /// them.
    fn serve(
        &mut self,
        received: &Received,
        mut turn: MutexGuard<'_, ReadersState>,
        handler: &dyn Handler,
        complaints: &Complaints,
    ) -> io::Result<()> {
        let Received { len, at_once, device } = received;
        turn.crowd = if *at_once { turn.crowd.saturating_add(1) } else { 0 };
        let is_crowded = turn.crowd >= CROWD;
        let (message, reply) = (&self.request.bytes()[..*len], self.reply.bytes());
        match Request::parse(message) {
            Ok(Request { operation: Operation::Destroy, header })
                if self.turn.answers_destroy_late =>
            {
                turn.is_over = true;
                turn.unmounted = Unmounted::new(Arc::clone(device), header.unique);
            }
            Ok(request) if handler.is_late(&request.operation) => self.late.send(device, message),
            Ok(request) => {
                let turn = (!is_crowded && handler.is_quick(&request)).then_some(turn);
                let unique = request.header.unique;
                let had_pipe = self.pipe.is_some();
                let by_pipe = ByPipe { pipe: &mut self.pipe, device, unique };
                let done = answer_with(&request, Reply::with_pipe(reply, by_pipe), |reply| {
                    handler.handle(&request, reply)
                });
                if is_answered(request.header.opcode) && !done.is_sent {
                    device.send(&done.header(unique), &self.reply.bytes()[..done.len])?;
                }
                drop(turn);
                if had_pipe && self.pipe.is_none() {
                    self.pipe = Pipe::new(self.max_write).ok();
                }
            }
            Err(malformed) => {
                complaints.about(&malformed);
                refuse(device, message)?;
            }
        }
        Ok(())
    }
}

/// A request that was read.
struct Received {
    len: usize,
    /// True if the request was already pending.
    at_once: bool,
    /// Descriptor that the request was read from.
    device: Arc<Device>,
}

/// Polls for a request. Returns its length and whether it was already pending. Errors are not
/// reported, because the next read reports them.
fn look_out(device: &Device, buffer: &mut [u8]) -> Option<(usize, bool)> {
    let start = Instant::now();
    let mut at_once = true;
    loop {
        match device.receive_now(buffer) {
            Ok(Some(len)) => return Some((len, at_once)),
            Ok(None) if start.elapsed() < LOOKOUT => std::hint::spin_loop(),
            _ => return None,
        }
        at_once = false;
    }
}

impl ServingThread for DeviceThread {
    fn transport(&self) -> &'static str {
        "device"
    }

    fn run(&mut self, handler: &dyn Handler, complaints: &Complaints) -> io::Result<()> {
        let shared = Arc::clone(&self.turn);
        loop {
            let turn = shared.state.lock();
            if turn.is_over {
                return Ok(());
            }
            match self.receive()? {
                Some(received) => self.serve(&received, turn, handler, complaints)?,
                None => return Ok(()),
            }
        }
    }
}

/// Answers a malformed request, if its operation has a reply.
fn refuse(device: &Device, message: &[u8]) -> io::Result<()> {
    match InHeader::read_from_prefix(message) {
        Ok((header, _)) if is_answered(header.opcode) => {
            device.send(&Answer::failed(Errno::IO).header(header.unique), &[])
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{TRIED_AGAIN, TRUST_LOST, TRUST_MAX, Trust};

    #[test]
    fn looking_out_in_vain_ends_and_is_tried_again() {
        let mut trust = Trust { level: TRUST_MAX, since_last: 0 };
        let in_vain = (0..100).take_while(|_| {
            let is_enough = trust.is_enough();
            trust.learn(false);
            is_enough
        });
        assert_eq!(in_vain.count(), usize::from(TRUST_MAX / TRUST_LOST));
        let until_next = (1..=TRIED_AGAIN).find(|_| trust.is_enough());
        assert_eq!(until_next, Some(TRIED_AGAIN));
        trust.learn(true);
        assert!(trust.is_enough());
    }
}
