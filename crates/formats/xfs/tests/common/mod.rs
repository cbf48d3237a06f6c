//! Shared by the integrity tests and the fuzz target.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test uses a part")]

pub mod image;
pub mod layout;
pub mod walk;
