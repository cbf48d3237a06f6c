//! Publishing, reading and sweeping in stores that fail, are slow, or have several concurrent users.

extern crate diskwright_publish as publish;

mod faults;
mod images;
mod manifests;
mod sample;
mod store;
mod together;
