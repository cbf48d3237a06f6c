//! Applies the whiteouts of a layer. They affect the contents before the layer, so they are applied first.

use std::cell::OnceCell;
use std::collections::HashSet;

use import::EntryKind;
use import::oci::{LayerFile, Meaning};
use vfs::{FileType, Ino};

use super::Fault;
use super::place::{Through, lookup, split, walk};
use crate::edit::Editor;
use crate::list::join;
use crate::{Error, Result};

/// Directory reserved by ext4 for e2fsck. It belongs to the image, so a whiteout only empties it.
const LOST_FOUND: &[u8] = b"lost+found";

/// Applies all whiteouts of a layer. Passes directories that lose names to `changed`. Returns the number of removed
/// names.
pub(super) fn hide(
    editor: Editor<'_>,
    layer: &LayerFile,
    changed: &mut dyn FnMut(Ino),
) -> Result<u64> {
    // If the layer replaces a link of the image by a directory, the target of the link must not be affected.
    let own = OnceCell::new();
    let own_directories = || {
        let entries = layer.entries().iter().map(|item| &item.entry);
        let directories = entries.filter(|entry| matches!(entry.kind, EntryKind::Directory));
        directories.map(|entry| &entry.path[..]).collect::<HashSet<&[u8]>>()
    };
    let mut through = |link: &[u8]| !own.get_or_init(own_directories).contains(link);
    let mut removed = 0;
    for item in layer.entries() {
        let hidden = match &item.meaning {
            Meaning::Whiteout(path) => hide_name(editor, path, &mut through, changed),
            Meaning::Opaque(path) => hide_names(editor, path, &mut through, changed),
            Meaning::File | Meaning::Unnamed | Meaning::Nothing => Ok(0),
        };
        removed += hidden.map_err(|fault| fault.of_entry(layer, &item.entry.path))?;
    }
    Ok(removed)
}

fn hide_name(
    editor: Editor<'_>,
    path: &[u8],
    through: Through<'_>,
    changed: &mut dyn FnMut(Ino),
) -> Result<u64, Fault> {
    let (parent, name) = split(path);
    let Some(place) = walk(editor.fs(), parent, None, through)? else { return Ok(0) };
    if lookup(editor.fs(), place.dir, name)?.is_none() {
        return Ok(0);
    }
    changed(place.dir);
    Ok(remove(editor, &place.path, name)?)
}

fn hide_names(
    editor: Editor<'_>,
    path: &[u8],
    through: Through<'_>,
    changed: &mut dyn FnMut(Ino),
) -> Result<u64, Fault> {
    let Some(place) = walk(editor.fs(), path, None, through)? else { return Ok(0) };
    changed(place.dir);
    let mut removed = 0;
    for entry in editor.paths().read_dir_inode(place.dir)? {
        removed += remove(editor, &place.path, &entry.name)?;
    }
    Ok(removed)
}

/// Removes a name recursively in the directory at a path without links. Returns the number of removed names.
pub(super) fn remove(editor: Editor<'_>, dir: &[u8], name: &[u8]) -> Result<u64> {
    let path = join(&join(b"/", dir), name);
    if dir.is_empty() && name == LOST_FOUND {
        let at = |e| Error::file(&path, e);
        let ino = editor.fs().lookup(editor.fs().root(), name).map_err(at)?;
        if editor.fs().attributes(ino).map_err(at)?.file_type == FileType::Directory {
            let mut removed = 0;
            for entry in editor.paths().read_dir_inode(ino).map_err(at)? {
                removed += remove(editor, LOST_FOUND, &entry.name)?;
            }
            return Ok(removed);
        }
    }
    let mut removed = 0;
    editor
        .paths()
        .remove_all(&path, None, &mut || removed += 1)
        .map_err(|error| Error::file(&join(&path, &error.path), error.error))?;
    Ok(removed)
}
