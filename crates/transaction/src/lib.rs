//! Buffer cache, transactions and checkpoints. Knows no on-disk format.
#![forbid(unsafe_code)]

mod error;

pub use error::{Corruption, Error, Result};
