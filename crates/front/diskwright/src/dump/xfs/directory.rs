//! Directories.

use std::ops::ControlFlow;

use vfs::{Cookie, Error as FsError, FileSystem, Ino};

use super::{Dump, Fields, Source};
use crate::dump::bytes::bytes_text;
use crate::text::type_word;

/// Maximum number of directory entries in the output.
const ENTRIES_MAX: usize = 1_000_000;

impl Source {
    pub(super) fn directory_blocks(&self, ino: Ino) -> vfs::Result<Dump> {
        let inode = self.fs.inode(ino)?;
        if !inode.is_dir() {
            return Err(FsError::NotADirectory);
        }
        let mut dump = Dump::default();
        dump.fields.add("inode", ino.0);
        dump.fields.add("size", inode.size());
        let mut entries = Vec::new();
        let listed = self.fs.readdir(ino, Cookie::default(), &mut |entry| {
            let mut fields = Fields::default();
            fields.add("inode", entry.ino.0);
            fields.add("type", entry.file_type.map_or("unknown", type_word));
            fields.add("name", bytes_text(entry.name));
            entries.push(fields);
            if entries.len() < ENTRIES_MAX {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        if let Err(error) = listed {
            dump.problem(error);
        }
        dump.fields.add("entries", entries);
        Ok(dump)
    }
}
