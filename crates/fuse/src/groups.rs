//! Which groups a caller is in.
//!
//! A request tells the group that new files get, and not the others. Those are looked up where it matters,
//! which is seldom.

use fuse_device::abi::InHeader;

use crate::caller;

/// Whether the caller of a request is in a group. Of callers that cannot be looked up (they are of another
/// process namespace, or have not waited) only the one group counts.
pub(crate) fn is_in(header: &InHeader, gid: u32) -> bool {
    if header.gid == gid {
        return true;
    }
    caller::status(header).is_some_and(|status| lists(&status, gid))
}

/// Whether proc_pid_status(5) has a group, as the one for files or among the supplementary ones. (Where ids
/// are mapped, a request does not tell the first either.)
fn lists(status: &str, gid: u32) -> bool {
    let values = |key| status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
    // The real, effective, saved and file system's.
    let own = values("Gid:").split_whitespace().nth(3);
    own.into_iter()
        .chain(values("Groups:").split_whitespace())
        .any(|group| group.parse() == Ok(gid))
}

#[cfg(test)]
mod tests {
    use fuse_device::abi::InHeader;

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
    fn who_cannot_be_looked_up_has_one_group() {
        for pid in [0, u32::MAX] {
            let header = InHeader { gid: 7, pid, ..InHeader::default() };
            assert!(is_in(&header, 7) && !is_in(&header, 0));
        }
    }
}
