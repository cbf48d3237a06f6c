//! Features of a journal.

use bitflags::bitflags;

bitflags! {
    /// `s_feature_compat`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct JournalCompat: u32 {
        /// Commit blocks have the checksum of their transaction.
        const CHECKSUM = 1;
    }
}

bitflags! {
    /// `s_feature_incompat`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct JournalIncompat: u32 {
        /// Revoke blocks.
        const REVOKE = 1;
        /// 64-bit block numbers.
        const BIT64 = 2;
        /// Commit blocks may be written before the transaction's other blocks.
        const ASYNC_COMMIT = 4;
        /// Checksums of all blocks; tags contain 16 bits of them.
        const CSUM_V2 = 8;
        /// Checksums of all blocks.
        const CSUM_V3 = 0x10;
        /// A fast-commit area at the end of the journal.
        const FAST_COMMIT = 0x20;
    }
}
