//! Parses arbitrary bytes as the chunks of an NBD server's reply to a read or a request for the status of blocks. Errors are
//! fine; panics, hangs and unbounded memory are bugs.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remote::nbd::parse_reply;

/// Commands of requests.
const READ: u16 = 0;
const BLOCK_STATUS: u16 = 7;

fuzz_target!(|input: (u32, u64, Vec<u8>)| {
    let (len, offset, bytes) = input;
    let len = len % (1 << 20);
    if let Ok(Some((contents, _))) = parse_reply(READ, offset, len, &bytes) {
        assert!(len == 0 || contents.len() == len as usize);
    }
    if let Ok(Some((_, extents))) = parse_reply(BLOCK_STATUS, offset, len, &bytes) {
        assert!(extents > 0);
    }
});
