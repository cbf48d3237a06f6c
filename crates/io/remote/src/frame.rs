//! Compressed contents of known length and digest: one zstd frame, readable by any zstd decoder.

use structured_zstd::decoding::FrameDecoder;
use structured_zstd::encoding::{CompressionLevel, compress_slice_to_vec};

use crate::digest::Digest;

/// The default level of `zstd`.
const LEVEL: i32 = 3;

/// Maximum overhead of a frame with incompressible contents: its header, and three bytes for each block of at most 128
/// KiB, with a margin.
const FRAME_BYTES_MAX: usize = 1 << 10;

pub(crate) fn pack(contents: &[u8]) -> Vec<u8> {
    compress_slice_to_vec(contents, CompressionLevel::Level(LEVEL))
}

/// Maximum size of a frame with `len` bytes of contents.
pub(crate) fn packed_bytes_max(len: usize) -> usize {
    len + len / 128 + FRAME_BYTES_MAX
}

/// Decompresses a frame and verifies the length and the digest of its contents. The error describes the difference.
pub(crate) fn unpack(packed: &[u8], len: usize, digest: Digest) -> Result<Vec<u8>, String> {
    let mut contents = vec![0; len];
    let mut decoder = FrameDecoder::new();
    let count = decoder
        .decode_all(packed, &mut contents)
        .map_err(|e| format!("not a zstd frame of {len} bytes ({e})"))?;
    if count != len {
        return Err(format!("expected {len} bytes, found {count}"));
    }
    let found = Digest::of(&contents);
    if found != digest {
        return Err(digest.differs_from(found));
    }
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_chunks_can_be_unpacked() {
        let mut random = fastrand::Rng::with_seed(3);
        for len in [1, 4096, 5000, 1 << 17, 1 << 20] {
            for distinct in [1, 4, 255] {
                let contents: Vec<u8> = (0..len).map(|_| random.u8(0..distinct)).collect();
                let packed = pack(&contents);
                assert!(packed.len() <= packed_bytes_max(len), "{len}: {}", packed.len());
                assert!(unpack(&packed, len, Digest::of(&contents)).unwrap() == contents);
            }
        }
    }

    #[test]
    fn damage_is_reported() {
        let contents = vec![7; 5000];
        let (digest, packed) = (Digest::of(&contents), pack(&contents));
        let problem = |packed: &[u8], len| unpack(packed, len, digest).unwrap_err();
        assert!(problem(&packed, 4999).contains("4999"));
        assert!(problem(&packed, 5001).contains("found 5000"));
        assert!(problem(&packed[..packed.len() - 1], 5000).contains("not a zstd frame"));
        assert!(problem(&pack(&[8; 5000]), 5000).contains("SHA-256"));
        assert!(problem(b"", 5000).contains("found 0"));
        for at in 0..packed.len() {
            let mut damaged = packed.clone();
            damaged[at] ^= 0x11;
            if let Ok(found) = unpack(&damaged, 5000, digest) {
                assert!(found == contents, "byte {at}");
            }
        }
    }
}
