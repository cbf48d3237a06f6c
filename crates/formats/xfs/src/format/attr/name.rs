//! Names of attributes: the prefixes of Linux and the corresponding flags.

use vfs::acl;

use super::{NAME_LEN_MAX, flags};

/// Prefixes of Linux, by namespace.
const PREFIXES: [(u8, &[u8]); 3] =
    [(0, b"user."), (flags::ROOT, b"trusted."), (flags::SECURE, b"security.")];

/// Names of access control lists on disk and in Linux.
const ACLS: [(&[u8], &[u8]); 2] =
    [(b"SGI_ACL_FILE", acl::ACCESS), (b"SGI_ACL_DEFAULT", acl::DEFAULT)];

/// Conversion between the stored value and the value shown by system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// Unchanged.
    Plain,
    /// An access control list, converted to Linux's encoding.
    Acl,
    /// An access control list in its form on disk (`trusted.SGI_ACL_FILE`).
    StoredAcl,
}

/// A name as stored in an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttributeName<'a> {
    /// The namespace: bits of [`flags`].
    pub namespace: u8,
    /// The name in it, 1 to 255 bytes.
    pub name: &'a [u8],
    /// Conversion of its value.
    pub encoding: Encoding,
}

impl<'a> AttributeName<'a> {
    /// Converts a Linux name. Returns `None` if XFS cannot store it.
    pub(crate) fn from_linux(shown: &'a [u8]) -> Option<Self> {
        if let Some((name, _)) = ACLS.iter().find(|(_, linux)| *linux == shown) {
            return Some(Self { namespace: flags::ROOT, name, encoding: Encoding::Acl });
        }
        PREFIXES.iter().find_map(|&(namespace, prefix)| {
            let name = shown.strip_prefix(prefix)?;
            let is_acl = namespace == flags::ROOT && ACLS.iter().any(|(acl, _)| *acl == name);
            let encoding = if is_acl { Encoding::StoredAcl } else { Encoding::Plain };
            let fits = !name.is_empty() && name.len() <= NAME_LEN_MAX;
            fits.then_some(Self { namespace, name, encoding })
        })
    }
}

/// Appends a stored name in its Linux form. Returns false without a change for names that Linux does not show.
pub(crate) fn append_linux(shown: &mut Vec<u8>, flags: u8, name: &[u8]) -> bool {
    let namespace = flags & super::flags::NAMESPACE;
    let acl = ACLS.iter().find(|(acl, _)| namespace == super::flags::ROOT && *acl == name);
    if let Some((_, linux)) = acl {
        shown.extend_from_slice(linux);
        return true;
    }
    let Some((_, prefix)) = PREFIXES.iter().find(|(is, _)| *is == namespace) else {
        return false;
    };
    shown.extend_from_slice(prefix);
    shown.extend_from_slice(name);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive() {
        for name in ["user.a", "trusted.overlay.opaque", "system.posix_acl_default", "security.x"] {
            let stored = AttributeName::from_linux(name.as_bytes()).unwrap();
            let mut shown = Vec::new();
            assert!(append_linux(&mut shown, stored.namespace, stored.name));
            assert_eq!(shown, name.as_bytes());
        }
    }

    #[test]
    fn other_names_cannot_be_stored() {
        for name in ["user.", "system.data", "gnu.x", "user", "system.posix_acl_accessx"] {
            assert_eq!(AttributeName::from_linux(name.as_bytes()), None, "{name}");
        }
        assert!(!append_linux(&mut Vec::new(), flags::PARENT, b"file"));
    }

    #[test]
    fn lists_have_two_names() {
        let a = AttributeName::from_linux(b"trusted.SGI_ACL_FILE").unwrap();
        let b = AttributeName::from_linux(b"system.posix_acl_access").unwrap();
        assert_eq!((a.namespace, a.name), (b.namespace, b.name));
        assert_eq!((a.encoding, b.encoding), (Encoding::StoredAcl, Encoding::Acl));
    }
}
