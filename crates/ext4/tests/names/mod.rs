//! What changes names: compared with the model, judged by e2fsck and the kernel.

pub(crate) mod common;
mod errors;
mod features;
mod listing;
mod model;
mod threads;
