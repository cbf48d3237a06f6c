//! Publishing, reading and sweeping in stores that fail, are slow, or have several concurrent users.

mod faults;
mod images;
mod manifests;
pub(crate) mod sample;
pub(crate) mod store;
mod together;
