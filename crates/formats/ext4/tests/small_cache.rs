//! A cache that holds a small part of an image, so that blocks are read repeatedly.

use std::sync::Arc;

use testkit::require;
use vfs::FileSystem as _;

use crate::changing::{ImageParameters, MIB, SMALL_CACHE_BYTES, assert_clean, open};
use crate::names::common::NEW;

/// Length of contents that exceed the cache.
const FILE_BYTES: usize = 400 << 10;

/// Descriptors of 32 bytes have room for half of a bitmap's checksum.
#[test]
fn bitmaps_are_read_with_any_descriptor_flags() {
    require!(Tool("e2fsck"));
    for features in ["", "^64bit", "^metadata_csum,^64bit", ImageParameters::BLOCK_MAPS.features] {
        let layout = ImageParameters { size: 64 * MIB, features, ..ImageParameters::SMALL_BLOCKS };
        let device = Arc::new(layout.make());
        let fs = open(device.clone(), SMALL_CACHE_BYTES).unwrap();
        let data = vec![7; FILE_BYTES];
        for round in 0..3 {
            for number in 0..100 {
                let name = format!("file {number}");
                if round > 0 {
                    fs.unlink(fs.root(), name.as_bytes(), None).unwrap();
                }
                let ino = fs.create(fs.root(), name.as_bytes(), &NEW).unwrap();
                let written = fs.write(ino, 0, &data, None);
                assert!(written.is_ok(), "{layout:?}: round {round}, {name}: {written:?}");
            }
        }
        fs.close().unwrap();
        assert_clean(&device);
    }
}
