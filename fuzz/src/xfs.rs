//! Damaged images of XFS.

#[path = "../../crates/formats/xfs/tests/common/mod.rs"]
pub mod common;
pub mod log;

use std::sync::{Arc, LazyLock};

use common::image::{GOLDEN, device, unpack};
use common::layout::Layout;
use disk::{BlockDevice, MemoryDevice};
use vfs::Ino;

use crate::{PIECE_BYTES, Patches, interesting};

struct Base {
    image: MemoryDevice,
    layout: Layout,
    interesting: Vec<usize>,
}

static BASES: LazyLock<Vec<Base>> = LazyLock::new(|| {
    let bases = GOLDEN.iter().map(|(_, packed)| {
        let image = unpack(packed);
        let layout = Layout::of(&image);
        Base { interesting: interesting(&image), layout, image: device(&image) }
    });
    bases.collect()
});

/// Returns a damaged golden image and the inodes of the undamaged one. The input is as for
/// [`damaged`](crate::damaged). Only checksums of patched structures are recomputed, because the images are larger.
pub fn damaged(input: &[u8]) -> Option<(Arc<MemoryDevice>, &'static [Ino])> {
    let [base, options, patches @ ..] = input else { return None };
    let base = &BASES[usize::from(*base) % BASES.len()];
    let image = base.image.fork();
    for (choice, offset, bytes) in Patches(patches) {
        let piece = base.interesting[choice % base.interesting.len()];
        let start = piece + offset % PIECE_BYTES;
        let end = (start + bytes.len()).min(image.len() as usize);
        image.write_at(start as u64, &bytes[..end - start]).ok()?;
        if options & 1 == 0 {
            base.layout.seal(&image, start..end);
        }
    }
    Some((Arc::new(image), &base.layout.inodes))
}
