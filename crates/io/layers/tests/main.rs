//! Layers of real tools, damaged ones, and hostile ones.

mod common;
mod damaged;
mod golden;
mod writing;
