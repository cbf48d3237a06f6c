//! `xfs_scrub -n` with the guest's kernel finds nothing in repaired images.
//!
//! With `DISKWRIGHT_REPAIRED_IMAGES=DIR`, the images are written to a directory, too.

use disk::MemoryDevice;
use testkit::crash::write_image;
use testkit::{effort, guest, require, scratch};

use super::subject::repaired;
use super::{RepairSample, much};
use crate::check_damage::Kinds;
use crate::kernel_probe::Probe;

/// Returns damaged forks of an image with descriptions: fields set to limit values, and several damages at once.
fn damaged(image: &RepairSample, step: usize, seeds: u64) -> Vec<(String, MemoryDevice)> {
    let firsts = Kinds::new(&image.bytes, &image.layout).firsts();
    let probes = firsts.into_iter().flat_map(|first| Probe::all(&image.bytes, first));
    let probed = probes.step_by(step).map(|probe| {
        let fork = image.base.fork();
        probe.apply(&fork, &image.layout);
        let magic = image.bytes[probe.structure().start..][..10].escape_ascii();
        (format!("{}: {magic} {probe:?}", image.name), fork)
    });
    let several = (0..seeds).filter_map(|seed| {
        let fork = image.base.fork();
        let (_, place) = much(image, &fork, &mut fastrand::Rng::with_seed(seed))?;
        Some((format!("{}, seed {seed}: {place}", image.name), fork))
    });
    probed.chain(several).collect()
}

/// Not with *quick*, because a start of the guest takes as long as many other tests.
#[test]
fn scrub_finds_nothing_after_a_repair() {
    require!(Guest("XFS_ONLINE_SCRUB"));
    let (step, seeds) = effort((usize::MAX, 0), (120_011, 1), (997, 12));
    if seeds == 0 {
        return;
    }
    let home = scratch();
    let path = home.path().join("image");
    let (mut scrubbed, mut wrong) = (0, Vec::new());
    for image in RepairSample::all() {
        for (name, device) in damaged(&image, step, seeds) {
            let outcome = repaired(device).unwrap_or_else(|error| panic!("{name}: {error}"));
            if !outcome.left.is_empty() {
                continue;
            }
            write_image(&outcome.device, &path).unwrap();
            scrubbed += 1;
            if let Err(found) = guest::scrub(&path) {
                eprintln!("WRONG {name}: found {:?}\n{found}", outcome.codes);
                wrong.push(name);
            }
        }
        println!("{}: {scrubbed} images so far", image.name);
    }
    assert!(wrong.is_empty(), "{} of {scrubbed}:\n{}", wrong.len(), wrong.join("\n"));
}
