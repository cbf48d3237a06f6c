//! Images of version 4, which have no checksums: group structures are rebuilt as in version 5.

use disk::{BlockDevice, MemoryDevice};
use testkit::crash::write_image;

use super::RepairSample;
use super::kept::Kept;
use super::subject::{Repaired, repaired};
use crate::common::image::{device, golden};

const IMAGES: [&str; 2] = ["v4", "v4-ftype"];

/// Magic numbers of damaged structures: headers of groups, and trees of space.
const MAGICS: [&[u8]; 4] = [b"XAGF", b"XAGI", b"ABTB", b"ABTC"];

/// Returns the byte offsets of the structures with a magic number.
fn places(bytes: &[u8], magic: &[u8]) -> Vec<usize> {
    (0..bytes.len()).step_by(512).filter(|at| bytes[*at..].starts_with(magic)).collect()
}

fn judge(name: &str, damaged: MemoryDevice) -> Result<(), String> {
    let Repaired { device, left, is_complete, .. } = repaired(damaged)?;
    if !left.is_empty() || !is_complete {
        return Err(format!("{name}: {}", super::shown(&left)));
    }
    let home = testkit::scratch();
    let path = home.path().join("image");
    write_image(&device, &path).unwrap();
    testkit::xfs_repair_verdict(&path)
}

#[test]
fn groups_are_repaired() {
    testkit::require!(Tool("xfs_repair"));
    let mut wrong = Vec::new();
    for name in IMAGES {
        let bytes = golden(name);
        let base = device(&bytes);
        for magic in MAGICS {
            for (nth, at) in places(&bytes, magic).into_iter().enumerate() {
                let mut random = fastrand::Rng::with_seed(nth as u64);
                let damaged = base.fork();
                let noise: Vec<u8> = (0..512).map(|_| random.u8(..)).collect();
                damaged.write_at(at as u64, &noise).unwrap();
                if let Err(fault) = judge(name, damaged) {
                    wrong.push(format!("{} at {at:#x}: {fault}", magic.escape_ascii()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Without the only leaf of the tree of chunks, the chunks are found by the names of their inodes.
#[test]
fn chunks_are_found_by_names() {
    testkit::require!(Tool("xfs_repair"));
    for name in IMAGES {
        let bytes = golden(name);
        let base = device(&bytes);
        let kept = Kept::of(&base);
        let image = RepairSample::new(name, bytes.clone());
        for at in places(&bytes, b"IABT") {
            let damaged = base.fork();
            damaged.write_at(at as u64, &[0; 512]).unwrap();
            let Repaired { device, left, is_complete, .. } = repaired(damaged).unwrap();
            assert!(left.is_empty() && is_complete, "{name}: {}", super::shown(&left));
            testkit::show_image(&device, testkit::xfs_repair_verdict).unwrap();
            kept.check(&image, device, &[]).unwrap();
        }
    }
}

/// Without the tree of chunks and without names, nothing shows which blocks contain inodes: the group is not changed.
#[test]
fn undecidable_damage_is_left_unchanged() {
    for name in IMAGES {
        let bytes = golden(name);
        let damaged = device(&bytes);
        let magics: [&[u8]; 3] = [b"IABT", b"XD2B", b"XD2D"];
        for at in magics.into_iter().flat_map(|magic| places(&bytes, magic)) {
            damaged.write_at(at as u64, &[0; 4096]).unwrap();
        }
        let header = 1024;
        let Repaired { device, left, .. } = repaired(damaged).unwrap();
        assert!(left.iter().any(|finding| finding.code.name.starts_with("xfs-inobt")));
        let mut agi = vec![0; 512];
        device.read_at(header, &mut agi).unwrap();
        assert_eq!(agi, bytes[header as usize..][..512], "{name}: the AGI was changed");
    }
}
