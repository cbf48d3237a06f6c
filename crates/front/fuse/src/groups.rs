//! Groups of a caller.
//!
//! A request contains only the group for new files. The supplementary groups are looked up when they are needed, which
//! is rare.

use linux::abi::InHeader;

use crate::caller;

/// Returns whether the caller of a request is in a group. For callers that cannot be looked up (in another PID
/// namespace, or no longer waiting) only the group of the request counts.
pub(crate) fn is_in(header: &InHeader, gid: u32) -> bool {
    if header.gid == gid {
        return true;
    }
    caller::status(header).is_some_and(|status| lists(&status, gid))
}

/// Returns whether proc_pid_status(5) contains a group, as the file-system group or a supplementary one. (With ID
/// mapping, the request does not contain the former either.)
fn lists(status: &str, gid: u32) -> bool {
    let values = |key| status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
    // The real, effective, saved and file-system ID.
    let own = values("Gid:").split_whitespace().nth(3);
    own.into_iter()
        .chain(values("Groups:").split_whitespace())
        .any(|group| group.parse() == Ok(gid))
}

#[cfg(test)]
mod tests {
    use linux::abi::InHeader;

    use super::{is_in, lists};

    #[test]
    fn supplementary_groups_are_found() {
        let status = "Name:\tcat\nGid:\t7\t7\t7\t8\nGroups:\t4 24 1000 \nNStgid:\t4\n";
        assert!(lists(status, 4) && lists(status, 1000));
        assert!(lists(status, 8), "the group for files");
        assert!(!lists(status, 7) && !lists(status, 2) && !lists(status, 100));
        assert!(!lists("Groups:\n", 0) && !lists("", 0));
    }

    #[test]
    fn unknown_processes_have_one_group() {
        for pid in [0, u32::MAX] {
            let header = InHeader { gid: 7, pid, ..InHeader::default() };
            assert!(is_in(&header, 7) && !is_in(&header, 0));
        }
    }
}
