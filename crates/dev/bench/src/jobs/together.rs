//! Threads with a common start, so that starting them is not timed.

use std::io;
use std::thread;

use parking_lot::{Condvar, Mutex};

use crate::cost::{Cost, Stopwatch};
use crate::error::{Error, Result};

/// A barrier for the start of all threads.
#[derive(Default)]
struct Gate {
    state: Mutex<BarrierState>,
    changed: Condvar,
}

#[derive(Default)]
struct BarrierState {
    waiting: u32,
    /// Set when it is open: whether to continue.
    open: Option<bool>,
}

impl Gate {
    /// Waits until the gate opens. Returns whether to continue.
    fn pass(&self) -> bool {
        let mut state = self.state.lock();
        state.waiting += 1;
        self.changed.notify_all();
        loop {
            match state.open {
                Some(go_on) => return go_on,
                None => self.changed.wait(&mut state),
            }
        }
    }

    fn wait_for(&self, threads: u32) {
        let mut state = self.state.lock();
        while state.waiting < threads {
            self.changed.wait(&mut state);
        }
    }

    fn open(&self, go_on: bool) {
        self.state.lock().open = Some(go_on);
        self.changed.notify_all();
    }
}

/// Runs `work` in `threads` threads, with the number of each. Returns the cost from the moment when all are ready to
/// the end of the last one. The processor time is that of the work only.
///
/// # Errors
/// The first error of the thread with the lowest number, after all have ended.
pub(super) fn together(threads: u32, work: impl Fn(u32) -> Result<()> + Sync) -> Result<Cost> {
    let (gate, work) = (&Gate::default(), &work);
    thread::scope(|scope| {
        let start = |thread| {
            let work = move || Cost::of(|| work(thread)).map(|((), cost)| cost);
            let run = move || if gate.pass() { work() } else { Ok(Cost::default()) };
            thread::Builder::new().spawn_scoped(scope, run)
        };
        let handles = match (0..threads).map(start).collect::<io::Result<Vec<_>>>() {
            Ok(handles) => handles,
            Err(error) => {
                gate.open(false);
                return Err(Error::host("start a thread", error));
            }
        };
        gate.wait_for(threads);
        let watch = Stopwatch::start();
        gate.open(true);
        let results: Vec<_> = handles.into_iter().map(thread::ScopedJoinHandle::join).collect();
        let wall = watch.stop().wall;
        let of_thread = |result: thread::Result<Result<Cost>>| {
            result.unwrap_or_else(|_| Err(Error::Wrong("a thread panicked".to_owned())))
        };
        let costs = results.into_iter().map(of_thread).collect::<Result<Vec<_>>>()?;
        Ok(Cost::of_threads(wall, costs))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn nobody_starts_before_all_are_there() {
        let (started, seen) = (AtomicU32::new(0), AtomicU32::new(0));
        let cost = together(9, |thread| {
            started.fetch_add(1, Ordering::SeqCst);
            seen.fetch_or(1 << thread, Ordering::SeqCst);
            while started.load(Ordering::SeqCst) < 9 {
                thread::yield_now();
            }
            thread::sleep(Duration::from_millis(3));
            Ok(())
        });
        assert_eq!(seen.into_inner(), (1 << 9) - 1);
        assert!(cost.unwrap().wall >= Duration::from_millis(3));
    }

    #[test]
    fn all_end_before_an_error_is_told() {
        let ended = AtomicU32::new(0);
        let outcome = together(4, |thread| {
            if thread == 2 {
                return Err(Error::Unsupported("two".to_owned()));
            }
            thread::sleep(Duration::from_millis(5));
            ended.fetch_add(1, Ordering::SeqCst);
            Ok(())
        });
        assert!(matches!(outcome, Err(Error::Unsupported(text)) if text == "two"));
        assert_eq!(ended.into_inner(), 3);
        let panicked = together(2, |thread| {
            assert_ne!(thread, 1, "as it should");
            Ok(())
        });
        assert!(matches!(panicked, Err(Error::Wrong(_))));
    }
}
