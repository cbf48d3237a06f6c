//! Use of a key.

/// Use of a key: what it depends on apart from the encryption context.
#[cfg_attr(not(feature = "fscrypt"), allow(dead_code))]
pub(crate) struct KeyUsage {
    /// For the contents of a regular file. Otherwise for names or the target of a link.
    pub(crate) is_contents: bool,
    pub(crate) ino: u64,
    /// UUID of the file system.
    pub(crate) uuid: [u8; 16],
    /// Binary logarithm of the block size in bytes.
    pub(crate) block_log: u32,
}
