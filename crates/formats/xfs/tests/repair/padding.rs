//! Padding of directory and attribute blocks. Kernels write zeros, and accept other values, as `xfs_repair` does.
//! `xfs_scrub` of Linux 7.2 refuses nonzero padding in some fields, which were tried one by one.

use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use testkit::require;

use super::RepairSample;
use super::subject::repaired;
use crate::checking::findings;

/// A magic number with its offset, padding with its length, and the code of its finding.
type Field = (&'static [u8], usize, usize, usize, &'static str);

/// Padding that `xfs_scrub` refuses.
const REFUSED: [Field; 5] = [
    (b"XDF3", 0, 60, 4, "xfs-dir-free"),
    (&[0x3d, 0xff], 8, 10, 2, "xfs-dir-leaf"),
    (&[0x3b, 0xee], 8, 10, 2, "xfs-attr"),
    (&[0x3b, 0xee], 8, 63, 1, "xfs-attr"),
    (&[0x3b, 0xee], 8, 76, 4, "xfs-attr"),
];
/// Padding that `xfs_scrub` accepts.
const ACCEPTED: [Field; 3] = [
    (b"XDD3", 0, 60, 4, "xfs-dir-data"),
    (b"XDB3", 0, 60, 4, "xfs-dir-data"),
    (&[0x3d, 0xff], 8, 60, 4, "xfs-dir-leaf"),
];
/// Maximum number of blocks tried. The magic number may be in freed blocks, too.
const TRIES: usize = 8;

/// Returns images with one nonzero padding in a block with a magic number.
fn padded(image: &RepairSample, field: Field) -> impl Iterator<Item = MemoryDevice> {
    let (magic, magic_at, at, len, _) = field;
    let is_one = move |start: &usize| image.bytes[start + magic_at..].starts_with(magic);
    let starts = image.layout.structures.iter().map(|structure| structure.start);
    starts.filter(is_one).take(TRIES).map(move |start| {
        let fork = image.base.fork();
        let range = start + at..start + at + len;
        fork.write_at(range.end as u64 - 1, &[1]).unwrap();
        image.layout.seal(&fork, range);
        fork
    })
}

/// Returns whether the check of an image reports padding, and nothing else.
fn is_reported(device: &MemoryDevice, (.., code): Field) -> bool {
    let found = findings(Arc::new(device.fork())).unwrap();
    for finding in &found {
        assert_eq!((finding.code.name, finding.place.field), (code, Some("pad")));
    }
    found.len() == 1
}

#[test]
fn padding_that_scrub_refuses_is_reported_and_cleared() {
    require!(Tool("xfs_repair"));
    let images = RepairSample::all();
    for field in REFUSED {
        let mut all = images.iter().flat_map(|image| padded(image, field));
        let padded = all.find(|device| is_reported(device, field));
        let padded = padded.unwrap_or_else(|| panic!("{field:?}: nothing is found"));
        let outcome = repaired(padded).unwrap();
        assert!(outcome.left.is_empty(), "{field:?}: {}", super::shown(&outcome.left));
        assert_eq!(super::complaint(&outcome.device), None, "{field:?}");
    }
}

#[test]
fn padding_that_scrub_accepts_is_not_reported() {
    let images = RepairSample::all();
    for field in ACCEPTED {
        let all: Vec<MemoryDevice> =
            images.iter().flat_map(|image| padded(image, field)).take(TRIES).collect();
        assert!(!all.is_empty(), "{field:?}: no such block");
        assert!(!all.iter().any(|device| is_reported(device, field)), "{field:?}");
    }
}
