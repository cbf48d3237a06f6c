//! Repair of quotas, which no kernel at hand counts: files of quotas are made by hand.

use std::sync::Arc;

use blockdev::{BlockDevice, MemoryDevice};
use xfs::format::bytes::be16;
use xfs::format::checksum;
use xfs::format::geometry::Geometry;
use xfs::format::log::dquot::{CRC_OFFSET as DQUOT_CRC, DQUOT_BLOCK_SIZE, MAGIC as DQUOT_MAGIC};
use xfs::{OpenOptions, Xfs};

use super::quota_files;
use super::subject::repaired;
use crate::common::image::{device, golden};

/// An image with a file of quotas that have counted nothing, and where its block is.
fn with_quotas() -> (MemoryDevice, u64) {
    let device = Arc::new(device(&golden("default")));
    let fs = Xfs::open_writable(device.clone(), &OpenOptions::default()).unwrap();
    let geometry = Geometry::new(fs.superblock());
    let (ino, at) = quota_files::add_file(&fs, &geometry.meta_uuid);
    fs.close().unwrap();
    quota_files::name_in_superblock(&device, ino);
    (device.fork(), at)
}

#[test]
fn quotas_are_marked_as_not_counted() {
    let (image, at) = with_quotas();
    // Wrong counts; a quota that is none, twice; a wrong checksum.
    for harm in
        [&[][..], &[0], &[DQUOT_BLOCK_SIZE, 7 * DQUOT_BLOCK_SIZE], &[3 * DQUOT_BLOCK_SIZE + 60]]
    {
        let damaged = image.fork();
        for byte in harm {
            damaged.write_at(at + *byte as u64, &[0xee; 2]).unwrap();
        }
        let outcome = repaired(damaged).unwrap();
        assert!(outcome.codes.iter().any(|code| code.starts_with("xfs-quota")), "{harm:?}");
        assert!(outcome.left.is_empty() && outcome.is_complete, "{harm:?}: {:?}", outcome.left);
        assert!(!outcome.is_repaired_again, "{harm:?}");
        let mut sector = vec![0; 512];
        outcome.device.read_at(0, &mut sector).unwrap();
        assert_eq!(be16(&sector, 176), 1 | 2, "{harm:?}");
        let mut block = vec![0; 4096];
        outcome.device.read_at(at, &mut block).unwrap();
        for quota in block.chunks_exact(DQUOT_BLOCK_SIZE) {
            assert_eq!(be16(quota, 0), DQUOT_MAGIC, "{harm:?}");
            checksum::check("quota", quota, DQUOT_CRC).unwrap();
        }
    }
}
