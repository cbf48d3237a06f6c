//! Findings of a checker.

use std::fmt;

use crate::fault::Corruption;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Wrong, but without loss: an incorrect count, a stale hint.
    Harmless,
    /// Contents, names or attributes are lost or may be lost, now or with the next change.
    AtRisk,
    /// The image, or the named part of it, is unusable.
    Unusable,
}

impl Severity {
    /// Returns the word for reports: `harmless`, `at-risk` or `unusable`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Harmless => "harmless",
            Self::AtRisk => "at-risk",
            Self::Unusable => "unusable",
        }
    }
}

/// A kind of finding: an entry of a format's catalogue.
#[derive(Debug, PartialEq, Eq)]
pub struct Code {
    /// Stable name, on which programs may rely: the format, the structure and the fault in lower case, such as
    /// `ext4-inode-checksum`.
    pub name: &'static str,
    /// Severity of the finding.
    pub severity: Severity,
    /// The affected structure, in the format's own term, such as `inode`.
    pub structure: &'static str,
    /// Description of the fault, as a sentence without location or numbers: "The checksum does not match."
    pub meaning: &'static str,
    /// Description of the repair, as a sentence.
    pub repair: &'static str,
}

/// Location of a finding. Fields that do not apply are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FindingPlace {
    /// Block group (ext4) or allocation group (XFS).
    pub group: Option<u64>,
    /// File-system block, counted from the start of the device (in XFS: not the number with the group in its upper
    /// bits).
    pub block: Option<u64>,
    /// Inode number.
    pub inode: Option<u64>,
    /// Name of the field, as in the documentation of the format, or of the part of the structure.
    pub field: Option<&'static str>,
    /// Name of the directory entry or extended attribute, which may have any bytes.
    pub name: Option<Vec<u8>>,
}

/// A fault in an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Kind of the finding.
    pub code: &'static Code,
    /// Location of the finding.
    pub place: FindingPlace,
    /// Further details, as a clause without a full stop.
    pub detail: Option<String>,
    /// Expected value.
    pub expected: Option<String>,
    /// Actual value.
    pub found: Option<String>,
    /// Absolute path of the affected file. The bytes of names are as they are on disk.
    pub path: Option<Vec<u8>>,
}

impl Finding {
    /// Creates a finding without a location.
    pub fn new(code: &'static Code) -> Self {
        Self {
            code,
            place: FindingPlace::default(),
            detail: None,
            expected: None,
            found: None,
            path: None,
        }
    }

    /// Creates a finding of the given kind from the result of a verifier.
    pub fn of_damage(code: &'static Code, damage: &Corruption) -> Self {
        let mut finding = Self::new(code).detail(damage.problem());
        finding.place.group = damage.group();
        finding.place.block = damage.block();
        finding.place.inode = damage.inode();
        if let Some((expected, found)) = damage.difference() {
            finding = finding.mismatch(expected, found);
        }
        finding
    }

    /// Sets the group.
    #[must_use]
    pub fn in_group(mut self, group: impl Into<u64>) -> Self {
        self.place.group = Some(group.into());
        self
    }

    /// Sets the block, counted from the start of the device.
    #[must_use]
    pub fn at_block(mut self, block: u64) -> Self {
        self.place.block = Some(block);
        self
    }

    /// Sets the inode.
    #[must_use]
    pub fn of_inode(mut self, inode: u64) -> Self {
        self.place.inode = Some(inode);
        self
    }

    /// Sets the field.
    #[must_use]
    pub fn field(mut self, field: &'static str) -> Self {
        self.place.field = Some(field);
        self
    }

    /// Sets the name of the directory entry or attribute.
    #[must_use]
    pub fn named(mut self, name: &[u8]) -> Self {
        self.place.name = Some(name.to_vec());
        self
    }

    /// Sets the details.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Sets the expected and the actual value.
    #[must_use]
    pub fn mismatch(mut self, expected: impl fmt::Display, found: impl fmt::Display) -> Self {
        self.expected = Some(expected.to_string());
        self.found = Some(found.to_string());
        self
    }

    /// Sets the path of the affected file.
    #[must_use]
    pub fn path(mut self, path: Vec<u8>) -> Self {
        self.path = Some(path);
        self
    }
}
