//! Chunks, the units of digests.

/// Length of a chunk in bytes.
pub(super) const CHUNK_BYTES: u64 = disk::output::CHUNK_BYTES;

/// A SHA-256.
pub(super) type Digest = [u8; 32];

/// Returns the length of a chunk of a file system of `total` bytes.
pub(super) fn chunk_bytes(number: u64, total: u64) -> u64 {
    CHUNK_BYTES.min(total.saturating_sub(number * CHUNK_BYTES))
}
