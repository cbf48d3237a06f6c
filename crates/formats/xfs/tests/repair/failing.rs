//! Repairs of images whose device fails to read.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use operations::repair::{PAGE_BYTES, Staging, make_plan};
use testkit::effort;
use xfs::repair::Repair;

use crate::common::image::{device, golden};
use vfs::check::Silent;

/// A device that fails to read one range.
struct Failing {
    image: MemoryDevice,
    bad: Range<u64>,
}

impl BlockDevice for Failing {
    fn len(&self) -> u64 {
        self.image.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if offset < self.bad.end && self.bad.start < offset + buf.len() as u64 {
            return Err(io::Error::other("a bad sector"));
        }
        self.image.read_at(offset, buf)
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        panic!("a plan writes nothing")
    }

    fn zero_range(&self, _: u64, _: u64) -> io::Result<()> {
        panic!("a plan writes nothing")
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A conclusion from a failed read may be false: unreadable inodes are not free, and an unreadable log is not empty.
#[test]
fn nothing_is_repaired_after_a_failed_read() {
    let image = device(&golden("default"));
    let pages = image.len() / PAGE_BYTES;
    let mut failed = 0;
    // The first pages are the headers of a group and the roots of its trees.
    for page in (0..16).chain((16..pages.min(4096)).step_by(effort(16, 7, 1))) {
        let start = page * PAGE_BYTES;
        let failing = Failing { image: image.fork(), bad: start..start + PAGE_BYTES };
        let staging = Arc::new(Staging::new(Arc::new(failing)));
        match make_plan(&Repair::default(), &staging, &Silent) {
            Ok(plan) if plan.reads_failed > 0 => {
                failed += 1;
                assert!(plan.steps.is_empty(), "page {page}: {:?}", plan.steps[0].actions);
            }
            Ok(plan) => assert!(plan.steps.is_empty() && plan.findings.is_empty(), "page {page}"),
            Err(error) => {
                failed += 1;
                assert!(staging.reads_failed() > 0, "page {page}: {error}");
            }
        }
    }
    assert!(failed > 5, "{failed} of {pages} pages");
}
