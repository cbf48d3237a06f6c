//! Damaged images: reading, checking and repairing them has the same result on every host, without panics.

use std::error::Error;
use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use operations::repair::{Staging, make_plan};

use crate::digest::{Digest, bytes_of};
use crate::images::{self, Findings, ImageFormat};
use crate::load::Random;

/// Number of images, each damaged in a different way.
const IMAGES: u64 = 40;
/// Number of damaged bytes in each image.
const PLACES: u64 = 6;
/// Size of the blocks in bytes. Only blocks with contents are damaged.
const BLOCK_BYTES: usize = 1024;

/// Damages an image in many ways. Returns the digest of the results.
pub(crate) fn look(format: ImageFormat, image: &MemoryDevice) -> Result<u32, Box<dyn Error>> {
    let bytes = bytes_of(image)?;
    let blocks = bytes.chunks(BLOCK_BYTES).enumerate();
    let used: Vec<usize> =
        blocks.filter(|(_, block)| block.iter().any(|&b| b != 0)).map(|(at, _)| at).collect();
    let mut digest = Digest::default();
    for seed in 0..IMAGES {
        let mut random = Random::new(seed);
        let damaged = Arc::new(image.fork());
        for _ in 0..PLACES {
            // Early blocks affect the whole image.
            let early = used.len().min(if random.below(2) == 0 { 200 } else { usize::MAX });
            let block = used[random.index(early)] * BLOCK_BYTES;
            let place = (block + random.index(BLOCK_BYTES)) as u64;
            let value = [0, 0xff, 0x80, random.below(256) as u8][random.index(4)];
            let len = 1 + random.index(8);
            damaged.write_at(place.min(damaged.len() - 8), &[value; 8][..len])?;
        }
        digest.add(&one(format, &damaged));
    }
    Ok(digest.finish())
}

/// Returns all results for one image.
fn one(format: ImageFormat, damaged: &Arc<MemoryDevice>) -> Vec<u8> {
    let read = images::read(format, damaged);
    let found = images::check(format, Arc::clone(damaged) as _);
    let staging = Arc::new(Staging::new(Arc::clone(damaged) as _));
    let plan = make_plan(&*format.repairer(), &staging, &Findings::default());
    let plan = plan.map(|plan| (plan.steps, plan.left));
    format!("{read:?} {found:?} {plan:?}").into_bytes()
}
