//! Tests of the header, and of the border as Rust sees it.

mod border;
mod header;
