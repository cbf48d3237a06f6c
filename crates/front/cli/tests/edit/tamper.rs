//! Damaging images by a few bytes with valid checksums, as an attacker would.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use testkit::Format;

use crate::program::ok;

/// Size in bytes of a block, and of an inode in XFS images.
const BLOCK: usize = 4096;
const INODE: usize = 512;
/// Offsets of the checksums in inodes and directory blocks of XFS.
const INODE_CRC: usize = 100;
const BLOCK_CRC: usize = 4;

/// Build options for images whose names can be changed in place: each name is stored once, and ext4
/// has no checksums.
pub(crate) const FORMATS: [(&str, &str); 2] = [
    ("ext4", "--size 64M --no-journal --features ^metadata_csum,^inline_data"),
    ("xfs", "--fs xfs --small --size 64M --features ^parent"),
];

/// Builds `a.img` from the directory `source`, in either format.
pub(crate) fn build(dir: &Path, options: &str) -> PathBuf {
    ok(dir, &format!("build source a.img {options}"));
    dir.join("a.img")
}

/// Renames directory entries. Both names have the same length.
#[track_caller]
pub(crate) fn rename(image: &Path, from: &str, to: &str) {
    assert_eq!(from.len(), to.len());
    let mut bytes = fs::read(image).unwrap();
    let file = File::options().write(true).open(image).unwrap();
    // Most of an image is zero, and no name crosses a block boundary.
    let written = bytes.chunks(BLOCK).enumerate().filter(|(_, block)| *block != &[0; BLOCK][..]);
    let places_in = |(number, block): (usize, &[u8])| {
        let places = block.windows(from.len()).enumerate().filter(|(_, at)| *at == from.as_bytes());
        places.map(|(at, _)| number * BLOCK + at).collect::<Vec<usize>>()
    };
    let places: Vec<usize> = written.flat_map(places_in).collect();
    assert!(!places.is_empty(), "{from}");
    for at in places {
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
        seal(&mut bytes, at);
        let start = at / BLOCK * BLOCK;
        file.write_all_at(&bytes[start..start + BLOCK], start as u64).unwrap();
    }
}

/// Changes bytes of an inode, and updates its checksum on XFS.
pub(crate) fn change_inode(dir: &Path, inode: &str, at: usize, with: &[u8]) {
    let image = dir.join("a.img");
    let dump: serde_json::Value =
        serde_json::from_str(&ok(dir, &format!("dump a.img inode {inode} --json"))).unwrap();
    let number = |name: &str| dump[name].as_u64().unwrap() as usize;
    let start = number("block") * BLOCK + number("offset");
    let mut bytes = fs::read(&image).unwrap();
    bytes[start + at..start + at + with.len()].copy_from_slice(with);
    seal(&mut bytes, start);
    fs::write(image, bytes).unwrap();
}

/// Updates the checksum of the structure that contains the byte at `at`, in XFS images.
fn seal(bytes: &mut [u8], at: usize) {
    if !bytes.starts_with(b"XFSB") {
        return;
    }
    let block = &mut bytes[at / BLOCK * BLOCK..][..BLOCK];
    if block.starts_with(b"IN") {
        let slot = &mut block[at % BLOCK / INODE * INODE..][..INODE];
        seal_at(slot, INODE_CRC);
    } else {
        assert!(block.starts_with(b"XD"), "a directory block");
        seal_at(block, BLOCK_CRC);
    }
}

fn seal_at(bytes: &mut [u8], at: usize) {
    bytes[at..at + 4].fill(0);
    let checksum = crc32c::crc32c(bytes);
    bytes[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
}

/// Returns the offset of the mode and, on XFS, of the inode version, with their values for a
/// regular file.
pub(crate) fn file_mode(image: &Path) -> (usize, [u8; 2]) {
    match Format::of(image) {
        Format::Ext => (0, 0o100_644_u16.to_le_bytes()),
        Format::Xfs => (2, 0o100_644_u16.to_be_bytes()),
    }
}
