//! Padding of directory and attribute blocks. Kernels write zeros, and accept other values, as `xfs_repair` does.
//! `xfs_scrub` refuses some of them, for instance at byte 10 of a hash index block.

use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use testkit::require;

use super::Image;
use super::subject::repaired;
use crate::checking::findings;

/// Magic number with its offset, padding with its length, and code of the finding.
const FIELDS: [(&[u8], usize, usize, usize, &str); 8] = [
    (b"XDD3", 0, 60, 4, "xfs-dir-data"),
    (b"XDB3", 0, 60, 4, "xfs-dir-data"),
    (b"XDF3", 0, 60, 4, "xfs-dir-free"),
    (&[0x3d, 0xff], 8, 10, 2, "xfs-dir-leaf"),
    (&[0x3d, 0xff], 8, 60, 4, "xfs-dir-leaf"),
    (&[0x3b, 0xee], 8, 10, 2, "xfs-attr"),
    (&[0x3b, 0xee], 8, 63, 1, "xfs-attr"),
    (&[0x3b, 0xee], 8, 76, 4, "xfs-attr"),
];
/// Maximum number of blocks tried. The magic number may be in freed blocks, too.
const TRIES: usize = 8;

/// Returns an image with one nonzero padding, which the check reports with one finding.
fn padded(image: &Image, field: &(&[u8], usize, usize, usize, &str)) -> Option<MemoryDevice> {
    let (magic, magic_at, at, len, code) = *field;
    let is_one = |start: &usize| image.bytes[start + magic_at..].starts_with(magic);
    let starts = image.layout.structures.iter().map(|structure| structure.start);
    let damaged = |start: usize| {
        let fork = image.base.fork();
        let range = start + at..start + at + len;
        fork.write_at(range.end as u64 - 1, &[1]).unwrap();
        image.layout.seal(&fork, range);
        let found = findings(Arc::new(fork.fork())).unwrap();
        let [finding] = &found[..] else { return None };
        assert_eq!((finding.code.name, finding.place.field), (code, Some("pad")));
        Some(fork)
    };
    starts.filter(is_one).take(TRIES).find_map(damaged)
}

#[test]
fn padding_is_reported_and_cleared() {
    require!(Tool("xfs_repair"));
    let images = Image::all();
    for field in &FIELDS {
        let padded = images.iter().find_map(|image| padded(image, field));
        let padded = padded.unwrap_or_else(|| panic!("{field:?}: nothing is found"));
        let outcome = repaired(padded).unwrap();
        assert!(outcome.left.is_empty(), "{field:?}: {}", super::shown(&outcome.left));
        assert_eq!(super::complaint(&outcome.device), None, "{field:?}");
    }
}
