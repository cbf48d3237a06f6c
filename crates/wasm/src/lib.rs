//! Diskwright for JavaScript: the engine as a WebAssembly module, for the page in `web/` and the package in `npm/`.
//!
//! All work is synchronous. JavaScript gives a device, an object with `size`, `readAt` and perhaps `writeAt`, and
//! gets a [`Disk`]: what is on it, and its file systems. What is told is JSON, but for contents.
//!
//! - What works on images is plain Rust (`volume` and the modules beside it) and is tested without JavaScript.
//! - `js` alone speaks to JavaScript. Code that wasm-bindgen generates there is `unsafe`; nothing else in this crate is.
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
