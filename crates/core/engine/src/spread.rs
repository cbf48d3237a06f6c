//! Work of checkpoints on several threads.

use std::num::NonZeroUsize;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;

/// Maximum number of threads for one step of a checkpoint by default.
const THREADS_MAX: usize = 8;

/// Number of threads for the steps of a checkpoint.
#[derive(Default)]
pub(crate) struct Threads {
    /// 0 if it depends on the checkpoint.
    set: AtomicUsize,
}

impl Threads {
    pub(crate) fn set(&self, count: Option<NonZeroUsize>) {
        self.set.store(count.map_or(0, NonZeroUsize::get), Ordering::Relaxed);
    }

    /// Returns the maximum number for any step.
    pub(crate) fn max(&self) -> usize {
        match self.set.load(Ordering::Relaxed) {
            0 => processors().min(THREADS_MAX),
            set => set,
        }
    }

    /// Returns the number for `amount` units of work. By default, a thread gets at least `least` of them: starting it
    /// takes about twenty microseconds.
    pub(crate) fn for_work(&self, amount: usize, least: usize) -> usize {
        match self.set.load(Ordering::Relaxed) {
            0 => (amount / least).min(self.max()).max(1),
            set => set.min(amount).max(1),
        }
    }

    /// Splits a list into one slice for each thread.
    pub(crate) fn split<'l, T>(&self, list: &'l [T], least: usize) -> Vec<&'l [T]> {
        let each = list.len().div_ceil(self.for_work(list.len(), least));
        list.chunks(each.max(1)).collect()
    }
}

/// Calls `work` with each of `parts`, on at most `threads` threads. Returns the results in the order of the parts. The
/// calling thread takes part, so all is done even if no thread can be started.
///
/// # Panics
/// If `work` panics.
pub fn spread<P: Send, R: Send>(
    threads: usize,
    parts: Vec<P>,
    work: impl Fn(P) -> R + Sync,
) -> Vec<R> {
    let threads = parts.len().min(threads);
    if threads <= 1 {
        return parts.into_iter().map(work).collect();
    }
    let queue = Mutex::new(parts.into_iter().enumerate());
    let take_parts = || {
        let mut done = Vec::new();
        loop {
            let next = queue.lock().next();
            let Some((at, part)) = next else { return done };
            done.push((at, work(part)));
        }
    };
    let mut done = thread::scope(|scope| {
        let start = |_| thread::Builder::new().spawn_scoped(scope, take_parts).ok();
        let others: Vec<_> = (1..threads).filter_map(start).collect();
        #[cfg(feature = "count-locks")]
        let _shared = crate::lock_counts::SharedWork::begin();
        let mut done = take_parts();
        for other in others {
            match other.join() {
                Ok(more) => done.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    });
    done.sort_unstable_by_key(|&(at, _)| at);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Number of processors available to this process; 1 if it is unknown.
fn processors() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| thread::available_parallelism().map_or(1, NonZeroUsize::get))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_parts() {
        for (parts, threads) in [(0, 3), (1, 3), (2, 3), (7, 8), (8, 8), (9, 8), (100, 3)] {
            let squares = spread(threads, (0..parts).collect(), |part: usize| part * part);
            assert_eq!(squares, (0..parts).map(|part| part * part).collect::<Vec<_>>());
        }
    }

    #[test]
    fn parts_run_at_the_same_time() {
        let all = Barrier::new(5);
        let threads = spread(5, vec![(); 5], |()| {
            all.wait();
            thread::current().id()
        });
        assert_eq!(threads.into_iter().collect::<HashSet<_>>().len(), 5);
    }

    #[test]
    fn a_panic_of_a_part_reaches_the_caller() {
        let run = || spread(4, (0..20).collect(), |part: u32| assert_ne!(part, 11));
        assert!(std::panic::catch_unwind(run).is_err());
    }

    #[test]
    fn slices_contain_the_whole_list() {
        let list: Vec<u32> = (0..1000).collect();
        let threads = Threads::default();
        for (set, least) in [(0, 1), (0, 10), (0, 999), (0, 5000), (1, 1), (7, 300), (2000, 1)] {
            threads.set(NonZeroUsize::new(set));
            let parts = threads.split(&list, least);
            assert!(parts.len() <= if set == 0 { THREADS_MAX } else { set });
            assert_eq!(parts.concat(), list);
        }
        assert!(threads.split::<u32>(&[], 10).is_empty());
    }
}
