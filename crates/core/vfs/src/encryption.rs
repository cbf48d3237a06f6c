//! Encryption of names and contents (fscrypt): names of keys, and reasons why encrypted data is not available.

use std::fmt::{self, Display, Formatter};

use crate::hint::Setting;

/// Name of a key in an encryption policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyName {
    /// Descriptor, in policies of version 1. The convention is the first 8 bytes of SHA-512(SHA-512(key)).
    Descriptor([u8; 8]),
    /// Identifier, in policies of version 2: derived from the key.
    Identifier([u8; 16]),
}

impl Display for KeyName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (word, bytes) = match self {
            Self::Descriptor(bytes) => ("descriptor", &bytes[..]),
            Self::Identifier(bytes) => ("identifier", &bytes[..]),
        };
        write!(f, "{word} ")?;
        bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Reason why encrypted names or contents are not available.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncryptionFault {
    /// No given key is the one of the policy.
    MissingKey {
        /// Key of the policy.
        needed: KeyName,
        /// Names of the given keys, of the same kind.
        given: Vec<KeyName>,
    },
    /// The inode has the flag of encrypted inodes, but no encryption context.
    NoContext,
    /// Encrypted files and names can be read and removed, but not created or changed.
    ReadOnly,
}

impl Display for EncryptionFault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingKey { needed, given } if given.is_empty() => {
                write!(f, "encrypted by the key with {needed}; name its file with ")?;
                write!(f, "{:#}", Setting::FSCRYPT_KEY_FILE)
            }
            Self::MissingKey { needed, given } => {
                write!(f, "encrypted by the key with {needed}; the given ")?;
                f.write_str(if given.len() == 1 { "key has " } else { "keys have " })?;
                for (nth, key) in given.iter().enumerate() {
                    write!(f, "{}{key}", if nth == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
            Self::NoContext => f.write_str("encrypted, but it has no encryption context"),
            Self::ReadOnly => f.write_str(
                "encrypted files and names can be read and removed, but not created or changed; \
                 mount the image with a kernel to change them",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_name_the_needed_key_and_the_given_ones() {
        let needed = KeyName::Identifier([0xa1; 16]);
        let none = EncryptionFault::MissingKey { needed, given: Vec::new() }.to_string();
        assert_eq!(
            none,
            "encrypted by the key with identifier a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1; name its file \
             with --fscrypt-key-file FILE"
        );
        let given = vec![KeyName::Descriptor([1; 8]), KeyName::Descriptor([2; 8])];
        let wrong = EncryptionFault::MissingKey { needed: KeyName::Descriptor([0xb2; 8]), given };
        assert_eq!(
            wrong.to_string(),
            "encrypted by the key with descriptor b2b2b2b2b2b2b2b2; the given keys have descriptor \
             0101010101010101, descriptor 0202020202020202"
        );
    }
}
