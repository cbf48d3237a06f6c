//! System calls on a mount that wait for its server, made by a child process.
//!
//! A thread that waits for write-back waits for requests that its own process answers. If the
//! process is killed, this thread cannot end, so the device stays open and the requests are never
//! answered. Neither the process nor the mount would ever go away. A child has no descriptor of the
//! device: the death of the server ends the mount, and that ends the child's wait.
//!
//! `unsafe` is needed for fork(2), waitpid(2) and _exit(2).

#![allow(unsafe_code)]

use std::io;

use rustix::io::Errno;

/// Exit status of a child that could not close its descriptors.
const NOT_CLOSED: i32 = 255;

/// Runs `work` in a child process without descriptors and returns its result. `work` may only make
/// system calls: another thread of the parent may hold any lock at the time of the fork, including
/// the allocator's.
///
/// # Errors
/// If fork(2) fails, or the result is unknown.
pub(super) fn run(work: impl FnOnce() -> Result<(), Errno>) -> io::Result<Result<(), Errno>> {
    // SAFETY: the child makes only system calls until it ends, as `work` promises.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    if child == 0 {
        // SAFETY: in the child, this invalidates descriptors of the parent's objects. The child
        // never drops these objects, because it ends without returning.
        let closed = unsafe { libc::syscall(libc::SYS_close_range, 0_u32, u32::MAX, 0_u32) };
        let status = match closed {
            0 => work().err().map_or(0, Errno::raw_os_error),
            _ => NOT_CLOSED,
        };
        // SAFETY: _exit(2) does not return and runs no code of the parent.
        unsafe { libc::_exit(status) }
    }
    let status = wait(child)?;
    if !libc::WIFEXITED(status) || libc::WEXITSTATUS(status) == NOT_CLOSED {
        return Err(io::ErrorKind::Unsupported.into());
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
    use super::*;

    #[test]
    fn the_result_of_a_child_is_returned() {
        assert_eq!(run(|| Ok(())).unwrap(), Ok(()));
        assert_eq!(run(|| Err(Errno::IO)).unwrap(), Err(Errno::IO));
    }

    #[test]
    fn a_child_has_no_descriptors() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(run(|| rustix::fs::fstat(&file).map(drop)).unwrap(), Err(Errno::BADF));
    }
}
