//! Code shared by the fuzz targets: converts their input to a damaged file-system image.
#![forbid(unsafe_code)]

#[path = "../../crates/formats/ext4/tests/common/mod.rs"]
pub mod common;
pub mod xfs;

use std::sync::{Arc, LazyLock};

use common::image::{GOLDEN, device, unpack};
use common::layout::ImageStructures;
use disk::MemoryDevice;

struct Base {
    image: Vec<u8>,
    layout: ImageStructures,
    /// Offsets of pieces with metadata: those that are neither zero nor uniform.
    interesting: Vec<usize>,
}

static BASES: LazyLock<Vec<Base>> = LazyLock::new(|| {
    let bases = GOLDEN.iter().map(|(_, packed)| {
        let image = unpack(packed);
        let interesting = interesting(&image);
        Base { layout: ImageStructures::of(&image), image, interesting }
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

/// Patches of an input: each has bytes that choose a piece of metadata and a byte in it, and the new bytes.
struct Patches<'a>(&'a [u8]);

impl<'a> Iterator for Patches<'a> {
    type Item = (usize, usize, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let [low, high, offset, len, rest @ ..] = self.0 else { return None };
        let (bytes, rest) = rest.split_at((1 + usize::from(*len) % 16).min(rest.len()));
        self.0 = rest;
        let choice = usize::from(u16::from_le_bytes([*low, *high]));
        Some((choice, usize::from(*offset), bytes))
    }
}

/// Returns a damaged golden image, and a byte that varies its use.
///
/// The first byte chooses the image, the second whether checksums are recomputed. Patches follow: a location (two
/// bytes choose a piece of metadata, one the byte in it), a length (one byte), and the bytes.
pub fn damaged(input: &[u8]) -> Option<(Arc<MemoryDevice>, u8)> {
    let [base, options, patches @ ..] = input else { return None };
    let base = &BASES[usize::from(*base) % BASES.len()];
    let mut image = base.image.clone();
    for (choice, offset, bytes) in Patches(patches) {
        let piece = base.interesting[choice % base.interesting.len()];
        let start = piece + offset % PIECE_BYTES;
        let end = (start + bytes.len()).min(image.len());
        image[start..end].copy_from_slice(&bytes[..end - start]);
    }
    if options & 1 == 0 {
        base.layout.seal(&mut image);
    }
    Some((device(&image), options >> 1))
}
