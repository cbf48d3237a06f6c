//! Parses arbitrary bytes as a state file of a copy and as the index of an increment, also with valid digests. Errors are
//! fine; panics, hangs and unbounded memory are bugs.
#![no_main]

use diskwright::block_copy::{CopyState, IncrementIndex};
use libfuzzer_sys::fuzz_target;
use sha2::{Digest, Sha256};

/// Adds a last line with the digest of all lines.
fn seal(bytes: &[u8]) -> Vec<u8> {
    let digits: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    [bytes, format!("end {digits}\n").as_bytes()].concat()
}

fuzz_target!(|input: &[u8]| {
    for text in [input.to_vec(), seal(input)] {
        if let Ok(state) = CopyState::parse(&text) {
            assert_ne!(state.digest(), [0; 32]);
        }
    }
    let _ = IncrementIndex::parse(input);
});
