//! Format of an image.

use std::str::FromStr;

use disk::partition::Signature;

/// Format of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "build", derive(serde::Serialize), serde(rename_all = "lowercase"))]
pub enum Format {
    /// ext2, ext3 or ext4, depending on the features.
    Ext4,
    /// XFS.
    Xfs,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 2] = [Self::Ext4, Self::Xfs];

    /// Returns the name: `ext4` or `xfs`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }

    /// Returns the format with this superblock.
    pub const fn of(signature: &Signature) -> Option<Self> {
        match signature {
            Signature::Ext => Some(Self::Ext4),
            Signature::Xfs => Some(Self::Xfs),
            _ => None,
        }
    }
}

/// A text that names no format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fs is {0:?}: it must be \"ext4\" or \"xfs\"")]
pub struct UnknownFormat(String);

/// Parses the name of a format.
impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        let found = Self::ALL.into_iter().find(|format| format.name() == name);
        found.ok_or_else(|| UnknownFormat(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_parsed_and_no_other() {
        for format in Format::ALL {
            assert_eq!(format.name().parse(), Ok(format));
        }
        let error = "ext3".parse::<Format>().unwrap_err();
        assert_eq!(error.to_string(), "fs is \"ext3\": it must be \"ext4\" or \"xfs\"");
    }
}
