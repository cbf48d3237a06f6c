//! Deleted files as a table.

use std::io::Write;

use vfs::deleted::DeletedSource;

use super::{Certainty, DeletedFile, Found};
use crate::{Error, Result, text};

/// Writes one line for each deleted file, after a header. Names are escaped.
///
/// # Errors
/// If the output cannot be written.
pub fn write_table(found: &Found, out: &mut dyn Write) -> Result<()> {
    let mut rows = vec![
        ["INODE", "TYPE", "SIZE", "DELETED", "CERTAINTY", "SOURCE", "PATH"].map(str::to_owned),
    ];
    rows.extend(found.files.iter().map(row));
    // Numbers are aligned on the right.
    text::write_columns(&rows, &[0, 2], out).map_err(Error::Output)
}

fn row(file: &DeletedFile) -> [String; 7] {
    let unknown = || "?".to_owned();
    let inode = file.inode.as_ref();
    let certainty = match file.certainty {
        Certainty::PartlyOverwritten => {
            let states = file.blocks;
            let taken = states.in_use + states.reused;
            format!("{} {taken}/{}", file.certainty.word(), taken + states.free)
        }
        certainty => certainty.word().to_owned(),
    };
    [
        file.ino().map_or_else(unknown, |ino| ino.to_string()),
        file.file_type().map_or_else(unknown, |found| text::type_word(found).to_owned()),
        inode.and_then(|inode| inode.size).map_or_else(unknown, |size| size.to_string()),
        inode.and_then(|inode| inode.dtime).map_or_else(unknown, text::minute),
        certainty,
        source(file),
        path(file),
    ]
}

fn source(file: &DeletedFile) -> String {
    let found = match (&file.inode, file.names.first()) {
        (Some(inode), _) => inode.source,
        (None, Some(name)) => name.entry.source,
        (None, None) => return "?".to_owned(),
    };
    match found {
        DeletedSource::Inodes => "inode table".to_owned(),
        DeletedSource::Log { block, .. } => format!("journal block {block}"),
        DeletedSource::Slack { .. } => "directory slack".to_owned(),
        DeletedSource::Free { block } => format!("free block {block}"),
    }
}

/// Returns the first name with its directory. An unknown directory is `?`.
fn path(file: &DeletedFile) -> String {
    let Some(name) = file.names.first() else { return "?".to_owned() };
    let shown = match &name.path {
        Some(path) => text::escaped(path).to_string(),
        None => format!("?/{}", text::escaped(&name.entry.name)),
    };
    match file.names.len() {
        1 => shown,
        more => format!("{shown} (and {} more)", more - 1),
    }
}
