//! A single layer: a tar or a directory, interpreted according to the image specification.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use super::layer::LayerReader;
use super::manifest::Layer;
use super::pool::Pool;
use super::store::Store;
use super::whiteout::{Meaning, meaning};
use super::{ContainerFault, Limits};
use crate::host::as_path;
use crate::{DirectorySource, Entry, Options, Source, SourceError};

/// An entry of a layer.
#[derive(Debug)]
pub struct LayerEntry {
    /// Meaning of its name.
    pub meaning: Meaning,
    /// The entry. Its contents can be read at any time.
    pub entry: Entry,
}

/// A layer that was read completely. Only file contents of an uncompressed one may still be damaged.
#[derive(Debug)]
pub struct LayerFile {
    name: PathBuf,
    entries: Vec<LayerEntry>,
}

impl LayerFile {
    /// Reads a layer: a tar (uncompressed, gzip or zstd, by its first bytes), `-` for one on standard input, or a
    /// directory with the structure of an unpacked layer including whiteouts. Contents of a compressed one are written
    /// to an unnamed file in `beside`.
    ///
    /// # Errors
    /// If it cannot be read, is damaged, or exceeds the limits.
    pub fn load(
        path: &Path,
        beside: &Path,
        limits: &Limits,
        directory: &Options,
    ) -> Result<Self, SourceError> {
        let entries = if path != Path::new("-") && path.is_dir() {
            let mut source = DirectorySource::open(path, directory)?;
            let mut entries = Vec::new();
            while let Some(entry) = source.next_entry()? {
                entries.push(entry);
            }
            entries
        } else {
            read_archive(path, beside, limits)?
        };
        let mut all = Vec::with_capacity(entries.len());
        for entry in entries {
            let meaning =
                meaning(&entry.path).map_err(|fault| fault.of_layer(path, &entry.path))?;
            all.push(LayerEntry { meaning, entry });
        }
        Ok(Self { name: path.to_owned(), entries: all })
    }

    /// Returns its entries in order.
    pub fn entries(&self) -> &[LayerEntry] {
        &self.entries
    }

    /// Returns the error for a fault of one of its entries.
    pub fn error(&self, fault: ContainerFault, entry: &[u8]) -> SourceError {
        fault.of_layer(&self.name, entry)
    }
}

/// Reads an archive that is not a layer, as [`LayerFile::load`] does: all names are literal, and the prefix `.wh.` has
/// no meaning. Entries come in the order of the archive, and their contents can be read at any time.
///
/// # Errors
/// If it cannot be read, is damaged, or exceeds the limits.
pub fn read_archive(
    path: &Path,
    beside: &Path,
    limits: &Limits,
) -> Result<Vec<Entry>, SourceError> {
    let store = Store::of_layer(path, beside, limits).map_err(|error| of_layer(error, path))?;
    let name = store.image.clone();
    let layer = Layer { name, digest: None, size: None, packing: None, diff_id: None };
    let pool = Pool::new(beside)?;
    let is_cancelled = AtomicBool::new(false);
    let reader = LayerReader {
        store: &store,
        layer: &layer,
        pool: &pool,
        limits,
        is_cancelled: &is_cancelled,
    };
    reader.read().map_err(|error| of_layer(error, path))
}

/// Converts an image error: a layer has a single name.
fn of_layer(error: SourceError, path: &Path) -> SourceError {
    match error {
        SourceError::Container { entry, fault, .. } => {
            SourceError::Layer { layer: path.to_owned(), entry, fault }
        }
        other => other,
    }
}

impl ContainerFault {
    /// Returns the error for an entry of a layer in a separate file.
    fn of_layer(self, layer: &Path, entry: &[u8]) -> SourceError {
        let (layer, entry) = (layer.to_owned(), Some(as_path(entry).into_owned()));
        SourceError::Layer { layer, entry, fault: Box::new(self) }
    }
}
