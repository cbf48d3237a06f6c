//! False sizes and counts in a hostile image must not cost memory.

use allocation_counter::measure;
use ext4::format::inode::Inode;

use crate::common::image::{GOLDEN, device, unpack};
use crate::common::layout::{ImageStructures, edit_superblock};
use crate::common::walk;

/// Maximum memory for opening an image and reading all of it, including the small cache.
const BYTES_MAX: u64 = 64 << 20;

/// Opens and reads an image. Returns the peak memory use.
fn peak(image: &[u8]) -> u64 {
    let device = device(image);
    measure(|| drop(walk::everything(device))).bytes_max
}

#[track_caller]
fn assert_small(image: &[u8], what: &str) {
    let bytes = peak(image);
    assert!(bytes < BYTES_MAX, "{what}: {bytes} bytes");
}

#[test]
fn claims_take_no_memory() {
    let grown = vec![0_u8; 2 * BYTES_MAX as usize];
    assert!(peak(&grown) < BYTES_MAX, "the device is not part of the measure");
    drop(grown);
    for (name, packed) in GOLDEN {
        let image = unpack(packed);
        let layout = ImageStructures::of(&image);
        sizes(name, &image, &layout);
        counts(name, &image);
    }
}

/// Sets huge sizes in all inodes.
fn sizes(name: &str, image: &[u8], layout: &ImageStructures) {
    for size in [1 << 60, u64::MAX, 1 << 42, 1 << 31] {
        let mut image = image.to_vec();
        for &ino in &layout.inodes {
            let slot = &mut image[layout.slot_range(ino)];
            let mut inode = Inode::from_slot(slot);
            inode.set_size(size);
            let bytes = inode.as_bytes();
            slot[..bytes.len()].copy_from_slice(bytes);
        }
        layout.seal(&mut image);
        assert_small(&image, &format!("{name}, all sizes {size}"));
    }
}

/// Sets counts in the superblock that are too large, in an image that is large but empty.
fn counts(name: &str, image: &[u8]) {
    let far = u32::MAX / 2;
    type Edit = fn(&mut ext4::format::superblock::RawSuperblock, u32);
    let edits: [(&str, Edit); 6] = [
        ("blocks_count", |raw, n| raw.blocks_count_lo = n.into()),
        ("inodes_count", |raw, n| raw.inodes_count = n.into()),
        ("inodes_per_group", |raw, n| raw.inodes_per_group = n.into()),
        ("reserved_gdt_blocks", |raw, n| raw.reserved_gdt_blocks = (n as u16).into()),
        ("first_meta_bg", |raw, n| raw.first_meta_bg = n.into()),
        ("groups", |raw, n| {
            raw.blocks_count_lo = n.into();
            raw.blocks_per_group = 8.into();
            raw.clusters_per_group = 8.into();
            raw.inodes_per_group = 8.into();
            raw.inodes_count = n.into();
        }),
    ];
    for (field, edit) in edits {
        let mut image = image.to_vec();
        edit_superblock(&mut image, |raw| edit(raw, far));
        assert_small(&image, &format!("{name}, huge {field}"));
    }
}
