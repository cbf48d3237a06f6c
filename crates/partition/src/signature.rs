//! What a device holds, as far as its first bytes tell.

use std::io;

use blockdev::BlockDevice;

/// Bytes at the start of a device that are looked at.
const PROBE_BYTES: u64 = 2048;
/// ext's magic number is at byte 56 of the superblock, which starts at byte 1024.
const EXT_MAGIC: (usize, [u8; 2]) = (1080, [0x53, 0xef]);

/// Formats that are none of a file system that is read here: magic number, name, and what to do about it.
const OTHERS: [(&[u8], &str, &str); 8] = [
    (b"QFI\xfb", "qcow2 images", "convert it with: qemu-img convert -O raw"),
    (b"KDMV", "VMDK images", "convert it with: qemu-img convert -O raw"),
    (b"conectix", "VHD images", "convert it with: qemu-img convert -O raw"),
    (b"vhdxfile", "VHDX images", "convert it with: qemu-img convert -O raw"),
    (b"\x1f\x8b", "compressed images", "decompress it with: gunzip"),
    (b"\x28\xb5\x2f\xfd", "compressed images", "decompress it with: unzstd"),
    (b"\xfd7zXZ\0", "compressed images", "decompress it with: unxz"),
    (b"hsqs", "SquashFS images", "unsquashfs reads it"),
];

/// What a device holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signature {
    /// ext2, ext3 or ext4.
    Ext,
    /// XFS.
    Xfs,
    /// Something that is known, and not read here.
    Other {
        /// What it is, in the plural.
        what: &'static str,
        /// What to do about it.
        advice: &'static str,
    },
    /// Nothing but zeros, as far as was looked.
    Zeros,
    /// Something else, a disk with partitions among it.
    Unknown,
}

impl Signature {
    /// What the first bytes of a device tell.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn of(device: &dyn BlockDevice) -> io::Result<Self> {
        let mut probe = vec![0; device.len().min(PROBE_BYTES) as usize];
        device.read_at(0, &mut probe)?;
        Ok(Self::of_bytes(&probe))
    }

    fn of_bytes(probe: &[u8]) -> Self {
        let (at, magic) = EXT_MAGIC;
        if probe.starts_with(b"XFSB") {
            return Self::Xfs;
        }
        if probe.get(at..at + magic.len()) == Some(&magic[..]) {
            return Self::Ext;
        }
        if let Some(&(_, what, advice)) = OTHERS.iter().find(|(magic, ..)| probe.starts_with(magic))
        {
            return Self::Other { what, advice };
        }
        if probe.iter().all(|&byte| byte == 0) { Self::Zeros } else { Self::Unknown }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_told_by_their_magic_numbers() {
        let mut ext = vec![0; 2048];
        ext[1080..1082].copy_from_slice(&[0x53, 0xef]);
        assert_eq!(Signature::of_bytes(&ext), Signature::Ext);
        assert_eq!(Signature::of_bytes(b"XFSB"), Signature::Xfs);
        assert!(matches!(Signature::of_bytes(b"hsqs1"), Signature::Other { .. }));
        assert_eq!(Signature::of_bytes(&[0; 9]), Signature::Zeros);
        assert_eq!(Signature::of_bytes(&[]), Signature::Zeros);
        assert_eq!(Signature::of_bytes(b"\0a"), Signature::Unknown);
    }
}
