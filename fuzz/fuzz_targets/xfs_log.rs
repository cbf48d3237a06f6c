//! Opens an image whose log is what the input says. Errors are fine; panics, hangs, unbounded memory, and a
//! changed image after an error are bugs.
#![no_main]

use diskwright_fuzz::xfs::log;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| log::replay(input));
