//! Requests about a mount that wait for its server, made by a child process.
//!
//! A thread that waits for write-back waits for requests that its own process answers. If the process is killed, this
//! thread cannot end, so the device stays open and nothing answers: neither the process nor the mount ever goes away.
//! A child has no descriptor of the device. The death of the server ends the mount, and that ends the child's wait.
//!
//! `unsafe` is needed for fork(2), waitpid(2) and _exit(2).

#![allow(unsafe_code)]

use std::io;

use rustix::io::Errno;

/// Exit status of a child that could not close its descriptors.
const NOT_CLOSED: i32 = 255;

/// Runs `work` in a child process and returns its result. `work` may only make system calls: another thread of the parent
/// may have held any lock, that of the allocator included. It has no descriptors.
///
/// # Errors
/// If fork(2) fails, or the result is unknown.
pub(super) fn run(work: impl FnOnce() -> Result<(), Errno>) -> io::Result<Result<(), Errno>> {
    // SAFETY: Until it ends, the child makes system calls only, as `work` promises.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    if child == 0 {
        // SAFETY: Closing invalidates descriptors of the parent's objects in the child, which never drops them: it ends
        // without returning.
        let closed = unsafe { libc::syscall(libc::SYS_close_range, 0_u32, u32::MAX, 0_u32) };
        let status = match closed {
            0 => work().err().map_or(0, Errno::raw_os_error),
            _ => NOT_CLOSED,
        };
        // SAFETY: It does not return, and runs nothing of the parent's.
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
        // SAFETY: The status is written to a variable of its type.
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
