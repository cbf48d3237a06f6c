//! Disk: detecting its contents, and opening, creating and checking its file systems.

use std::cell::RefCell;
use std::sync::Arc;

use disk::BlockDevice;
use js_sys::Function;
use vfs::Timestamp;
use wasm_bindgen::prelude::*;

use super::device::{JsDevice, Registered};
use super::failure::{json, options, throw_panics, thrown};
use super::image::Image;
use crate::check_report::Watcher;
use crate::failure::Failure;
use crate::place;
use crate::volume::{self, Open, Volume};

thread_local! {
    /// Progress callback of the running check.
    static PROGRESS: RefCell<Option<Function>> = const { RefCell::new(None) };
}

/// Returns the time from JavaScript, because a module has no clock.
fn clock() -> Timestamp {
    let millis = js_sys::Date::now();
    let sec = (millis / 1000.0).floor();
    Timestamp { sec: sec as i64, nsec: ((millis - sec * 1000.0) * 1e6) as u32 }
}

/// A disk, or an image.
#[wasm_bindgen]
pub struct Disk {
    device: Arc<dyn BlockDevice>,
    is_writable: bool,
}

#[wasm_bindgen]
impl Disk {
    /// Wraps a device: an object with `size`, `readAt(offset, buffer)` and, for writing, `writeAt(offset, bytes)`.
    ///
    /// # Errors
    /// If one of them is missing.
    #[wasm_bindgen(constructor)]
    pub fn new(device: JsDevice) -> Result<Self, JsValue> {
        vfs::clock::provide(clock);
        crate::words::speak_javascript();
        throw_panics();
        let device = Registered::new(device).map_err(thrown)?;
        let is_writable = device.is_writable();
        Ok(Self { device: Arc::new(device), is_writable })
    }

    /// Returns the contents as JSON: `size`, `contents`, `partitions`.
    ///
    /// # Errors
    /// If its first bytes cannot be read.
    pub fn layout(&self) -> Result<String, JsValue> {
        json(&place::layout(&self.device).map_err(thrown)?)
    }

    /// Opens a file system: the whole disk, or the `partition` or `offset` in the options (JSON).
    ///
    /// # Errors
    /// If there is no usable file system.
    pub fn open(&self, how: &str) -> Result<Image, JsValue> {
        let how: Open = options(how)?;
        if how.writable && !self.is_writable {
            let message = "the device has no writeAt, so it is read-only";
            return Err(thrown(Failure::new("EROFS", message)));
        }
        Volume::open(&self.device, &how).map(Image::new).map_err(thrown)
    }

    /// Creates an empty file system on the whole disk with options (JSON).
    ///
    /// # Errors
    /// If the options are invalid, or the device fails.
    pub fn format(&self, how: &str) -> Result<(), JsValue> {
        volume::format(&self.device, &options(how)?).map_err(thrown)
    }

    /// Checks a file system at a location (JSON) and returns findings as JSON. `progress(phase, done, total)` is called
    /// repeatedly and returns false to cancel.
    ///
    /// # Errors
    /// If the check is impossible.
    pub fn check(&self, place: &str, progress: Option<Function>) -> Result<String, JsValue> {
        let place = options(place)?;
        PROGRESS.replace(progress);
        let watcher = Watcher::new(&tell);
        let checked = volume::check(&self.device, place, &watcher);
        PROGRESS.replace(None);
        let (format, summary) = checked.map_err(thrown)?;
        json(&watcher.report(format, summary))
    }
}

fn tell(phase: &str, done: u64, total: u64) -> bool {
    let Some(progress) = PROGRESS.with_borrow(Clone::clone) else { return true };
    let told = progress.call3(
        &JsValue::NULL,
        &phase.into(),
        &(done as f64).into(),
        &(total as f64).into(),
    );
    // A function that throws wants no more of it.
    told.is_ok_and(|answer| answer.as_bool() != Some(false))
}
