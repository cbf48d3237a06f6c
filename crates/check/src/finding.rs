//! What a checker finds.

use std::fmt;

use fault::Corruption;

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// It is wrong, and nobody loses anything: a count that is off, a hint that is stale.
    Harmless,
    /// Contents, names or attributes are lost or may be, now or with the next change.
    AtRisk,
    /// The image, or the part that is named, cannot be used.
    Unusable,
}

impl Severity {
    /// The word for it in reports: `harmless`, `at-risk` or `unusable`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Harmless => "harmless",
            Self::AtRisk => "at-risk",
            Self::Unusable => "unusable",
        }
    }
}

/// One kind of thing that can be wrong: an entry of a format's catalogue.
#[derive(Debug, PartialEq, Eq)]
pub struct Code {
    /// Its stable name, which programs may rely on: the format, the structure and the fault in lower case, such
    /// as `ext4-inode-checksum`.
    pub name: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// The structure that is wrong, in the format's own term, such as `inode`.
    pub structure: &'static str,
    /// What is wrong, as a sentence without a subject's place or numbers: "The checksum does not match."
    pub meaning: &'static str,
    /// What a repair does about it, as a sentence.
    pub repair: &'static str,
}

/// Where something was found. What does not apply is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Block group (ext4) or allocation group (XFS).
    pub group: Option<u64>,
    /// File-system block, counted from the start of the device (of XFS: not the number with the group in its
    /// upper bits).
    pub block: Option<u64>,
    /// Inode number.
    pub inode: Option<u64>,
    /// Name of the field, as the format's documents spell it, or of the part of the structure.
    pub field: Option<&'static str>,
    /// Name of the directory entry or extended attribute concerned, whatever bytes it has.
    pub name: Option<Vec<u8>>,
}

/// Something that is wrong in an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is.
    pub code: &'static Code,
    /// Where it is.
    pub place: Place,
    /// What more there is to say, as a clause without a full stop.
    pub detail: Option<String>,
    /// What must be there.
    pub expected: Option<String>,
    /// What is there.
    pub found: Option<String>,
    /// The absolute path of the file concerned; the bytes of names are as they are on disk.
    pub path: Option<Vec<u8>>,
}

impl Finding {
    /// Something of that kind, nothing being known yet of where it is.
    pub fn new(code: &'static Code) -> Self {
        Self {
            code,
            place: Place::default(),
            detail: None,
            expected: None,
            found: None,
            path: None,
        }
    }

    /// What a verifier said, under a code that its caller chose.
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

    /// The group it is in.
    #[must_use]
    pub fn in_group(mut self, group: impl Into<u64>) -> Self {
        self.place.group = Some(group.into());
        self
    }

    /// The block it is in, counted from the start of the device.
    #[must_use]
    pub fn at_block(mut self, block: u64) -> Self {
        self.place.block = Some(block);
        self
    }

    /// The inode it is of.
    #[must_use]
    pub fn of_inode(mut self, inode: u64) -> Self {
        self.place.inode = Some(inode);
        self
    }

    /// The field that is wrong.
    #[must_use]
    pub fn field(mut self, field: &'static str) -> Self {
        self.place.field = Some(field);
        self
    }

    /// The directory entry or attribute concerned.
    #[must_use]
    pub fn named(mut self, name: &[u8]) -> Self {
        self.place.name = Some(name.to_vec());
        self
    }

    /// What more there is to say.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// What must be there, and what is.
    #[must_use]
    pub fn mismatch(mut self, expected: impl fmt::Display, found: impl fmt::Display) -> Self {
        self.expected = Some(expected.to_string());
        self.found = Some(found.to_string());
        self
    }

    /// The path of the file concerned.
    #[must_use]
    pub fn path(mut self, path: Vec<u8>) -> Self {
        self.path = Some(path);
        self
    }
}
