//! Reading damaged images ends soon and without a panic, whatever they contain.

use crate::common;

use std::sync::Arc;

use common::image::{GOLDEN, device, unpack};
use common::layout::Layout;
use common::walk::{self, WalkResult};
use disk::BlockDevice;

/// Maximum number of device reads for a walk over a damaged golden image: a few times the number for a valid one.
const READS_MAX: u64 = 200_000;
/// Maximum number of entries, and of bytes below.
const ENTRIES_MAX: usize = 200_000;
const BYTES_MAX: u64 = 400 << 20;
/// Reads everything and checks that the work was bounded.
fn survive(device: Arc<dyn BlockDevice>, layout: &Layout, what: &str) -> WalkResult {
    let outcome = walk::everything(device, &layout.inodes);
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
        let layout = Layout::of(&image);
        let sealed = device(&image);
        layout.seal(&sealed, 0..image.len());
        let mut bytes = vec![0; image.len()];
        sealed.read_at(0, &mut bytes).unwrap();
        assert!(bytes == image, "{name}: sealing changes nothing where all is right");
        let outcome = survive(Arc::new(sealed), &layout, name);
        // FIFOs have no contents to read.
        let real: Vec<_> =
            outcome.errors.iter().filter(|e| !matches!(e, vfs::Error::Invalid(_))).collect();
        assert!(real.is_empty(), "{name}: {real:?}");
        let paths_min = match *name {
            "metadir-quota" => 7,
            "shared" => 20,
            _ => 300,
        };
        assert!(outcome.paths > paths_min, "{name}: {} paths", outcome.paths);
    }
}

/// Damages metadata at random, with valid checksums, and reads the rest.
#[test]
fn sealed_damage_is_survived() {
    std::thread::scope(|scope| {
        for (name, packed) in GOLDEN {
            scope.spawn(move || {
                let image = unpack(packed);
                let layout = Layout::of(&image);
                let base = device(&image);
                for seed in 0..testkit::effort(60, 75, 20_000) {
                    let mut random = fastrand::Rng::with_seed(seed);
                    let damaged = base.fork();
                    for _ in 0..random.usize(1..4) {
                        damage(&damaged, &image, &layout, &mut random);
                    }
                    survive(Arc::new(damaged), &layout, &format!("{name}, seed {seed}"));
                }
            });
        }
    });
}

/// Changes up to eight bytes of a structure, mostly near its start, in its header.
fn damage(device: &dyn BlockDevice, image: &[u8], layout: &Layout, random: &mut fastrand::Rng) {
    let (start, len) = if layout.structures.is_empty() {
        // Version 4: any piece that is not empty.
        let used = |at: &usize| image[*at..at + 64].iter().any(|byte| *byte != 0);
        let at = std::iter::repeat_with(|| random.usize(..image.len() / 64) * 64).find(used);
        (at.expect("an image is not empty"), 64)
    } else {
        let structure = layout.structures[random.usize(..layout.structures.len())];
        (structure.start, structure.len)
    };
    let within = if random.bool() { len.min(128) } else { len };
    let count = random.usize(1..=8);
    let at = start + random.usize(..within - count);
    let bytes: Vec<u8> = match random.u8(..3) {
        0 => vec![0; count],
        1 => vec![0xff; count],
        _ => (0..count).map(|_| random.u8(..)).collect(),
    };
    device.write_at(at as u64, &bytes).expect("memory writes");
    layout.seal(device, at..at + count);
}
