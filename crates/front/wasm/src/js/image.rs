//! Open file system, accessed by path.

use std::rc::Rc;

use diskwright::Error;
use diskwright::fs::FsError;
use wasm_bindgen::prelude::*;

use super::failure::{json, options, thrown};
use crate::failure::{Result as Answer, whole};
use crate::tar::Tar;
use crate::volume::Volume;
use crate::{edit, entry, info};

/// Maximum size of a read in bytes.
const READ_BYTES_MAX: f64 = 1_073_741_824.0;

/// An open image. Paths are bytes, and start at its root.
#[wasm_bindgen]
pub struct Image {
    volume: Rc<Volume>,
}

impl Image {
    pub(super) fn new(volume: Volume) -> Self {
        Self { volume: Rc::new(volume) }
    }

    fn with<T>(&self, work: impl FnOnce(&diskwright::Image) -> Answer<T>) -> Result<T, JsValue> {
        self.volume.with(work).map_err(thrown)
    }
}

#[wasm_bindgen]
impl Image {
    /// Returns the properties of the image as JSON.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn info(&self) -> Result<String, JsValue> {
        json(&self.with(info::info)?)
    }

    /// Returns a map of the disk layout with at most `cells` cells, as SVG.
    ///
    /// # Errors
    /// If the device fails. Other damage is shown in the map.
    pub fn map(&self, title: &str, cells: u32) -> Result<String, JsValue> {
        self.with(|image| info::map(image, title, cells))
    }

    /// Returns whether the image was opened for writing.
    #[wasm_bindgen(getter, js_name = isWritable)]
    pub fn is_writable(&self) -> bool {
        self.volume.is_writable
    }

    /// Returns the entries of a directory with attributes, sorted by name, as JSON.
    ///
    /// # Errors
    /// If it is not a directory. Damage in it is part of the result.
    pub fn list(&self, path: &[u8]) -> Result<String, JsValue> {
        json(&self.with(|image| entry::list(image, path))?)
    }

    /// Returns the attributes of a file as JSON.
    ///
    /// # Errors
    /// If it does not exist.
    pub fn stat(&self, path: &[u8], follow: bool) -> Result<String, JsValue> {
        json(&self.with(|image| entry::stat(image, path, follow))?)
    }

    /// Returns attributes, flags, target and extended attributes of a file as JSON.
    ///
    /// # Errors
    /// If it does not exist.
    pub fn details(&self, path: &[u8]) -> Result<String, JsValue> {
        json(&self.with(|image| entry::details(image, path))?)
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// If it is not a symbolic link.
    pub fn readlink(&self, path: &[u8]) -> Result<Vec<u8>, JsValue> {
        self.with(|image| Ok(image.read_link(path)?))
    }

    /// Reads a file from `offset` on. Returns fewer than `length` bytes only at its end.
    ///
    /// # Errors
    /// If it is not a regular file.
    pub fn read(&self, path: &[u8], offset: f64, length: f64) -> Result<Vec<u8>, JsValue> {
        let offset = whole("offset", offset).map_err(thrown)?;
        let length = whole("length", length.min(READ_BYTES_MAX)).map_err(thrown)?;
        self.with(|image| entry::read(image, path, offset, length as usize))
    }

    /// Starts a tar archive of a directory or file.
    ///
    /// # Errors
    /// If it does not exist.
    pub fn tar(&self, path: &[u8]) -> Result<TarStream, JsValue> {
        let tar = Tar::new(Rc::clone(&self.volume), path).map_err(thrown)?;
        Ok(TarStream { tar })
    }

    /// Returns the value of an extended attribute.
    ///
    /// # Errors
    /// If it does not exist.
    #[wasm_bindgen(js_name = getXattr)]
    pub fn get_xattr(&self, path: &[u8], name: &[u8]) -> Result<Vec<u8>, JsValue> {
        self.with(|image| {
            let value = image.get_xattr(path, name)?;
            Ok(value.ok_or_else(|| Error::file(path, FsError::NoAttribute))?)
        })
    }

    /// Sets an extended attribute, or removes it without a value.
    ///
    /// # Errors
    /// If it cannot be changed.
    #[wasm_bindgen(js_name = setXattr)]
    pub fn set_xattr(
        &self,
        path: &[u8],
        name: &[u8],
        value: Option<Vec<u8>>,
    ) -> Result<(), JsValue> {
        self.with(|image| edit::set_xattr(image, path, name, value.as_deref()))
    }

    /// Creates a file or replaces its contents.
    #[wasm_bindgen(js_name = writeFile)]
    pub fn write_file(&self, path: &[u8], contents: &[u8], new: &str) -> Result<(), JsValue> {
        let new = options(new)?;
        self.with(|image| edit::write_file(image, path, contents, new))
    }

    /// Writes bytes to a file at `offset`.
    pub fn write(&self, path: &[u8], offset: f64, bytes: &[u8]) -> Result<(), JsValue> {
        let offset = whole("offset", offset).map_err(thrown)?;
        self.with(|image| edit::write_at(image, path, offset, bytes))
    }

    /// Sets the size of a file.
    pub fn truncate(&self, path: &[u8], size: f64) -> Result<(), JsValue> {
        let size = whole("size", size).map_err(thrown)?;
        self.with(|image| edit::truncate(image, path, size))
    }

    /// Creates a directory, with `all` also missing parents.
    pub fn mkdir(&self, path: &[u8], all: bool, new: &str) -> Result<(), JsValue> {
        let new = options(new)?;
        self.with(|image| edit::mkdir(image, path, all, new))
    }

    /// Removes a file or an empty directory, with `all` recursively.
    pub fn remove(&self, path: &[u8], all: bool) -> Result<(), JsValue> {
        self.with(|image| edit::remove(image, path, all))
    }

    /// Renames a file, replacing an existing target.
    pub fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), JsValue> {
        self.with(|image| Ok(image.rename(from, to)?))
    }

    /// Creates a symbolic link at `path`.
    pub fn symlink(&self, target: &[u8], path: &[u8], new: &str) -> Result<(), JsValue> {
        let new = options(new)?;
        self.with(|image| edit::symlink(image, target, path, new))
    }

    /// Creates a hard link.
    pub fn link(&self, existing: &[u8], path: &[u8]) -> Result<(), JsValue> {
        self.with(|image| Ok(image.hard_link(existing, path)?))
    }

    /// Changes permissions, owners and times with options (JSON).
    #[wasm_bindgen(js_name = setAttributes)]
    pub fn set_attributes(&self, path: &[u8], change: &str) -> Result<(), JsValue> {
        let change = options(change)?;
        self.with(|image| edit::set_attributes(image, path, change))
    }

    /// Makes all changes durable.
    pub fn sync(&self) -> Result<(), JsValue> {
        self.with(|image| Ok(image.sync()?))
    }

    /// Makes all changes durable and marks the image clean. Later calls fail.
    pub fn close(&self) -> Result<(), JsValue> {
        self.volume.close().map_err(thrown)
    }
}

/// Tar archive that is read in pieces.
#[wasm_bindgen]
pub struct TarStream {
    tar: Tar,
}

#[wasm_bindgen]
impl TarStream {
    /// Returns the next piece, or an empty one at the end.
    ///
    /// # Errors
    /// If the image was closed.
    #[wasm_bindgen(js_name = next)]
    pub fn next_piece(&mut self) -> Result<Vec<u8>, JsValue> {
        self.tar.next_piece().map_err(thrown)
    }

    /// Returns the number of files so far.
    #[wasm_bindgen(getter)]
    pub fn files(&self) -> f64 {
        self.tar.files() as f64
    }

    /// Returns the omitted or unreadable files as JSON.
    ///
    /// # Errors
    /// Never in practice.
    pub fn remarks(&self) -> Result<String, JsValue> {
        json(&self.tar.remarks())
    }
}
