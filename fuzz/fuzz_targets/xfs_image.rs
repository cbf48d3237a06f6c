//! Reads everything from a damaged image. Errors are fine; panics, hangs and unbounded memory are
//! bugs.
#![no_main]

use diskwright_fuzz::xfs::common::walk;
use diskwright_fuzz::xfs::damaged;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    if let Some((device, inodes)) = damaged(input) {
        walk::everything(device, inodes);
    }
});
