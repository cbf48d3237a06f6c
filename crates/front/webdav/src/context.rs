//! The request that operations of `dav-server` belong to.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Method;
use vfs::path::LastLink;

/// Method of a request, as far as operations depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Propfind,
    Copy,
    Move,
    Other,
}

/// Request. `dav-server` passes it to each operation.
#[derive(Debug)]
pub(crate) struct RequestContext {
    kind: RequestKind,
    /// PROPFIND: the client wants all properties, also those that it does not name.
    wants_all: bool,
    /// COPY: the path of the source, whose attributes are read first.
    source: OnceLock<Vec<u8>>,
    /// COPY and MOVE: a directory was listed.
    has_listed: AtomicBool,
    /// COPY and MOVE: the file at the destination is still there.
    has_destination: AtomicBool,
}

impl RequestContext {
    pub(crate) fn new(method: &Method, wants_all: bool) -> Self {
        let kind = match method.as_str() {
            "PROPFIND" => RequestKind::Propfind,
            "COPY" => RequestKind::Copy,
            "MOVE" => RequestKind::Move,
            _ => RequestKind::Other,
        };
        Self {
            kind,
            wants_all,
            source: OnceLock::new(),
            has_listed: AtomicBool::new(false),
            has_destination: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_propfind(&self) -> bool {
        self.kind == RequestKind::Propfind
    }

    pub(crate) fn wants_all(&self) -> bool {
        self.wants_all
    }

    /// Returns how attributes at a path are read. A copy of a directory contains its links, not their targets; otherwise
    /// links that lead upwards would multiply it.
    pub(crate) fn last_link(&self, path: &[u8]) -> LastLink {
        if self.kind != RequestKind::Copy {
            return LastLink::Follow;
        }
        self.source.get_or_init(|| path.to_vec());
        let is_below = self.below_source(path).is_some_and(|rest| !rest.is_empty());
        if is_below { LastLink::Keep } else { LastLink::Follow }
    }

    /// Returns whether a listing is for a copy of its entries. Otherwise they are removed.
    pub(crate) fn copies_entries_of(&self, path: &[u8]) -> bool {
        self.kind == RequestKind::Copy && self.below_source(path).is_some()
    }

    /// Returns the rest of a path at or below the source, without `/` at its ends.
    fn below_source<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        let source = trimmed(self.source.get()?);
        let rest = trimmed(path).strip_prefix(source)?;
        if rest.is_empty() { Some(rest) } else { rest.strip_prefix(b"/") }
    }

    pub(crate) fn set_listed(&self) {
        self.has_listed.store(true, Ordering::Relaxed);
    }

    /// Returns whether a removal is that of a file at the destination of COPY or MOVE. The operation replaces it in one
    /// step, so a crash leaves the old file or the new one. Files in a directory are removed after its listing.
    pub(crate) fn defers_removal(&self) -> bool {
        let defers = matches!(self.kind, RequestKind::Copy | RequestKind::Move)
            && !self.has_listed.load(Ordering::Relaxed);
        if defers {
            self.has_destination.store(true, Ordering::Relaxed);
        }
        defers
    }

    /// Returns, once, whether a directory takes the place of a file whose removal was deferred.
    pub(crate) fn take_deferred_removal(&self) -> bool {
        self.has_destination.swap(false, Ordering::Relaxed)
    }
}

fn trimmed(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_keep_links_below_their_source() {
        let copy = RequestContext::new(&Method::from_bytes(b"COPY").unwrap(), false);
        for (path, expected) in [
            ("/a/", LastLink::Follow),
            ("/a", LastLink::Follow),
            ("/ab", LastLink::Follow),
            ("/a/b", LastLink::Keep),
            ("/a/b/", LastLink::Keep),
            ("/b", LastLink::Follow),
        ] {
            assert_eq!(copy.last_link(path.as_bytes()), expected, "{path}");
        }
        let get = RequestContext::new(&Method::GET, false);
        assert_eq!(get.last_link(b"/a"), LastLink::Follow);
        assert_eq!(get.last_link(b"/a/b"), LastLink::Follow);
    }
}
