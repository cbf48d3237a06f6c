//! Detection of samples that were made by real tools (`tests/partition/samples/make`), and of damaged ones.

use std::fs;
use std::path::Path;

use crate::{BlockDevice, MemoryDevice};

use super::*;

/// Returns the device that a sample describes.
fn sample(name: &str) -> MemoryDevice {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/partition/samples/{name}.txt"));
    let text = fs::read_to_string(path).unwrap();
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let size = lines.next().unwrap().strip_prefix("size ").unwrap().parse().unwrap();
    let device = MemoryDevice::new(size);
    for line in lines {
        let (at, hex) = line.split_once(' ').unwrap();
        let digits = hex.as_bytes().chunks(2).map(|two| std::str::from_utf8(two).unwrap());
        let bytes: Vec<u8> = digits.map(|two| u8::from_str_radix(two, 16).unwrap()).collect();
        device.write_at(u64::from_str_radix(at, 16).unwrap(), &bytes).unwrap();
    }
    device
}

fn first(name: &str) -> DetectedFormat {
    let found = find_all(&sample(name)).unwrap();
    assert_eq!(found.len(), 1, "{name}: {found:?}");
    found.into_iter().next().unwrap()
}

/// Sample, name, category and offset of the magic number.
const SAMPLES: [(&str, &str, Usage, u64); 47] = [
    ("android-sparse", "android-sparse", Usage::Container, 0),
    ("apfs", "apfs", Usage::FileSystem, 32),
    ("bcache", "bcache", Usage::Other, 4120),
    ("bcachefs", "bcachefs", Usage::FileSystem, 4120),
    ("btrfs", "btrfs", Usage::FileSystem, 65600),
    ("bzip2", "bzip2", Usage::Container, 0),
    ("cramfs", "cramfs", Usage::FileSystem, 0),
    ("ddf", "ddf_raid_member", Usage::Raid, (16 << 20) - 512),
    ("dos", "dos", Usage::Table, 510),
    ("drbd", "drbd", Usage::Raid, (16 << 20) - 4096 + 60),
    ("erofs", "erofs", Usage::FileSystem, 1024),
    ("exfat", "exfat", Usage::FileSystem, 3),
    ("f2fs", "f2fs", Usage::FileSystem, 1024),
    ("fat12", "vfat", Usage::FileSystem, 54),
    ("fat16", "vfat", Usage::FileSystem, 54),
    ("fat32", "vfat", Usage::FileSystem, 82),
    ("gpt", "gpt", Usage::Table, 512),
    ("gzip", "gzip", Usage::Container, 0),
    ("hfsplus", "hfsplus", Usage::FileSystem, 1024),
    ("iso9660", "iso9660", Usage::FileSystem, 32769),
    ("jfs", "jfs", Usage::FileSystem, 32768),
    ("luks1", "crypto_LUKS", Usage::Crypto, 0),
    ("luks2", "crypto_LUKS", Usage::Crypto, 0),
    ("lvm2", "LVM2_member", Usage::Raid, 512),
    ("md-0.90", "linux_raid_member", Usage::Raid, (16 << 20) - 65536),
    ("md-1.0", "linux_raid_member", Usage::Raid, (16 << 20) - 8192),
    ("md-1.1", "linux_raid_member", Usage::Raid, 0),
    ("md-1.2", "linux_raid_member", Usage::Raid, 4096),
    ("nilfs2", "nilfs2", Usage::FileSystem, 1030),
    ("ntfs", "ntfs", Usage::FileSystem, 3),
    ("parallels", "parallels", Usage::Container, 0),
    ("qcow2", "qcow2", Usage::Container, 0),
    ("qed", "qed", Usage::Container, 0),
    ("reiserfs", "reiserfs", Usage::FileSystem, 65588),
    ("sgi", "sgi", Usage::Table, 0),
    ("squashfs", "squashfs", Usage::FileSystem, 0),
    ("sun", "sun", Usage::Table, 508),
    ("swap", "swap", Usage::Other, 4086),
    ("tar", "tar", Usage::Container, 257),
    ("udf", "udf", Usage::FileSystem, 34817),
    ("vdi", "vdi", Usage::Container, 64),
    ("vhd", "vhd", Usage::Container, 0),
    ("vhdx", "vhdx", Usage::Container, 0),
    ("vmdk", "vmdk", Usage::Container, 0),
    ("xz", "xz", Usage::Container, 0),
    ("zfs", "zfs_member", Usage::FileSystem, 131072),
    ("zstd", "zstd", Usage::Container, 0),
];

#[test]
fn each_sample_is_found_alone_and_where_it_is() {
    for (sample, name, usage, at) in SAMPLES {
        let found = first(sample);
        assert_eq!((found.name, found.usage, found.at), (name, usage, at), "{sample}");
        assert!(!found.advice.is_empty(), "{sample}");
    }
    let is_tested = |entry: &fs::DirEntry| {
        let name = entry.file_name().into_string().unwrap();
        name.strip_suffix(".txt").is_none_or(|name| SAMPLES.iter().any(|one| one.0 == name))
    };
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/partition/samples");
    assert!(fs::read_dir(samples).unwrap().all(|entry| is_tested(&entry.unwrap())));
}

#[test]
fn labels_and_identifiers_are_those_that_the_tools_set() {
    const UUID: &str = "11112222-3333-4444-5555-666677778888";
    for name in ["swap", "luks2", "btrfs", "f2fs", "reiserfs", "bcachefs"] {
        let details = first(name).details;
        assert_eq!(details.label.as_deref(), Some(&b"label"[..]), "{name}");
        assert_eq!(details.uuid.as_deref(), Some(UUID), "{name}");
    }
    for name in ["luks1", "erofs", "apfs", "gpt", "md-0.90", "md-1.0", "md-1.1", "md-1.2"] {
        assert_eq!(first(name).details.uuid.as_deref(), Some(UUID), "{name}");
    }
    for (name, version) in [("fat12", "FAT12"), ("fat16", "FAT16"), ("fat32", "FAT32")] {
        let details = first(name).details;
        assert_eq!(details.label.as_deref(), Some(&b"LABEL"[..]), "{name}");
        assert_eq!(details.uuid.as_deref(), Some("1234-5678"), "{name}");
        assert_eq!(details.version.as_deref(), Some(version));
    }
    for name in ["exfat", "ntfs", "jfs", "nilfs2"] {
        assert_eq!(first(name).details.label.as_deref(), Some(&b"label"[..]), "{name}");
    }
}

#[test]
fn random_bytes_match_no_format_and_damaged_samples_are_harmless() {
    let mut state = 1_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u32
    };
    for (name, ..) in SAMPLES {
        let device = sample(name);
        for _ in 0..50 {
            let at = u64::from(random()) % device.len().min(72 << 10);
            device.write_at(at, &[random() as u8]).unwrap();
            find_all(&device).unwrap();
            Signature::of(&device).unwrap();
        }
    }
    for len in [0, 1, 511, 512, 4095, 70_000] {
        let device = MemoryDevice::new(len);
        assert_eq!(Signature::of(&device).unwrap(), Signature::Zeros);
        let bytes: Vec<u8> = (0..len).map(|_| random() as u8 | 1).collect();
        device.write_at(0, &bytes).unwrap();
        assert!(find_all(&device).unwrap().is_empty());
    }
}

/// Writes the magic number of ext.
fn put_ext(device: &MemoryDevice, at: u64) {
    device.write_at(at + 1080, &[0x53, 0xef]).unwrap();
}

#[test]
fn own_formats_come_first() {
    let device = sample("swap");
    put_ext(&device, 0);
    assert_eq!(Signature::of(&device).unwrap(), Signature::Ext);
    device.write_at(0, b"XFSB").unwrap();
    assert_eq!(Signature::of(&device).unwrap(), Signature::Xfs);
    // Partition tables are read by another module.
    assert_eq!(Signature::of(&sample("gpt")).unwrap(), Signature::Unknown);
}

#[test]
fn a_file_system_inside_a_volume_is_named_with_its_offset() {
    for (name, at) in
        [("md-1.2", 1 << 20), ("md-1.1", 1 << 20), ("lvm2", 1 << 20), ("bcache", 8192)]
    {
        let device = sample(name);
        let Signature::Other(found) = Signature::of(&device).unwrap() else { panic!("{name}") };
        assert_eq!(found.inner, None, "{name}");
        put_ext(&device, at);
        let Signature::Other(found) = Signature::of(&device).unwrap() else { panic!("{name}") };
        assert_eq!(found.inner, Some(at), "{name}");
        assert!(found.description().contains(&format!("--offset {at} ")), "{name}");
    }
}

#[test]
fn a_lost_superblock_is_detected_by_its_copies() {
    let device = MemoryDevice::new(200 << 20);
    device.write_at((32768 << 12) + 56, &[0x53, 0xef]).unwrap();
    device.write_at((32768 << 12) + 90, &[1]).unwrap();
    let lost = Signature::of(&device).unwrap();
    assert_eq!(lost, Signature::Lost(Lost { format: "ext2/3/4", at: 32768 << 12 }));
    let device = MemoryDevice::new(1 << 20);
    device.write_at(512, b"XAGF").unwrap();
    device.write_at(1024, b"XAGI").unwrap();
    let lost = Signature::of(&device).unwrap();
    assert_eq!(lost, Signature::Lost(Lost { format: "XFS", at: 512 }));
}
