//! Damaged images: whatever an image contains, reading and filling it ends soon and without a panic.

use crate::common;

use common::fill;
use common::image::{GOLDEN, device, unpack};
use common::layout::ImageStructures;
use common::walk::{self, WalkResult};
use vfs::Error;

/// Maximum number of device reads of a walk over a damaged golden image: a few times that of a valid one.
const READS_MAX: u64 = 100_000;
/// Maximum numbers of entries and bytes.
const ENTRIES_MAX: usize = 200_000;
const BYTES_MAX: u64 = 200 << 20;

/// A small random generator (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// Reads everything and checks that the work is bounded.
fn survive(image: &[u8], what: &str) -> WalkResult {
    let outcome = walk::everything(device(image));
    let bounded =
        outcome.reads < READS_MAX && outcome.entries < ENTRIES_MAX && outcome.bytes < BYTES_MAX;
    assert!(
        bounded,
        "{what}: {} reads, {} entries, {} bytes",
        outcome.reads, outcome.entries, outcome.bytes
    );
    outcome
}

#[test]
fn golden_images_are_sound() {
    for (name, packed) in GOLDEN {
        let image = unpack(packed);
        let outcome = survive(&image, name);
        // Fifos and free inodes that are marked used have no contents to read.
        let real: Vec<_> =
            outcome.errors.iter().filter(|e| !matches!(e, Error::Invalid(_))).collect();
        assert!(real.is_empty(), "{name}: {real:?}");
        assert!(outcome.paths > 90, "{name}: {} paths", outcome.paths);
        let mut sealed = image.clone();
        ImageStructures::of(&image).seal(&mut sealed);
        assert!(sealed == image, "{name}: sealing changes nothing where all is right");
    }
}

/// Runs `damage` on each golden image, with one thread per processor.
fn on_each_golden(damage: impl Fn(&str, &[u8], &ImageStructures) + Sync) {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let nth = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let Some((name, packed)) = GOLDEN.get(nth) else { break };
                    let image = unpack(packed);
                    damage(name, &image, &ImageStructures::of(&image));
                }
            });
        }
    });
}

/// Changes 1 to 8 bytes at one to three positions with metadata.
fn corrupt(image: &mut [u8], places: &[usize], random: &mut Random) {
    for _ in 0..1 + random.below(3) {
        let start = places[random.below(places.len())] + random.below(64);
        let len = (1 + random.below(8)).min(image.len() - start);
        let kind = random.below(4);
        for byte in &mut image[start..start + len] {
            *byte = match kind {
                0 => 0,
                1 => 0xff,
                2 => *byte ^ 1 << random.below(8),
                _ => random.next() as u8,
            };
        }
    }
}

/// Returns the offsets of 64-byte pieces whose bytes are not all the same.
fn places(image: &[u8]) -> Vec<usize> {
    let pieces = image.as_chunks::<64>().0.iter().enumerate();
    pieces.filter(|(_, p)| p.iter().any(|b| *b != p[0])).map(|(nth, _)| nth * 64).collect()
}

fn random_corruptions(rounds: u64, then: impl Fn(&[u8], &str) + Sync) {
    on_each_golden(|name, image, layout| {
        let places = places(image);
        for seed in 0..rounds {
            let mut random = Random(seed);
            let mut damaged = image.to_vec();
            corrupt(&mut damaged, &places, &mut random);
            if seed % 4 != 0 {
                layout.seal(&mut damaged);
            }
            then(&damaged, &format!("{name}, seed {seed}"));
        }
    });
}

#[test]
fn random_corruptions_are_read() {
    random_corruptions(testkit::effort(300, 400, 100_000), |image, what| {
        drop(survive(image, what));
    });
}

#[test]
fn random_corruptions_are_written_to() {
    random_corruptions(testkit::effort(100, 120, 25_000), |image, what| {
        let device = device(image);
        fill::everything(device.clone(), what.len() as u8 * 7);
        walk::everything(device);
    });
}

#[test]
fn truncated_images_are_read() {
    on_each_golden(|name, image, _| {
        for nth in 0..64 {
            let len = image.len() * nth / 64 + nth % 3;
            survive(&image[..len], &format!("{name}, {len} bytes"));
        }
    });
}

#[test]
fn zeroed_blocks_are_read() {
    on_each_golden(|name, image, layout| {
        let size = layout.geometry.block_size() as usize;
        for block in (0..image.len() / size).filter(|b| image[b * size..][..size] != vec![0; size])
        {
            let mut damaged = image.to_vec();
            damaged[block * size..][..size].fill(0);
            survive(&damaged, &format!("{name}, block {block} zeroed"));
        }
    });
}
