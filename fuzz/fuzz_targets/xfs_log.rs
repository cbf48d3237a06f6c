//! Opens an image with a log described by the input. Errors are fine. Panics, hangs, unbounded memory, and a changed
//! image after an error are bugs.
#![no_main]

use diskwright_fuzz::xfs::log;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| log::replay(input));
