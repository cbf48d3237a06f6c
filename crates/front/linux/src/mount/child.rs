//! System calls on a mount that wait for its server, made by a child process.
//!
//! A thread that waits for write-back waits for requests that its own process answers. If the
//! process is killed, this thread cannot end, so the device stays open and the requests are never
//! answered. Neither the process nor the mount would ever go away. A child has no descriptor of the
//! device: the death of the server ends the mount, and that ends the child's wait.
//!
//! A fork copies all descriptors, and with them the lock on the image. The parent waits until the child has
//! closed its copies, so that nothing holds the image once the parent has closed it.
//!
//! If another program unmounts at that time, the child may hold the last reference to the mount. Its exit then
//! waits for the reply to DESTROY, which the server sends after closing the image. So no thread
//! waits for a child when the session has ended.
//!
//! The system calls never run in the server itself. If fork(2) fails for lack of processes or memory,
//! it is retried for a while, and then the caller gets the error.
//!
//! `unsafe` is needed for fork(2), waitpid(2) and _exit(2).

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Resource, getrlimit, pidfd_open};

/// Attempts of fork(2).
const FORKS: u32 = 30;

/// Time between two attempts of fork(2), in milliseconds.
const FORK_INTERVAL_MS: i64 = if cfg!(test) { 1 } else { 100 };

/// Minimum number of descriptors that a child closes one by one.
const DESCRIPTORS_MIN: u64 = 1 << 16;

/// Child processes of a session. On drop, waits for those that were left running.
#[derive(Debug)]
pub(super) struct Children {
    /// Readable when the session has ended.
    session_end: OwnedFd,
    /// True if the session has ended. Locked while a child starts.
    has_ended: Mutex<bool>,
    /// Children that were running when the session ended.
    left: Mutex<Vec<libc::pid_t>>,
}

impl Children {
    /// # Errors
    /// If no descriptor is available.
    pub(super) fn new() -> io::Result<Self> {
        let session_end = eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Self { session_end, has_ended: Mutex::default(), left: Mutex::default() })
    }

    /// Wakes threads in [`Self::run`]. Call it when all requests but DESTROY are answered. Afterwards no child has
    /// descriptors of this process, and none is started.
    pub(super) fn end_session(&self) {
        *self.has_ended.lock() = true;
        // Only a full counter, after 2^64 calls, is an error.
        let _ = rustix::io::write(&self.session_end, &1_u64.to_ne_bytes());
    }

    /// Runs `work` in a child process without descriptors and returns its result, or `ENOTCONN` if
    /// the session ends first. `work` may only make system calls: another thread of the parent may
    /// hold any lock at the time of the fork, including the allocator's.
    ///
    /// # Errors
    /// If fork(2) keeps failing, or the result is unknown.
    pub(super) fn run(
        &self,
        work: impl Fn() -> Result<(), Errno>,
    ) -> io::Result<Result<(), Errno>> {
        self.run_in(|| start(&work))
    }

    /// Same as [`Self::run`], in the child that `start` starts.
    fn run_in(&self, start: impl Fn() -> io::Result<libc::pid_t>) -> io::Result<Result<(), Errno>> {
        let mut attempts = 1;
        let child = loop {
            let has_ended = self.has_ended.lock();
            if *has_ended {
                return Ok(Err(Errno::NOTCONN));
            }
            let started = start();
            drop(has_ended);
            match started {
                Ok(child) => break child,
                Err(error) if attempts == FORKS => return Err(error),
                Err(_) if self.session_ends_within(FORK_INTERVAL_MS)? => {
                    return Ok(Err(Errno::NOTCONN));
                }
                Err(_) => attempts += 1,
            }
        };
        if self.session_ends_before(child)? {
            self.left.lock().push(child);
            return Ok(Err(Errno::NOTCONN));
        }
        result_of(wait(child)?)
    }

    /// Waits for the end of the session. Returns whether it has ended.
    fn session_ends_within(&self, milliseconds: i64) -> io::Result<bool> {
        let limit = Timespec { tv_sec: 0, tv_nsec: milliseconds * 1_000_000 };
        let mut end = [PollFd::new(&self.session_end, PollFlags::IN)];
        Ok(retry_on_intr(|| poll(&mut end, Some(&limit)))? > 0)
    }

    /// Waits until a child or the session ends. Returns whether the session was first.
    fn session_ends_before(&self, child: libc::pid_t) -> io::Result<bool> {
        let Some(Ok(child)) = Pid::from_raw(child).map(|it| pidfd_open(it, PidfdFlags::empty()))
        else {
            // Before Linux 5.3: waitpid(2) alone must do.
            return Ok(false);
        };
        let mut both =
            [PollFd::new(&child, PollFlags::IN), PollFd::new(&self.session_end, PollFlags::IN)];
        retry_on_intr(|| poll(&mut both, None))?;
        Ok(both[0].revents().is_empty())
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for child in self.left.get_mut().drain(..) {
            let _ = wait(child);
        }
    }
}

/// Starts a child that runs `work`, and waits until it has closed its descriptors. Its exit status is the result.
fn start(work: &impl Fn() -> Result<(), Errno>) -> io::Result<libc::pid_t> {
    let (closed_by_child, held_by_child) = pipe_with(PipeFlags::CLOEXEC)?;
    // SAFETY: the child makes only system calls until it ends, as `work` promises.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    if child == 0 {
        // SAFETY: in the child, this invalidates descriptors of the parent's objects. The child
        // never drops these objects, because it ends without returning.
        unsafe { close_all_but(held_by_child.as_raw_fd()) };
        // Tells the parent, and the end of the pipe does so if this fails.
        let _ = rustix::io::write(&held_by_child, &[0]);
        // SAFETY: as above.
        unsafe { libc::close(held_by_child.as_raw_fd()) };
        let status = work().err().map_or(0, Errno::raw_os_error);
        // SAFETY: _exit(2) does not return and runs no code of the parent.
        unsafe { libc::_exit(status) }
    }
    drop(held_by_child);
    // Another thread may have forked a process with a copy of the other end, so the child writes a byte. An error of
    // the read does not affect the child, so it is ignored.
    let _ = retry_on_intr(|| rustix::io::read(&closed_by_child, &mut [0]));
    Ok(child)
}

/// Closes all descriptors except `kept`. Makes only system calls.
///
/// # Safety
/// No object of this process that owns another descriptor is used or dropped afterwards.
unsafe fn close_all_but(kept: RawFd) {
    let kept_number = kept as u32;
    // SAFETY: the caller's promise.
    let close_range = |first: u32, last: u32| unsafe {
        first > last || libc::syscall(libc::SYS_close_range, first, last, 0_u32) == 0
    };
    if close_range(kept_number + 1, u32::MAX)
        && (kept_number == 0 || close_range(0, kept_number - 1))
    {
        return;
    }
    // Before Linux 5.9, and in sandboxes that do not know the call.
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(0).max(DESCRIPTORS_MIN);
    for descriptor in 0..i32::try_from(limit).unwrap_or(i32::MAX) {
        if descriptor != kept {
            // SAFETY: the caller's promise.
            unsafe { libc::close(descriptor) };
        }
    }
}

/// Returns the result of a child with this status.
fn result_of(status: i32) -> io::Result<Result<(), Errno>> {
    if !libc::WIFEXITED(status) {
        return Err(io::Error::other("a signal ended the process that writes back"));
    }
    Ok(match libc::WEXITSTATUS(status) {
        0 => Ok(()),
        errno => Err(Errno::from_raw_os_error(errno)),
    })
}

/// Waits for a child and returns its status.
fn wait(child: libc::pid_t) -> io::Result<i32> {
    let mut status = 0;
    loop {
        // SAFETY: `status` has the type that waitpid(2) writes.
        if unsafe { libc::waitpid(child, &mut status, 0) } == child {
            return Ok(status);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn the_result_of_a_child_is_returned() {
        let children = Children::new().unwrap();
        assert_eq!(children.run(|| Ok(())).unwrap(), Ok(()));
        assert_eq!(children.run(|| Err(Errno::IO)).unwrap(), Err(Errno::IO));
    }

    #[test]
    fn a_failed_fork_is_retried_and_then_an_error() {
        let children = Children::new().unwrap();
        let attempts = Cell::new(0);
        let fail = |times: u32| {
            attempts.set(attempts.get() + 1);
            if attempts.get() <= times { Err(Errno::AGAIN.into()) } else { start(&|| Ok(())) }
        };
        assert_eq!(children.run_in(|| fail(2)).unwrap(), Ok(()));
        assert_eq!(attempts.replace(0), 3);
        let error = children.run_in(|| fail(u32::MAX)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::AGAIN.raw_os_error()));
        assert_eq!(attempts.get(), FORKS);
        // The end of the session ends the attempts.
        attempts.set(0);
        let ended = children.run_in(|| {
            let session_end = &children.session_end;
            rustix::io::write(session_end, &1_u64.to_ne_bytes()).unwrap();
            fail(u32::MAX)
        });
        assert_eq!(ended.unwrap(), Err(Errno::NOTCONN));
        assert_eq!(attempts.get(), 1);
    }

    #[test]
    fn a_new_child_has_no_descriptors_of_the_parent() {
        for _ in 0..50 {
            let child = start(&|| {
                let second = Timespec { tv_sec: 1, tv_nsec: 0 };
                poll(&mut [], Some(&second)).map(drop)
            });
            let child = child.unwrap();
            let held = std::fs::read_dir(format!("/proc/{child}/fd")).unwrap().count();
            let pid = Pid::from_raw(child).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            wait(child).unwrap();
            // The child may not have closed its end of the pipe yet.
            assert!(held <= 1, "{held}");
        }
    }

    #[test]
    fn a_process_forked_at_the_same_time_delays_no_child() {
        // Has copies of all descriptors, with those of a pipe that is open when it is forked, until it is killed.
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let forks = scope.spawn(|| {
                let mut forked = Vec::new();
                while !stop.load(std::sync::atomic::Ordering::Relaxed) && forked.len() < 500 {
                    // SAFETY: the child makes only system calls.
                    let child = unsafe { libc::fork() };
                    if child == 0 {
                        // SAFETY: both are system calls.
                        unsafe {
                            libc::pause();
                            libc::_exit(0);
                        }
                    }
                    forked.push(child);
                }
                forked
            });
            for _ in 0..100 {
                assert_eq!(wait(start(&|| Ok(())).unwrap()).unwrap(), 0);
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            for child in forks.join().unwrap() {
                let pid = Pid::from_raw(child).unwrap();
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
                wait(child).unwrap();
            }
        });
    }

    #[test]
    fn no_child_is_started_after_the_session() {
        let children = Children::new().unwrap();
        children.end_session();
        let result = children.run_in(|| panic!("a child is started"));
        assert_eq!(result.unwrap(), Err(Errno::NOTCONN));
    }

    #[test]
    fn a_child_has_no_descriptors() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let children = Children::new().unwrap();
        let result = children.run(|| rustix::fs::fstat(&file).map(drop));
        assert_eq!(result.unwrap(), Err(Errno::BADF));
    }
}
