//! File handles: the inode, its generation, the file system, and a check value.
//!
//! ```text
//! 0         8            12                 28                44
//! | inode   | generation | UUID             | check value     |
//! ```
//!
//! The check value is SipHash-2-4 (128 bits) of the bytes before it, with the key of the export. Clients cannot compute
//! it, so they get handles only from MOUNT and by looking up names. The key depends on the file system and the path of
//! the export alone. Handles therefore stay valid when a server restarts with the same path.

use siphasher::sip128::SipHasher24;
use vfs::{Attributes, Ino};

use crate::NfsStatus;
use crate::export::ExportPath;

/// Bytes before the check value.
const CHECKED: usize = 28;
/// Size of a handle in bytes. The maximum of the protocol is 64.
pub(crate) const HANDLE_BYTES: usize = CHECKED + 16;
/// Maximum size of handles of other servers, in bytes (`NFS3_FHSIZE`).
pub(crate) const HANDLE_BYTES_MAX: usize = 64;

/// Encodes and decodes the handles of one export.
pub(crate) struct HandleCodec {
    uuid: [u8; 16],
    key: [u8; 16],
}

impl HandleCodec {
    pub(crate) fn new(export: &ExportPath, uuid: [u8; 16]) -> Self {
        let key = SipHasher24::new_with_key(&uuid).hash(export.as_str().as_bytes()).as_bytes();
        Self { uuid, key }
    }

    /// Returns the identity of the file system in attributes (`fsid`).
    pub(crate) fn fsid(&self) -> u64 {
        let uuid = u128::from_be_bytes(self.uuid);
        (uuid >> 64) as u64 ^ uuid as u64
    }

    /// Returns the handle of an inode.
    pub(crate) fn encode(&self, attributes: &Attributes) -> [u8; HANDLE_BYTES] {
        let mut handle = [0; HANDLE_BYTES];
        let (checked, value) = handle.split_at_mut(CHECKED);
        checked[..8].copy_from_slice(&attributes.ino.0.to_be_bytes());
        checked[8..12].copy_from_slice(&attributes.generation.to_be_bytes());
        checked[12..].copy_from_slice(&self.uuid);
        value.copy_from_slice(&self.check_value(checked));
        handle
    }

    /// Returns inode and generation.
    ///
    /// # Errors
    /// `Stale` for a handle of another file system, `BadHandle` if this server did not issue it.
    pub(crate) fn decode(&self, handle: &[u8]) -> Result<(Ino, u32), NfsStatus> {
        let (checked, value) = handle.split_at_checked(CHECKED).ok_or(NfsStatus::BadHandle)?;
        if value.len() != HANDLE_BYTES - CHECKED {
            return Err(NfsStatus::BadHandle);
        }
        if checked[12..] != self.uuid {
            return Err(NfsStatus::Stale);
        }
        // The time does not depend on the number of equal bytes.
        let expected = self.check_value(checked);
        if value.iter().zip(expected).fold(0, |all, (a, b)| all | (a ^ b)) != 0 {
            return Err(NfsStatus::BadHandle);
        }
        let (ino, rest) = checked.split_first_chunk().ok_or(NfsStatus::BadHandle)?;
        let generation = rest.first_chunk().ok_or(NfsStatus::BadHandle)?;
        Ok((Ino(u64::from_be_bytes(*ino)), u32::from_be_bytes(*generation)))
    }

    fn check_value(&self, checked: &[u8]) -> [u8; 16] {
        SipHasher24::new_with_key(&self.key).hash(checked).as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use vfs::{FileType, Timestamp};

    use super::*;

    fn attributes(ino: u64, generation: u32) -> Attributes {
        Attributes {
            ino: Ino(ino),
            generation,
            file_type: FileType::Regular,
            permissions: 0,
            links: 1,
            uid: 0,
            gid: 0,
            size: 0,
            blocks_512: 0,
            device: Default::default(),
            atime: Timestamp::default(),
            mtime: Timestamp::default(),
            ctime: Timestamp::default(),
            crtime: None,
            protection: Default::default(),
            is_noatime: false,
        }
    }

    fn codec(export: &str, id: u8) -> HandleCodec {
        HandleCodec::new(&export.parse().unwrap(), [id; 16])
    }

    #[test]
    fn handles_are_valid_for_the_same_export_only() {
        let handle = codec("/a", 1).encode(&attributes(1 << 33, 77));
        assert_eq!(codec("/a", 1).decode(&handle), Ok((Ino(1 << 33), 77)));
        assert_eq!(codec("/b", 1).decode(&handle), Err(NfsStatus::BadHandle));
        assert_eq!(codec("/a", 2).decode(&handle), Err(NfsStatus::Stale));
    }

    #[test]
    fn changed_handles_are_forged() {
        let codec = codec("/a", 1);
        let handle = codec.encode(&attributes(12, 34));
        for bit in 0..handle.len() * 8 {
            let mut changed = handle;
            changed[bit / 8] ^= 1 << (bit % 8);
            let is_uuid = (12..CHECKED).contains(&(bit / 8));
            let expected = if is_uuid { NfsStatus::Stale } else { NfsStatus::BadHandle };
            assert_eq!(codec.decode(&changed), Err(expected), "bit {bit}");
        }
        for len in [0, CHECKED, HANDLE_BYTES - 1] {
            assert_eq!(codec.decode(&handle[..len]), Err(NfsStatus::BadHandle), "{len} bytes");
        }
        assert_eq!(codec.decode(&[handle.as_slice(), &[0]].concat()), Err(NfsStatus::BadHandle));
    }
}
