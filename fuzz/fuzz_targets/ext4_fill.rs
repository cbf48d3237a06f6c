//! Writes to a damaged image, as the builder does to a sound one, and reads the result. Errors are
//! fine; panics, hangs and unbounded memory are bugs.
#![no_main]

use diskwright_fuzz::common::{fill, walk};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    if let Some((device, seed)) = diskwright_fuzz::damaged(input) {
        fill::everything(device.clone(), seed);
        walk::everything(device);
    }
});
