//! Meaning of the names of entries in a layer. No I/O.

use super::ContainerFault;

const PREFIX: &[u8] = b".wh.";
/// Prefix of the internal files of aufs.
const AUFS_PREFIX: &[u8] = b".wh..wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Directory in which aufs stores files with several names.
const AUFS_LINKS: &[u8] = b".wh..wh.plnk";

/// Meaning of an entry of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A file of any type.
    File,
    /// Hides this path of lower layers.
    Whiteout(Vec<u8>),
    /// Hides the entries of this directory in lower layers.
    Opaque(Vec<u8>),
    /// A file without a name in the image, which may be the target of hard links.
    Unnamed,
    /// An entry that is not part of the image.
    Nothing,
}

/// Returns the meaning of an entry with this path. Independent of the type: whiteouts may be hard links to each other.
pub(super) fn meaning(path: &[u8]) -> Result<Meaning, ContainerFault> {
    let (parent, name) = split(path);
    for (i, part) in parent.split(|&b| b == b'/').enumerate() {
        if part.starts_with(AUFS_PREFIX) {
            let is_link = i == 0 && part == AUFS_LINKS && parent.len() == part.len();
            return Ok(if is_link { Meaning::Unnamed } else { Meaning::Nothing });
        }
        if part.starts_with(PREFIX) {
            return Err(ContainerFault::BeneathWhiteout);
        }
    }
    if name == OPAQUE {
        return Ok(Meaning::Opaque(parent.to_vec()));
    }
    if name.starts_with(AUFS_PREFIX) {
        return Ok(Meaning::Nothing);
    }
    match name.strip_prefix(PREFIX) {
        None => Ok(Meaning::File),
        Some(b"" | b"." | b"..") => Err(ContainerFault::WhiteoutName),
        Some(hidden) => Ok(Meaning::Whiteout(join(parent, hidden))),
    }
}

/// Splits a path into its directory and its last name.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&b| b == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&[], path),
    }
}

pub(super) fn join(parent: &[u8], name: &[u8]) -> Vec<u8> {
    if parent.is_empty() { name.to_vec() } else { [parent, name].join(&b'/') }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_mean_what_the_specification_says() {
        let of = |path: &str| meaning(path.as_bytes());
        assert_eq!(of("a/.wh.b"), Ok(Meaning::Whiteout(b"a/b".into())));
        assert_eq!(of(".wh.b"), Ok(Meaning::Whiteout(b"b".into())));
        assert_eq!(of(".wh.\u{e9}.wh."), Ok(Meaning::Whiteout("\u{e9}.wh.".into())));
        assert_eq!(of("a/.wh..wh..opq"), Ok(Meaning::Opaque(b"a".into())));
        assert_eq!(of(".wh..wh..opq"), Ok(Meaning::Opaque(b"".into())));
        for path in ["", "a", "a.wh.b", "wh.a", ".wha", ".wh/a"] {
            assert_eq!(of(path), Ok(Meaning::File), "{path}");
        }
        for path in [".wh..wh.aufs", "a/.wh..wh.orph/x", ".wh..wh.plnk", ".wh..wh.plnk/a/b"] {
            assert_eq!(of(path), Ok(Meaning::Nothing), "{path}");
        }
        assert_eq!(of(".wh..wh.plnk/12.34"), Ok(Meaning::Unnamed));
        for path in [".wh.", "a/.wh..", "a/.wh..."] {
            assert_eq!(of(path), Err(ContainerFault::WhiteoutName), "{path}");
        }
        assert_eq!(of("a/.wh.b/c"), Err(ContainerFault::BeneathWhiteout));
    }
}
