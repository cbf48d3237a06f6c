//! Reads arbitrary bytes as a tar archive, compressed or not. Errors are fine; panics, hangs and unbounded memory are
//! bugs.
#![no_main]

use std::io::Cursor;

use import::{Source, TarSource};
use libfuzzer_sys::fuzz_target;

/// Limit of the decompressed bytes to read.
const BYTES_MAX: usize = 64 << 20;

fuzz_target!(|input: &[u8]| {
    let Ok(mut archive) = TarSource::from_stream(Cursor::new(input.to_vec()), "archive") else {
        return;
    };
    let mut buffer = vec![0; 64 << 10];
    let mut total = 0;
    while let Ok(Some(_)) = archive.next_entry() {
        while let Ok(count @ 1..) = archive.read(&mut buffer) {
            total += count;
            if total > BYTES_MAX {
                return;
            }
        }
    }
});
