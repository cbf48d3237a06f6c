//! The caller of a request without credentials.
//!
//! If mounts may map IDs ([`Options::idmap`](crate::Options::idmap)), the kernel (6.18) supplies the caller only in
//! requests that create an inode, because the new inode needs an owner. In all others, through any mount, user and
//! group are -1. The kernel checks permissions itself, except for a few checks that it leaves to file systems. For
//! those, the calling thread is looked up in `/proc`, where it is waiting for the answer.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use linux::Errno;
use linux::abi::InHeader;

/// The ID that means "unknown".
const NO_ID: u32 = u32::MAX;

/// Returns the effective user of the caller, or `None` if it is unknown.
pub(crate) fn uid(header: &InHeader) -> Option<u32> {
    if header.uid != NO_ID {
        return Some(header.uid);
    }
    let status = status(header)?;
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    // The real, effective, saved and file-system ID.
    ids.split_ascii_whitespace().nth(3)?.parse().ok()
}

/// Returns proc_pid_status(5) of the calling thread. `None` for a process that is not visible to this one: its number
/// is 0.
pub(crate) fn status(header: &InHeader) -> Option<String> {
    fs::read_to_string(format!("/proc/{}/status", header.pid)).ok()
}

/// Returns whether the caller is the superuser.
pub(crate) fn is_superuser(header: &InHeader) -> bool {
    uid(header) == Some(0)
}

/// Reads a number from the caller's memory.
///
/// # Errors
/// `EPERM` if this process may not read it, `EFAULT` if the address is invalid.
pub(crate) fn read_memory(header: &InHeader, address: u64) -> Result<u32, Errno> {
    let memory = File::open(format!("/proc/{}/mem", header.pid)).map_err(|_| Errno::PERM)?;
    let mut bytes = [0; size_of::<u32>()];
    memory.read_exact_at(&mut bytes, address).map_err(|_| Errno::FAULT)?;
    Ok(u32::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use linux::abi::InHeader;

    use super::{NO_ID, is_superuser, read_memory, uid};

    fn this_thread() -> InHeader {
        let pid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        InHeader { uid: NO_ID, gid: NO_ID, pid, ..InHeader::default() }
    }

    #[test]
    fn unnamed_users_are_looked_up() {
        let own = rustix::process::geteuid().as_raw();
        assert_eq!(uid(&this_thread()), Some(own));
        assert_eq!(is_superuser(&this_thread()), own == 0);
        assert_eq!(uid(&InHeader { uid: 7, ..this_thread() }), Some(7), "named is named");
        let nobody = InHeader { pid: 0, ..this_thread() };
        assert!(uid(&nobody).is_none() && !is_superuser(&nobody));
    }

    #[test]
    fn a_number_is_read_from_memory_of_the_caller() {
        let number = Box::new(0x1234_5678_u32);
        let address = std::ptr::from_ref(&*number).addr() as u64;
        assert_eq!(read_memory(&this_thread(), address), Ok(0x1234_5678));
        assert!(read_memory(&this_thread(), 0).is_err());
    }
}
