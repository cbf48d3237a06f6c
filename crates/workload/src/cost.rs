//! What something costs: time on the wall, and of the processor.

use std::ops::AddAssign;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

/// Time that something took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// On the wall.
    pub wall: Duration,
    /// Processor time outside the kernel, all threads of this process together.
    pub user: Duration,
    /// Processor time in the kernel, all threads of this process together. What kernel threads did
    /// for it is not in it.
    pub system: Duration,
}

impl Cost {
    /// Runs `work` and says what it cost. Processor time is counted for the whole process.
    pub fn of<T, E>(work: impl FnOnce() -> Result<T, E>) -> Result<(T, Self), E> {
        let start = Stopwatch::start();
        let value = work()?;
        Ok((value, start.stop()))
    }
}

impl AddAssign for Cost {
    /// Joins what was measured in pieces, one after another.
    fn add_assign(&mut self, other: Self) {
        self.wall += other.wall;
        self.user += other.user;
        self.system += other.system;
    }
}

/// A measurement that runs.
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

    /// What was used since the start.
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

fn processor_time() -> (Duration, Duration) {
    let duration = |time: TimeVal| {
        Duration::from_secs(time.tv_sec() as u64) + Duration::from_micros(time.tv_usec() as u64)
    };
    getrusage(UsageWho::RUSAGE_SELF)
        .map(|usage| (duration(usage.user_time()), duration(usage.system_time())))
        .unwrap_or_default()
}
