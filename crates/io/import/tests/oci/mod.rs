//! Container images as sources.

mod bad_input;
mod common;
mod flatten;
mod images;
mod model;
mod overlay;
#[cfg(feature = "pull")]
mod pull;
