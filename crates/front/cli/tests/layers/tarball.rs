//! Layers built entry by entry.

use import::TarHeader;

/// An entry of a layer.
#[derive(Clone, Debug)]
pub(crate) enum Member {
    File(String, Vec<u8>),
    Directory(String),
    Symlink(String, String),
    Link(String, String),
    Fifo(String),
}

pub(crate) fn file(path: &str, contents: &str) -> Member {
    Member::File(path.into(), contents.into())
}

pub(crate) fn dir(path: &str) -> Member {
    Member::Directory(path.into())
}

pub(crate) fn symlink(path: &str, target: &str) -> Member {
    Member::Symlink(path.into(), target.into())
}

pub(crate) fn link(path: &str, target: &str) -> Member {
    Member::Link(path.into(), target.into())
}

/// Returns a tar of these entries, each with a different owner and time.
pub(crate) fn tar(members: &[Member]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (number, member) in members.iter().enumerate() {
        let (flag, path, target, data) = match member {
            Member::File(path, data) => (b'0', path, "", &data[..]),
            Member::Directory(path) => (b'5', path, "", &[][..]),
            Member::Symlink(path, target) => (b'2', path, &target[..], &[][..]),
            Member::Link(path, target) => (b'1', path, &target[..], &[][..]),
            Member::Fifo(path) => (b'6', path, "", &[][..]),
        };
        let mut header = TarHeader::new(flag, path.as_bytes(), data.len() as u64);
        header.set_linkname(target.as_bytes());
        header.set_permissions(if flag == b'5' { 0o755 } else { 0o640 });
        header.set_owner(number as u32, 7);
        header.set_mtime(1_000_000 + number as i64);
        archive.extend_from_slice(header.finish());
        archive.extend_from_slice(data);
        archive.resize(archive.len().next_multiple_of(512), 0);
    }
    archive.resize(archive.len() + 1024, 0);
    archive
}
