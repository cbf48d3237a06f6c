//! Sample findings for tests.

use vfs::check::{Code, Finding, Severity, Summary};

use super::{FindingsOfKind, Format, Report};

pub(super) static TREE_GONE: Code = Code {
    name: "ext4-tree-gone",
    severity: Severity::Unusable,
    structure: "extent tree",
    meaning: "It is gone.",
    repair: "Nothing can be done.",
};

pub(super) static COUNT_OFF: Code = Code {
    name: "ext4-count-off",
    severity: Severity::Harmless,
    structure: "group descriptor",
    meaning: "It is off.",
    repair: "It is counted.",
};

/// Returns a report with a finding that has all fields, and five findings of which two were kept.
pub(super) fn report() -> Report {
    let gone = Finding::new(&TREE_GONE).of_inode(12).at_block(77).field("eh_magic");
    let gone = gone.named(b"n\xffme\n").path(b"/dir/n\xffme\n".to_vec());
    let gone = gone.mismatch("0xf30a", 0).detail("a \"detail\"\x1b");
    let off = |group: u32| Finding::new(&COUNT_OFF).in_group(group);
    Report {
        image: "dir/a.img".into(),
        format: Format::Ext4,
        summary: Summary {
            is_complete: true,
            transactions_replayed: 2,
            inodes: 12,
            directories: 3,
            blocks_used: 70,
            blocks: 100,
        },
        is_interrupted: false,
        device_error: None,
        kinds: vec![
            FindingsOfKind { code: &TREE_GONE, count: 1, findings: vec![gone] },
            FindingsOfKind { code: &COUNT_OFF, count: 5, findings: vec![off(0), off(1)] },
        ],
        damaged_files: None,
    }
}
