//! Operations on names, compared with the model and checked by e2fsck and the kernel.

pub(crate) mod common;
mod encrypted;
mod errors;
mod features;
mod folding;
mod listing;
mod model;
mod threads;
