//! Memory for requests and answers.

use zerocopy::IntoBytes;

/// Alignment of a buffer in bytes. The kernel copies page by page, so page alignment minimises the
/// number of copies.
const PAGE: usize = 4096;

/// Page-aligned bytes. The allocator provides them zeroed, so unused parts take no memory.
pub(crate) struct Buffer {
    words: Vec<u64>,
    len: usize,
}

impl Buffer {
    pub(crate) fn new(len: usize) -> Self {
        Self { words: vec![0; (len + PAGE).div_ceil(size_of::<u64>())], len }
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        let bytes = self.words.as_mut_bytes();
        let skipped = bytes.as_ptr().align_offset(PAGE);
        &mut bytes[skipped..][..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::Buffer;

    #[test]
    fn a_buffer_starts_at_a_page() {
        for len in [1, 8192, (1 << 20) + 4096] {
            let mut buffer = Buffer::new(len);
            assert_eq!(buffer.bytes().len(), len);
            assert_eq!(buffer.bytes().as_ptr() as usize % 4096, 0);
        }
    }
}
