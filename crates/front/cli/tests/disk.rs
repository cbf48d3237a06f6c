//! Disks with one partition, for tests of images inside a larger file.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Offset of the partition in bytes. The same number of bytes follows it.
pub(crate) const START: u64 = 1 << 20;

/// Creates a disk with an MBR whose first partition contains these bytes. Returns the file, open
/// for reading and writing, and the MBR.
pub(crate) fn with_partition(path: &Path, part: &[u8]) -> (File, [u8; 512]) {
    let mut options = File::options();
    let disk = options.read(true).write(true).create(true).truncate(true).open(path).unwrap();
    disk.set_len(START + part.len() as u64 + START).unwrap();
    let mut mbr = [0; 512];
    mbr[450] = 0x83;
    mbr[454..458].copy_from_slice(&((START / 512) as u32).to_le_bytes());
    mbr[458..462].copy_from_slice(&((part.len() / 512) as u32).to_le_bytes());
    mbr[510..].copy_from_slice(&[0x55, 0xaa]);
    disk.write_all_at(&mbr, 0).unwrap();
    disk.write_all_at(part, START).unwrap();
    (disk, mbr)
}
