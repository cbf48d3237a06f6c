//! Conversion of failures to JavaScript errors: with `code` and, for damage, `structure` and location.

use std::sync::Once;

use js_sys::{Error, Reflect};
use wasm_bindgen::JsValue;

use crate::failure::{Damage, Failure};
use crate::js::device::take_exception;

fn set(error: &Error, name: &str, value: impl Into<JsValue>) {
    // An error that was just made takes every property.
    let _ = Reflect::set(error, &name.into(), &value.into());
}

/// Returns the error to throw.
pub(super) fn thrown(failure: Failure) -> JsValue {
    let error = Error::new(&failure.message);
    set(&error, "code", failure.code);
    // The exception of the device is more specific.
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

/// Makes a panic throw an error with its location and the code `EFAULT`. The module is unusable afterwards, and images
/// are in the state after a crash.
pub(super) fn throw_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|info| {
            let message = format!("internal error of diskwright: {info}");
            wasm_bindgen::throw_val(thrown(Failure::new("EFAULT", message)));
        }));
    });
}

/// Serialises a result as JSON.
pub(super) fn json(answer: &impl serde::Serialize) -> Result<String, JsValue> {
    let text = serde_json::to_string(answer);
    text.map_err(|error| thrown(Failure::new("EINVAL", error.to_string())))
}

/// Parses options from JSON.
pub(super) fn options<'t, T: serde::Deserialize<'t>>(text: &'t str) -> Result<T, JsValue> {
    let options = serde_json::from_str(text);
    options.map_err(|error| thrown(Failure::invalid(format!("options: {error}"))))
}
