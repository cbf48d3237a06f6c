//! Images of version 4, which have no checksums: group structures are rebuilt as in version 5.

use disk::{BlockDevice, MemoryDevice};
use testkit::crash::write_image;
use xfs::format::bytes::be32;

use super::kept::Kept;
use super::subject::{Repaired, repaired};
use super::{RepairSample, shown};
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
        return Err(format!("{name}: {}", shown(&left)));
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
            assert!(left.is_empty() && is_complete, "{name}: {}", shown(&left));
            testkit::show_image(&device, testkit::xfs_repair_verdict).unwrap();
            kept.check(&image, device, &[]).unwrap();
        }
    }
}

/// Byte offsets of the first AGI and of its `agi_count`.
const AGI: u64 = 1024;
const COUNT: u64 = AGI + 16;

/// Returns an image without the tree of chunks and without names.
fn without_names(bytes: &[u8]) -> MemoryDevice {
    let damaged = device(bytes);
    let magics: [&[u8]; 3] = [b"IABT", b"XD2B", b"XD2D"];
    for at in magics.into_iter().flat_map(|magic| places(bytes, magic)) {
        damaged.write_at(at as u64, &[0; 4096]).unwrap();
    }
    damaged
}

/// If the blocks that look like chunks contain as many inodes as the header counts, they are the chunks.
#[test]
fn counts_of_the_header_show_the_chunks() {
    for name in IMAGES {
        let bytes = golden(name);
        let Repaired { device, left, .. } = repaired(without_names(&bytes)).unwrap();
        assert!(left.is_empty(), "{name}: {}", shown(&left));
        let mut count = [0; 4];
        device.read_at(COUNT, &mut count).unwrap();
        // The repair may add a chunk for lost+found.
        assert!(be32(&count, 0) >= be32(&bytes, COUNT as usize), "{name}");
    }
}

/// If the header counts other inodes, nothing shows which blocks contain inodes: the group is not changed.
#[test]
fn undecidable_damage_is_left_unchanged() {
    for name in IMAGES {
        let mut bytes = golden(name);
        let count = be32(&bytes, COUNT as usize) + 64;
        bytes[COUNT as usize..][..4].copy_from_slice(&count.to_be_bytes());
        let Repaired { device, left, .. } = repaired(without_names(&bytes)).unwrap();
        assert!(left.iter().any(|finding| finding.code.name.starts_with("xfs-inobt")));
        let mut agi = vec![0; 512];
        device.read_at(AGI, &mut agi).unwrap();
        assert_eq!(agi, bytes[AGI as usize..][..512], "{name}: the AGI was changed");
    }
}
