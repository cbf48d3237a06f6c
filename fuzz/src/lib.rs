//! What the fuzz targets share: turning their input into a damaged file-system image.
#![forbid(unsafe_code)]

#[path = "../../crates/ext4/tests/common/mod.rs"]
pub mod common;

use std::sync::{Arc, LazyLock};

use blockdev::MemoryDevice;
use common::image::{GOLDEN, device, unpack};
use common::layout::Layout;

struct Base {
    image: Vec<u8>,
    layout: Layout,
    /// Where there is metadata: what is not zero and not the same all over.
    interesting: Vec<usize>,
}

static BASES: LazyLock<Vec<Base>> = LazyLock::new(|| {
    let bases = GOLDEN.iter().map(|(_, packed)| {
        let image = unpack(packed);
        let interesting = interesting(&image);
        Base { layout: Layout::of(&image), image, interesting }
    });
    bases.collect()
});

/// Granularity of [`Base::interesting`], in bytes.
const PIECE_BYTES: usize = 64;

fn interesting(image: &[u8]) -> Vec<usize> {
    let pieces = image.chunks_exact(PIECE_BYTES).enumerate();
    let differing = pieces.filter(|(_, piece)| piece.iter().any(|byte| *byte != piece[0]));
    differing.map(|(nth, _)| nth * PIECE_BYTES).collect()
}

/// A damaged golden image, and a byte to vary what is done with it.
///
/// The first byte chooses the image, the second whether checksums are made right again. Patches
/// follow: where (two bytes that choose a piece of metadata, one for the byte in it), how long
/// (one byte), and the bytes.
pub fn damaged(input: &[u8]) -> Option<(Arc<MemoryDevice>, u8)> {
    let [base, options, patches @ ..] = input else { return None };
    let mut patches = patches;
    let base = &BASES[usize::from(*base) % BASES.len()];
    let mut image = base.image.clone();
    while let [low, high, offset, len, rest @ ..] = patches {
        let piece = usize::from(u16::from_le_bytes([*low, *high])) % base.interesting.len();
        let start = base.interesting[piece] + usize::from(*offset) % PIECE_BYTES;
        let len = (1 + usize::from(*len) % 16).min(rest.len()).min(image.len() - start);
        image[start..start + len].copy_from_slice(&rest[..len]);
        patches = &rest[len..];
    }
    if options & 1 == 0 {
        base.layout.seal(&mut image);
    }
    Some((device(&image), options >> 1))
}
