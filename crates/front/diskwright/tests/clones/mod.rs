//! Clones: crashes of their host, and thousands of them in one process.

mod crash;
mod many;
