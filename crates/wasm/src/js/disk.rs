//! A disk: what it holds, its file systems opened, made and checked.

use std::cell::RefCell;
use std::sync::Arc;

use blockdev::BlockDevice;
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
    /// Who is told how far the check is that is under way.
    static PROGRESS: RefCell<Option<Function>> = const { RefCell::new(None) };
}

/// A module has no clock: JavaScript's is taken.
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
    /// Takes a device: an object with `size`, `readAt(offset, buffer)` and, to be changed, `writeAt(offset, bytes)`.
    ///
    /// # Errors
    /// If it lacks one of them.
    #[wasm_bindgen(constructor)]
    pub fn new(device: JsDevice) -> Result<Self, JsValue> {
        vfs::clock::provide(clock);
        throw_panics();
        let device = Registered::new(device).map_err(thrown)?;
        let is_writable = device.is_writable();
        Ok(Self { device: Arc::new(device), is_writable })
    }

    /// What it holds, as JSON: `size`, `contents`, `partitions`.
    ///
    /// # Errors
    /// If its first bytes cannot be read.
    pub fn layout(&self) -> Result<String, JsValue> {
        json(&place::layout(&self.device).map_err(thrown)?)
    }

    /// Opens a file system: the whole disk, or the `partition` or `offset` of the options (JSON).
    ///
    /// # Errors
    /// If there is none that can be used.
    pub fn open(&self, how: &str) -> Result<Image, JsValue> {
        let how: Open = options(how)?;
        if how.writable && !self.is_writable {
            let message = "the device has no writeAt: it can only be read";
            return Err(thrown(Failure::new("EROFS", message)));
        }
        Volume::open(&self.device, &how).map(Image::new).map_err(thrown)
    }

    /// Makes an empty file system on all of it, by options (JSON).
    ///
    /// # Errors
    /// If the options cannot be, or the device fails.
    pub fn format(&self, how: &str) -> Result<(), JsValue> {
        volume::format(&self.device, &options(how)?).map_err(thrown)
    }

    /// Checks a file system, at a place (JSON), and answers with findings as JSON. `progress(phase, done, total)` is
    /// called now and then; if it returns false, the check ends.
    ///
    /// # Errors
    /// If nothing can be checked.
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
