//! Memory for the metadata caches of all images that are open in this process.
//!
//! The first image gets the default size of its format. Each further image gets a quarter of the remaining memory, and
//! at least [`BYTES_MIN`]. A thousand open clones are thus bounded, and a few images are as fast as a single one.

use parking_lot::Mutex;

/// Memory that is shared, in bytes.
const TOTAL_BYTES: usize = 4 * BYTES_MAX;

/// Largest cache of an image without a chosen size: the default of both formats.
const BYTES_MAX: usize = 256 << 20;

/// Smallest cache of an image. An idle or small image uses less.
const BYTES_MIN: usize = 2 << 20;

const _: () =
    assert!(BYTES_MAX == ::ext4::CACHE_BYTES_DEFAULT && BYTES_MAX == ::xfs::CACHE_BYTES_DEFAULT);

/// Bytes that open images have.
static USED: Mutex<usize> = Mutex::new(0);

/// Memory of one open image, in bytes. Dropping it returns the memory.
#[derive(Debug)]
pub(crate) struct CacheShare(usize);

impl CacheShare {
    /// Claims memory for an image.
    pub(crate) fn claim() -> Self {
        let mut used = USED.lock();
        let bytes = share(*used);
        *used += bytes;
        Self(bytes)
    }

    /// Returns the size of the cache in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.0
    }
}

impl Drop for CacheShare {
    fn drop(&mut self) {
        *USED.lock() -= self.0;
    }
}

/// Returns the size of the next cache.
fn share(used: usize) -> usize {
    (TOTAL_BYTES.saturating_sub(used) / 4).clamp(BYTES_MIN, BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_images_are_bounded() {
        let mut used = 0;
        let mut sizes = Vec::new();
        for _ in 0..1000 {
            sizes.push(share(used));
            used += share(used);
        }
        assert_eq!(sizes[..3], [256 << 20, 192 << 20, 144 << 20]);
        assert_eq!(sizes[999], BYTES_MIN);
        assert!(used < TOTAL_BYTES + 1000 * BYTES_MIN, "{used}");
        let share = CacheShare::claim();
        assert!(*USED.lock() >= share.bytes() && share.bytes() >= BYTES_MIN);
    }
}
