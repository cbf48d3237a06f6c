//! What can fail below a file system: the device, or contents that are damaged. Every layer speaks of damage
//! in these terms, so the type is below all of them.
#![forbid(unsafe_code)]

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
    /// A metadata block is not what its place says it must be.
    #[error(transparent)]
    Corrupt(#[from] Corruption),
}

/// Damage found in an image: which structure, where, what was expected and what was found.
///
/// It is built off the hot path and boxed, so that a `Result` that carries it stays small.
#[derive(Clone, PartialEq, Eq)]
pub struct Corruption(Box<Details>);

#[derive(Clone, Default, PartialEq, Eq)]
struct Details {
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
    /// Damage in `structure` (the format's own term, such as "extent tree node").
    pub fn new(structure: &'static str, problem: impl Into<String>) -> Self {
        Self(Box::new(Details { structure, problem: problem.into(), ..Details::default() }))
    }

    /// The file-system block the structure lies in, unless a caller closer to the damage set it.
    #[must_use]
    pub fn at_block(mut self, block: u64) -> Self {
        self.0.block.get_or_insert(block);
        self
    }

    /// The inode the structure belongs to, unless a caller closer to the damage set it.
    #[must_use]
    pub fn of_inode(mut self, inode: u64) -> Self {
        self.0.inode.get_or_insert(inode);
        self
    }

    /// The block group (ext4) or allocation group (XFS) the structure belongs to.
    #[must_use]
    pub fn in_group(mut self, group: u64) -> Self {
        self.0.group.get_or_insert(group);
        self
    }

    /// What the format or another structure says must be there, and what is.
    #[must_use]
    pub fn mismatch(mut self, expected: impl fmt::Display, found: impl fmt::Display) -> Self {
        self.0.expected = Some(expected.to_string());
        self.0.found = Some(found.to_string());
        self
    }

    /// What to do about it, where more is known than that a checker should look.
    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.0.advice = Some(advice.into());
        self
    }

    /// Whether it says itself what to do about it.
    pub fn has_advice(&self) -> bool {
        self.0.advice.is_some()
    }

    /// A checksum that does not match: `computed` from the bytes, `stored` beside them.
    pub fn checksum(structure: &'static str, computed: u32, stored: u32) -> Self {
        let mut damage = Self::new(structure, "wrong checksum")
            .mismatch(format_args!("{computed:#010x}"), format_args!("{stored:#010x}"));
        damage.0.is_checksum = true;
        damage
    }

    /// Whether it is a checksum that does not match.
    pub fn is_checksum(&self) -> bool {
        self.0.is_checksum
    }

    /// The structure that is damaged.
    pub fn structure(&self) -> &'static str {
        self.0.structure
    }

    /// What is wrong with it.
    pub fn problem(&self) -> &str {
        &self.0.problem
    }

    /// What must be there and what is, where the damage is a difference.
    pub fn difference(&self) -> Option<(&str, &str)> {
        self.0.expected.as_deref().zip(self.0.found.as_deref())
    }

    /// The block group or allocation group it belongs to, where known.
    pub fn group(&self) -> Option<u64> {
        self.0.group
    }

    /// The file-system block it lies in, where known.
    pub fn block(&self) -> Option<u64> {
        self.0.block
    }

    /// The inode it belongs to, where known.
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
