//! What changes names: compared with the model, judged by e2fsck and the kernel.

mod common;
mod errors;
mod features;
mod listing;
mod model;
mod threads;
