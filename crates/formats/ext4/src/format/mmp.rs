//! The block of multiple mount protection (`mmp`): it says which host uses the file system.

use vfs::Corruption;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum::crc32c;

/// `mmp_magic`: "PMM" in the order of the bytes.
pub(crate) const MAGIC: u32 = 0x004d_4d50;
/// Sequence number of a file system that no host uses.
pub const SEQUENCE_CLEAN: u32 = 0xff4d_4d50;
/// Sequence number while e2fsck checks the file system.
pub const SEQUENCE_CHECK: u32 = 0xe24d_4d50;
/// Maximum sequence number of a host that uses the file system.
pub const SEQUENCE_MAX: u32 = 0xe24d_4d4f;
/// Default update interval in seconds, for an interval of 0 in the superblock.
pub(crate) const UPDATE_INTERVAL_DEFAULT: u16 = 5;
/// Maximum update and check interval in seconds.
pub const INTERVAL_MAX: u16 = 300;
/// Minimum check interval in seconds.
pub(crate) const CHECK_INTERVAL_MIN: u16 = 5;
/// Size of the structure in bytes. The rest of its block is unused.
pub(crate) const SIZE: usize = size_of::<RawMmp>();

/// Contents of the MMP block. Field names as in the format document, without `mmp_`.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawMmp {
    pub magic: U32,
    pub seq: U32,
    pub time: U64,
    pub nodename: [u8; 64],
    pub bdevname: [u8; 32],
    pub check_interval: U16,
    pub pad1: U16,
    pub pad2: [U32; 226],
    pub checksum: U32,
}

const _: () = assert!(size_of::<RawMmp>() == 1024);

impl RawMmp {
    /// Returns the block of a file system that no host uses. `interval` is the update interval of the superblock.
    #[must_use]
    pub(crate) fn clean(interval: u16, time: u64) -> Self {
        let mut raw = Self::new_zeroed();
        raw.magic = MAGIC.into();
        raw.seq = SEQUENCE_CLEAN.into();
        raw.time = time.into();
        raw.check_interval = interval.max(CHECK_INTERVAL_MIN).into();
        raw
    }

    /// Parses and verifies a block. `seed` is the seed of checksums, if there are any.
    ///
    /// # Errors
    /// A block that is too short, a wrong magic number or a wrong checksum.
    pub fn parse(bytes: &[u8], seed: Option<u32>) -> Result<Self, Corruption> {
        let damage = |problem| Corruption::new("MMP block", problem);
        let (raw, _) = Self::read_from_prefix(bytes).map_err(|_| damage("truncated"))?;
        if raw.magic != MAGIC {
            let found = format!("{:#010x}", raw.magic.get());
            return Err(damage("magic number").mismatch(format!("{MAGIC:#010x}"), found));
        }
        if let Some(computed) = seed.map(|seed| raw.checksum_with(seed))
            && raw.checksum != computed
        {
            return Err(Corruption::checksum("MMP block", computed, raw.checksum.get()));
        }
        Ok(raw)
    }

    /// Computes the checksum, if there are any.
    pub fn seal(&mut self, seed: Option<u32>) {
        self.checksum = seed.map_or(0, |seed| self.checksum_with(seed)).into();
    }

    fn checksum_with(&self, seed: u32) -> u32 {
        crc32c(seed, &self.as_bytes()[..SIZE - size_of::<U32>()])
    }

    /// Returns the time in seconds during which the sequence number of a host in use must change.
    #[must_use]
    pub fn wait_seconds(&self, interval: u16) -> u64 {
        let check = interval.max(CHECK_INTERVAL_MIN).max(self.check_interval.get());
        let check = u64::from(check.min(INTERVAL_MAX));
        (2 * check + 1).min(check + 60)
    }
}

/// Returns the update interval in seconds for an interval in the superblock.
#[must_use]
pub fn update_interval(stored: u16) -> u16 {
    if stored == 0 { UPDATE_INTERVAL_DEFAULT } else { stored.min(INTERVAL_MAX) }
}
