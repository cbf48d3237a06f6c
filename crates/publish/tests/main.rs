//! Publishing, reading and sweeping in stores that fail, are slow, and are used by several at once.

extern crate diskwright_publish as publish;

mod faults;
mod images;
mod manifests;
mod sample;
mod store;
mod together;
