//! Threads that read requests from the device, one of them at a time.
//!
//! A thread that sleeps when the next request comes has to be woken, which takes longer than most requests
//! do, above all in virtual machines. So who reads looks out for the next request for a moment before it
//! sleeps, as long as that proves worth while: not where nobody asks at once, and not where the one who
//! asks would need the processor for it. And it does itself what is quick before it reads on, unless
//! requests come faster than that: anything else it does after it has let another thread read.

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

/// How long a thread looks out: a few times what a program needs from one answer to its next request, and
/// about what waking a thread costs.
const LOOKOUT: Duration = Duration::from_micros(25);

/// How sure a thread can be that looking out pays.
const TRUST_MAX: u8 = 8;
/// What is left of that after each time in vain.
const TRUST_LOST: u8 = 2;
/// A thread without trust tries again after as many requests.
const TRIED_AGAIN: u8 = 64;

/// Requests in a row that were waiting already: from so many on, one thread is not enough.
const CROWD: u32 = 4;

/// The right to read, which one thread of a session has at a time.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    state: Mutex<State>,
    /// DESTROY ends all threads and is answered later. Threads that wait for other descriptors forbid that.
    answers_destroy_late: bool,
}

/// State that the threads share.
#[derive(Debug, Default)]
struct State {
    /// Number of requests in a row that were waiting already when they were read.
    crowd: u32,
    /// DESTROY came: no request follows.
    is_over: bool,
    /// The end of the mount, until the session takes it.
    unmounted: Unmounted,
}

impl Turn {
    pub(crate) fn new(answers_destroy_late: bool) -> Self {
        Self { answers_destroy_late, ..Self::default() }
    }

    /// Returns the end of the mount after all threads have ended.
    pub(crate) fn take_unmounted(&self) -> Unmounted {
        std::mem::take(&mut self.state.lock().unmounted)
    }
}

/// Whether looking out has paid so far.
#[derive(Debug)]
struct Trust {
    level: u8,
    since_last: u8,
}

impl Trust {
    /// Whether to look out for the next request.
    fn is_enough(&mut self) -> bool {
        self.since_last = self.since_last.saturating_add(1);
        self.level > 0 || self.since_last >= TRIED_AGAIN
    }

    /// A request came while the thread looked out, or none.
    fn learn(&mut self, came: bool) {
        self.since_last = 0;
        self.level = if came {
            (self.level + 1).min(TRUST_MAX)
        } else {
            self.level.saturating_sub(TRUST_LOST)
        };
    }
}

/// A thread that reads requests and does them, one after the other.
pub(crate) struct DeviceThread {
    /// Reads wait.
    pub(crate) waiting: Arc<Device>,
    /// Reads do not. The kernel takes an answer only from the descriptor that the request came from.
    looking: Option<Arc<Device>>,
    turn: Arc<Turn>,
    trust: Trust,
    late: ToLate,
    request: Buffer,
    reply: Buffer,
    /// For answers from files, if it has one.
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

    /// Gives it a pipe, if one can be had, so that it sends answers from files.
    pub(crate) fn with_pipe(mut self) -> Self {
        self.pipe = Pipe::new(self.max_write).ok();
        self
    }

    /// The next request. `None` if the mount is gone.
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

    /// Does the request that was read, with others reading on meanwhile if it may take longer than waking
    /// one of them.
    fn serve(
        &mut self,
        received: &Received,
        mut turn: MutexGuard<'_, State>,
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
    /// It was waiting already.
    at_once: bool,
    /// The descriptor that it came from.
    device: Arc<Device>,
}

/// Reads a request if one comes soon: its length, and whether it was there already. Errors are left to who
/// reads next.
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

/// Answers a malformed request, if it is one that is answered.
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
