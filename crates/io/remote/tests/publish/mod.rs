//! Publishing, reading and sweeping in stores that fail, are slow, or have several concurrent users.

mod faults;
mod images;
mod manifests;
mod sample;
mod store;
mod together;
