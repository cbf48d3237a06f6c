//! The log: records, the operations in them, and the items that transactions consist of.

pub mod buffer;
pub mod build;
pub mod intent;
pub mod item;
mod record;

pub use record::*;
