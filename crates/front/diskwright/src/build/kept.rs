//! Entries kept in memory between estimate and build, so that the source is not read again.

use std::collections::VecDeque;

use import::{Body, Entry, EntryKind, Progress, Source, SourceError};

/// Memory limit of kept entries in bytes. A larger source is read a second time.
const BYTES_MAX: usize = 256 << 20;

/// Entries per allocation.
const PIECE_ENTRIES: usize = 1024;

/// Approximate overhead of an allocation in bytes.
const ALLOCATION_BYTES: usize = 24;

/// All entries of a source so far, or none if they exceed the limit.
pub(super) struct KeptEntries {
    pieces: VecDeque<Vec<Entry>>,
    bytes: usize,
    bytes_max: usize,
    is_given_up: bool,
}

impl KeptEntries {
    pub(super) fn new() -> Self {
        Self { pieces: VecDeque::new(), bytes: 0, bytes_max: BYTES_MAX, is_given_up: false }
    }

    /// Stores an entry. If its contents can only be read sequentially, or the limit is reached, drops all entries and
    /// stores no more.
    pub(super) fn add(&mut self, entry: Entry) {
        if self.is_given_up {
            return;
        }
        let is_stream = |kind: &EntryKind| match kind {
            EntryKind::File(content) => matches!(content.body(), Body::Stream),
            _ => false,
        };
        self.bytes += bytes_of(&entry);
        if self.bytes > self.bytes_max || is_stream(&entry.kind) {
            self.pieces.clear();
            self.is_given_up = true;
            return;
        }
        match self.pieces.back_mut() {
            Some(piece) if piece.len() < PIECE_ENTRIES => piece.push(entry),
            _ => {
                let mut piece = Vec::with_capacity(PIECE_ENTRIES);
                piece.push(entry);
                self.pieces.push_back(piece);
            }
        }
    }

    /// Returns a source of the kept entries if all were kept.
    pub(super) fn into_source(self) -> Option<Box<dyn Source>> {
        let source = Replay { pieces: self.pieces, piece: Vec::new().into_iter(), returned: 0 };
        (!self.is_given_up).then(|| Box::new(source) as Box<dyn Source>)
    }
}

/// Returns the approximate memory use of an entry.
fn bytes_of(entry: &Entry) -> usize {
    let more = match &entry.kind {
        EntryKind::File(content) => {
            let body =
                if matches!(content.body(), Body::Empty) { 0 } else { 2 * entry.path.len() + 128 };
            body + size_of_val(content.runs())
        }
        EntryKind::Symlink(target) | EntryKind::Hardlink(target) => target.len() + ALLOCATION_BYTES,
        _ => 0,
    };
    let xattr = |xattr: &import::Xattr| {
        size_of_val(xattr) + xattr.name.len() + xattr.value.len() + 2 * ALLOCATION_BYTES
    };
    let xattrs: usize = entry.xattrs.iter().map(xattr).sum();
    let inode = entry.inode.as_ref().map_or(0, |inode| size_of_val(&**inode) + ALLOCATION_BYTES);
    size_of::<Entry>() + entry.path.len() + ALLOCATION_BYTES + more + xattrs + inode
}

/// Source that returns each kept entry once.
struct Replay {
    pieces: VecDeque<Vec<Entry>>,
    piece: std::vec::IntoIter<Entry>,
    returned: u64,
}

impl Source for Replay {
    fn next_entry(&mut self) -> Result<Option<Entry>, SourceError> {
        if self.piece.len() == 0 {
            let Some(piece) = self.pieces.pop_front() else { return Ok(None) };
            self.piece = piece.into_iter();
        }
        self.returned += 1;
        Ok(self.piece.next())
    }

    /// Entries with streamed contents are never kept.
    fn read(&mut self, _: &mut [u8]) -> Result<usize, SourceError> {
        Ok(0)
    }

    fn progress(&self) -> Progress {
        Progress { done: self.returned, total: None }
    }
}

#[cfg(test)]
mod tests {
    use import::{Metadata, Time};

    use super::*;

    fn entry(number: u32) -> Entry {
        let metadata = Metadata {
            permissions: 0o644,
            uid: 0,
            gid: 0,
            mtime: Time::default(),
            atime: None,
            ctime: None,
        };
        let path = number.to_string().into_bytes();
        Entry { path, kind: EntryKind::Fifo, metadata, xattrs: Vec::new(), inode: None }
    }

    #[test]
    fn stored_entries_are_returned_in_order() {
        let mut kept = KeptEntries::new();
        (0..3_000).for_each(|number| kept.add(entry(number)));
        let mut source = kept.into_source().unwrap();
        for number in 0..3_000 {
            assert_eq!(source.next_entry().unwrap().unwrap().path, number.to_string().into_bytes());
        }
        assert!(source.next_entry().unwrap().is_none());
        assert!(KeptEntries::new().into_source().unwrap().next_entry().unwrap().is_none());
    }

    #[test]
    fn too_much_is_not_kept() {
        let mut kept = KeptEntries { bytes_max: 100_000, ..KeptEntries::new() };
        (0..10_000).for_each(|number| kept.add(entry(number)));
        assert!(kept.pieces.is_empty() && kept.into_source().is_none());
    }
}
