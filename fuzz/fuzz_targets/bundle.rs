//! Parses arbitrary bytes as a metadata bundle, also with valid checksums. Errors are fine; panics, hangs and unbounded
//! memory are bugs.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remote::bundle::format::HEADER_BYTES;
use remote::bundle::{ExtentSource, Head, Tables};
use sha2::{Digest, Sha256};

/// Maximum number of frames that are decompressed.
const FRAMES_MAX: u32 = 8;

/// Bytes before the digests of a header: that of the tables, and its own.
const TABLES_DIGEST: usize = HEADER_BYTES - 64;
const CHECKSUM: usize = HEADER_BYTES - 32;

/// Corrects both digests of a header.
fn seal(bytes: &mut [u8]) {
    let word = |at: usize, len: usize| {
        bytes[at..at + len].iter().rev().fold(0_u64, |word, byte| word << 8 | u64::from(*byte))
    };
    // Lengths of the identity and of the extents, and the number of frames, as in `RawHeader`.
    let tables = word(12, 4).saturating_add(word(24, 8)).saturating_add(word(44, 4) * 36);
    let end = usize::try_from(tables).unwrap_or(usize::MAX).saturating_add(HEADER_BYTES);
    let digest = Sha256::digest(&bytes[HEADER_BYTES..end.min(bytes.len())]);
    bytes[TABLES_DIGEST..CHECKSUM].copy_from_slice(&digest);
    let digest = Sha256::digest(&bytes[..CHECKSUM]);
    bytes[CHECKSUM..HEADER_BYTES].copy_from_slice(&digest);
}

fn parse(bytes: &[u8]) {
    let Ok(head) = Head::parse(bytes) else { return };
    let rest = bytes.get(HEADER_BYTES..).unwrap_or_default();
    let len = usize::try_from(head.tables_bytes()).expect("limited").min(rest.len());
    let Ok(tables) = Tables::parse(&head, &rest[..len]) else { return };
    let mut end = 0;
    for (part, source) in tables.index.parts(0..head.image_bytes) {
        assert_eq!(part.start, end);
        end = part.end;
        if let ExtentSource::Stream(at) = source {
            assert!(at < tables.stream_bytes());
        }
    }
    assert_eq!(end, head.image_bytes);
    for number in 0..tables.frames().min(FRAMES_MAX) {
        let (start, len) = tables.frame_location(number);
        let stored =
            usize::try_from(start).ok().and_then(|start| bytes.get(start..)?.get(..len as usize));
        let _ = stored.map(|stored| tables.unpack(number, stored));
    }
}

fuzz_target!(|input: &[u8]| {
    parse(input);
    if input.len() >= HEADER_BYTES {
        let mut sealed = input.to_vec();
        seal(&mut sealed);
        parse(&sealed);
    }
});
