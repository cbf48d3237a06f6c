//! Errors below a file system: failures of the device and damaged contents. All layers report damage with these types,
//! so they are below all layers.

use std::fmt;
use std::io;

/// Result of the engine's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure below the file system.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The block device failed.
    #[error("device error: {0}")]
    Device(#[from] io::Error),
    /// A metadata block does not have the expected structure.
    #[error(transparent)]
    Corrupt(#[from] Corruption),
}

/// Damage found in an image: the structure, its location, the expected and the actual value.
///
/// It is boxed, so that a `Result` that contains it stays small; damage is not on the hot path.
#[derive(Clone, PartialEq, Eq)]
pub struct Corruption(Box<FaultDetails>);

#[derive(Clone, Default, PartialEq, Eq)]
struct FaultDetails {
    structure: &'static str,
    problem: String,
    is_checksum: bool,
    group: Option<u64>,
    inode: Option<u64>,
    block: Option<u64>,
    expected: Option<String>,
    found: Option<String>,
    advice: Option<String>,
}

impl Corruption {
    /// Creates damage of `structure` (the format's own term, such as "extent tree node").
    pub fn new(structure: &'static str, problem: impl Into<String>) -> Self {
        Self(Box::new(FaultDetails {
            structure,
            problem: problem.into(),
            ..FaultDetails::default()
        }))
    }

    /// Sets the file-system block of the structure, unless it is already set.
    #[must_use]
    pub fn at_block(mut self, block: u64) -> Self {
        self.0.block.get_or_insert(block);
        self
    }

    /// Sets the inode of the structure, unless it is already set.
    #[must_use]
    pub fn of_inode(mut self, inode: u64) -> Self {
        self.0.inode.get_or_insert(inode);
        self
    }

    /// Sets the block group (ext4) or allocation group (XFS) of the structure.
    #[must_use]
    pub fn in_group(mut self, group: u64) -> Self {
        self.0.group.get_or_insert(group);
        self
    }

    /// Sets the expected and the actual value.
    #[must_use]
    pub fn mismatch(mut self, expected: impl fmt::Display, found: impl fmt::Display) -> Self {
        self.0.expected = Some(expected.to_string());
        self.0.found = Some(found.to_string());
        self
    }

    /// Sets advice that is more specific than running a checker.
    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.0.advice = Some(advice.into());
        self
    }

    /// Returns whether it has specific advice.
    pub fn has_advice(&self) -> bool {
        self.0.advice.is_some()
    }

    /// Creates damage for a checksum mismatch: `computed` from the bytes, `stored` in the structure.
    pub fn checksum(structure: &'static str, computed: u32, stored: u32) -> Self {
        let mut damage = Self::new(structure, "wrong checksum")
            .mismatch(format_args!("{computed:#010x}"), format_args!("{stored:#010x}"));
        damage.0.is_checksum = true;
        damage
    }

    /// Returns whether it is a checksum mismatch.
    pub fn is_checksum(&self) -> bool {
        self.0.is_checksum
    }

    /// Returns the damaged structure.
    pub fn structure(&self) -> &'static str {
        self.0.structure
    }

    /// Returns the description of the problem.
    pub fn problem(&self) -> &str {
        &self.0.problem
    }

    /// Returns the expected and the actual value, if the damage is a difference.
    pub fn difference(&self) -> Option<(&str, &str)> {
        self.0.expected.as_deref().zip(self.0.found.as_deref())
    }

    /// Returns the block group or allocation group, if it is known.
    pub fn group(&self) -> Option<u64> {
        self.0.group
    }

    /// Returns the file-system block, if it is known.
    pub fn block(&self) -> Option<u64> {
        self.0.block
    }

    /// Returns the inode, if it is known.
    pub fn inode(&self) -> Option<u64> {
        self.0.inode
    }
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let d = &*self.0;
        write!(f, "damaged {}", d.structure)?;
        if let Some(group) = d.group {
            write!(f, ", group {group}")?;
        }
        if let Some(inode) = d.inode {
            write!(f, ", inode {inode}")?;
        }
        if let Some(block) = d.block {
            write!(f, ", block {block}")?;
        }
        write!(f, ": {}", d.problem)?;
        if let (Some(expected), Some(found)) = (&d.expected, &d.found) {
            write!(f, " (expected {expected}, found {found})")?;
        }
        if let Some(advice) = &d.advice {
            write!(f, "; {advice}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Corruption {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_names_structure_place_and_difference() {
        let c = Corruption::checksum("extent tree node", 1, 2).at_block(77).of_inode(12);
        assert_eq!(
            c.to_string(),
            "damaged extent tree node, inode 12, block 77: wrong checksum \
             (expected 0x00000001, found 0x00000002)"
        );
    }

    #[test]
    fn the_place_nearest_the_damage_wins() {
        let c = Corruption::new("inode", "bad").at_block(1).at_block(2);
        assert_eq!(c.block(), Some(1));
    }

    #[test]
    fn errors_stay_small() {
        assert!(size_of::<Error>() <= 16);
    }
}
