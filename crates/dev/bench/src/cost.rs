//! Cost of work: wall-clock and processor time.

use std::ops::AddAssign;
use std::time::{Duration, Instant};

/// Time of some work. Processor time is measured on Linux only, and 0 elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Wall-clock time.
    pub wall: Duration,
    /// User time of the working threads. The thread that shows progress does not count.
    pub user: Duration,
    /// System time of the working threads, without kernel threads.
    pub system: Duration,
}

impl Cost {
    /// Runs `work` in this thread and measures its cost. The work of other threads does not count.
    pub fn of<T, E>(work: impl FnOnce() -> Result<T, E>) -> Result<(T, Self), E> {
        let start = Stopwatch::start();
        let value = work()?;
        Ok((value, start.stop()))
    }

    /// Sums up the cost of concurrent threads, with the given wall-clock time.
    pub fn of_threads(wall: Duration, threads: impl IntoIterator<Item = Self>) -> Self {
        threads.into_iter().fold(Self { wall, ..Self::default() }, |all, one| Self {
            wall,
            user: all.user + one.user,
            system: all.system + one.system,
        })
    }

    /// Divides the cost by a number of repetitions.
    #[must_use]
    pub fn divided(self, times: u32) -> Self {
        let times = times.max(1);
        Self { wall: self.wall / times, user: self.user / times, system: self.system / times }
    }
}

impl AddAssign for Cost {
    /// Adds measurements of consecutive pieces.
    fn add_assign(&mut self, other: Self) {
        self.wall += other.wall;
        self.user += other.user;
        self.system += other.system;
    }
}

/// A running measurement. It must be stopped in the thread that started it.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    start: Instant,
    user: Duration,
    system: Duration,
}

impl Stopwatch {
    /// Starts measuring.
    pub fn start() -> Self {
        let (user, system) = processor_time();
        Self { start: Instant::now(), user, system }
    }

    /// Returns the cost since the start.
    pub fn stop(self) -> Cost {
        let wall = self.start.elapsed();
        let (user, system) = processor_time();
        Cost {
            wall,
            user: user.saturating_sub(self.user),
            system: system.saturating_sub(self.system),
        }
    }
}

/// Returns zero: the time of this thread is not available here.
#[cfg(not(target_os = "linux"))]
fn processor_time() -> (Duration, Duration) {
    (Duration::ZERO, Duration::ZERO)
}

/// Returns the time used by this thread. Reading the exact clock also updates the kernel's split into user and system
/// time.
#[cfg(target_os = "linux")]
fn processor_time() -> (Duration, Duration) {
    use nix::sys::resource::{UsageWho, getrusage};
    use nix::time::{ClockId, clock_gettime};
    let all = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from);
    let all = all.unwrap_or_default();
    let system = getrusage(UsageWho::RUSAGE_THREAD).map(|usage| {
        let time = usage.system_time();
        Duration::from_secs(time.tv_sec() as u64) + Duration::from_micros(time.tv_usec() as u64)
    });
    let system = system.unwrap_or_default().min(all);
    (all - system, system)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    fn spin(wanted: Duration) {
        let start = processor_time();
        while processor_time().0 + processor_time().1 < start.0 + start.1 + wanted {}
    }

    #[test]
    fn only_the_thread_that_works_counts() {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let (_, cost) = Cost::of(|| {
                spin(Duration::from_millis(30));
                thread::sleep(Duration::from_millis(60));
                Ok::<_, ()>(())
            })
            .unwrap();
            done.store(true, Ordering::Relaxed);
            let used = cost.user + cost.system;
            assert!(cost.wall >= Duration::from_millis(90), "{cost:?}");
            assert!((30..60).contains(&used.as_millis()), "{cost:?}");
        });
    }

    #[test]
    fn what_threads_used_is_added_up() {
        let one =
            Cost { wall: Duration::from_secs(9), user: Duration::from_secs(2), ..Cost::default() };
        let all = Cost::of_threads(Duration::from_secs(3), [one, one]);
        assert_eq!((all.wall.as_secs(), all.user.as_secs()), (3, 4));
        assert_eq!(all.divided(2).user.as_secs(), 2);
    }
}
