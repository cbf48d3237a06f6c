//! Shared by the integrity tests and the fuzz target.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each user takes a part of it")]

pub mod image;
pub mod layout;
pub mod walk;
