//! Failures as errors of JavaScript: with `code` and, for damage, `structure` and its place.

use std::sync::Once;

use js_sys::{Error, Reflect};
use wasm_bindgen::JsValue;

use crate::failure::{Damage, Failure};
use crate::js::device::take_exception;

fn set(error: &Error, name: &str, value: impl Into<JsValue>) {
    // An error that was just made takes every property.
    let _ = Reflect::set(error, &name.into(), &value.into());
}

/// The error to throw.
pub(super) fn thrown(failure: Failure) -> JsValue {
    let error = Error::new(&failure.message);
    set(&error, "code", failure.code);
    // What the device threw says more than that it did.
    if let Some(cause) = take_exception().filter(|_| failure.code == "EIO") {
        set(&error, "cause", cause);
    }
    if let Some(damage) = failure.damage {
        let Damage { structure, group, block, inode, expected, found } = *damage;
        set(&error, "structure", structure);
        for (name, number) in [("group", group), ("block", block), ("inode", inode)] {
            if let Some(number) = number {
                set(&error, name, number as f64);
            }
        }
        for (name, text) in [("expected", expected), ("found", found)] {
            if let Some(text) = text {
                set(&error, name, text);
            }
        }
    }
    error.into()
}

/// Has a panic throw an error that says where it was, with the code `EFAULT`. The module is of no use after it: nothing was
/// cleaned up, so that an image is as after a crash.
pub(super) fn throw_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|info| {
            let message = format!("diskwright met a fault of its own: {info}");
            wasm_bindgen::throw_val(thrown(Failure::new("EFAULT", message)));
        }));
    });
}

/// An answer as JSON.
pub(super) fn json(answer: &impl serde::Serialize) -> Result<String, JsValue> {
    let text = serde_json::to_string(answer);
    text.map_err(|error| thrown(Failure::new("EINVAL", error.to_string())))
}

/// Options, which come as JSON.
pub(super) fn options<'t, T: serde::Deserialize<'t>>(text: &'t str) -> Result<T, JsValue> {
    let options = serde_json::from_str(text);
    options.map_err(|error| thrown(Failure::invalid(format!("options: {error}"))))
}
