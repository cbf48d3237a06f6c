//! Shared code of the integrity tests and the fuzz targets.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test uses a part")]

pub mod fill;
pub mod image;
pub mod layout;
pub mod walk;
