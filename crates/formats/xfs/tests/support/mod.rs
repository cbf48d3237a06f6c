//! Shared by tests of file contents.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test uses a part")]

pub mod files;
pub mod image;
