//! Devices implemented in JavaScript: an object with `size`, `readAt(offset, buffer)`, for writing also
//! `writeAt(offset, bytes)`, and optionally `flush()`.
//!
//! A [`BlockDevice`] may be used by any thread, but a JavaScript object only by its own. Therefore objects are stored
//! in a thread-local table, and a device contains the key of its entry.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;

use disk::BlockDevice;
use wasm_bindgen::prelude::*;

use crate::failure::{Failure, whole};

#[wasm_bindgen]
extern "C" {
    /// Device in JavaScript.
    #[derive(Clone)]
    pub type JsDevice;

    #[wasm_bindgen(method, getter, catch)]
    fn size(this: &JsDevice) -> Result<f64, JsValue>;

    /// Fills the buffer and returns the number of bytes read.
    #[wasm_bindgen(method, catch, js_name = readAt)]
    fn read_at(this: &JsDevice, offset: f64, buffer: &mut [u8]) -> Result<f64, JsValue>;

    /// Writes all bytes and returns the number of bytes written.
    #[wasm_bindgen(method, catch, js_name = writeAt)]
    fn write_at(this: &JsDevice, offset: f64, bytes: &[u8]) -> Result<f64, JsValue>;

    #[wasm_bindgen(method, catch)]
    fn flush(this: &JsDevice) -> Result<JsValue, JsValue>;
}

thread_local! {
    static DEVICES: RefCell<HashMap<u32, JsDevice>> = RefCell::default();
    static NEXT: Cell<u32> = const { Cell::new(0) };
    /// Last exception thrown by a device.
    static EXCEPTION: RefCell<Option<JsValue>> = const { RefCell::new(None) };
}

/// Takes the exception thrown by a device since the last call.
pub(super) fn take_exception() -> Option<JsValue> {
    EXCEPTION.with_borrow_mut(Option::take)
}

/// Buffer size for writing zeros, in bytes.
const ZEROS_BYTES: usize = 64 << 10;

/// Device in the table of its thread.
pub(super) struct Registered {
    key: u32,
    len: u64,
    is_writable: bool,
}

fn has_function(object: &JsValue, name: &str) -> bool {
    js_sys::Reflect::get(object, &name.into()).is_ok_and(|value| value.is_function())
}

impl Registered {
    /// Adds a device to the table.
    ///
    /// # Errors
    /// If it lacks a required property.
    pub(super) fn new(device: JsDevice) -> Result<Self, Failure> {
        let object: &JsValue = device.as_ref();
        if !object.is_object() || !has_function(object, "readAt") {
            let message = "the device must be an object with size and readAt(offset, buffer)";
            return Err(Failure::invalid(message));
        }
        let is_writable = has_function(object, "writeAt");
        let size = device.size().map_err(|thrown| Failure::from(exception("size", thrown)))?;
        let len = whole("size", size)?;
        let key = NEXT.replace(NEXT.get().wrapping_add(1));
        DEVICES.with_borrow_mut(|all| all.insert(key, device));
        Ok(Self { key, len, is_writable })
    }

    /// Returns whether it has `writeAt`.
    pub(super) fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Returns the device. The table is not borrowed during its calls, so that it may open others.
    fn device(&self) -> io::Result<JsDevice> {
        let device = DEVICES.with_borrow(|all| all.get(&self.key).cloned());
        device.ok_or_else(|| io::Error::other("the device belongs to another thread"))
    }

    fn check(&self, offset: u64, len: u64) -> io::Result<()> {
        if offset.checked_add(len).is_some_and(|end| end <= self.len) {
            return Ok(());
        }
        let message = format!("bytes {offset}+{len} are past the end of the device ({})", self.len);
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, message))
    }

    fn check_writable(&self) -> io::Result<()> {
        if self.is_writable {
            return Ok(());
        }
        Err(io::Error::other("the device has no writeAt, so it is read-only"))
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // At the end of a thread the table may be gone already.
        let _ = DEVICES.try_with(|all| all.borrow_mut().remove(&self.key));
    }
}

/// Converts an exception of a device to an error.
fn exception(what: &str, thrown: JsValue) -> io::Error {
    let error = thrown.dyn_ref::<js_sys::Error>();
    let text = error.map_or_else(|| format!("{thrown:?}"), |error| String::from(error.message()));
    EXCEPTION.with_borrow_mut(|last| *last = Some(thrown));
    io::Error::other(format!("{what} failed: {text}"))
}

/// Checks that a call processed all bytes.
fn all(what: &str, offset: u64, done: f64, len: usize) -> io::Result<()> {
    if done == len as f64 {
        return Ok(());
    }
    let message = format!("{what} transferred {done} of {len} bytes at {offset}");
    Err(io::Error::new(io::ErrorKind::UnexpectedEof, message))
}

impl BlockDevice for Registered {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(offset, buf.len() as u64)?;
        if buf.is_empty() {
            return Ok(());
        }
        let len = buf.len();
        let read = self.device()?.read_at(offset as f64, buf);
        all("readAt", offset, read.map_err(|thrown| exception("readAt", thrown))?, len)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check(offset, data.len() as u64)?;
        self.check_writable()?;
        let written = self.device()?.write_at(offset as f64, data);
        all("writeAt", offset, written.map_err(|thrown| exception("writeAt", thrown))?, data.len())
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check(offset, len)?;
        let zeros = vec![0; len.min(ZEROS_BYTES as u64) as usize];
        let mut done = 0;
        while done < len {
            let count = (len - done).min(zeros.len() as u64);
            self.write_at(offset + done, &zeros[..count as usize])?;
            done += count;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let device = self.device()?;
        if !has_function(device.as_ref(), "flush") {
            return Ok(());
        }
        device.flush().map(|_| ()).map_err(|thrown| exception("flush", thrown))
    }
}
