//! Diskwright for JavaScript: the engine as a WebAssembly module, for the page in `web/` and the package in `npm/`.
//!
//! All calls are synchronous. JavaScript provides a device, an object with `size`, `readAt` and optionally `writeAt`,
//! and gets a [`Disk`] with its file systems. Results are JSON, except file contents.
//!
//! - Operations on images are plain Rust (`volume` and related modules) and are tested without JavaScript.
//! - Only `js` communicates with JavaScript. The code generated there by wasm-bindgen is the only `unsafe` code in this
//!   crate.
#![deny(unsafe_code)]

mod check_report;
mod edit;
mod entry;
mod failure;
mod info;
#[allow(unsafe_code, reason = "what wasm-bindgen generates for exports is")]
mod js;
mod place;
mod tar;
#[cfg(test)]
mod tests;
mod volume;

pub use js::{Disk, Image, JsDevice, TarStream};
