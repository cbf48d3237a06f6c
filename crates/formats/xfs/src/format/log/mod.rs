//! The log: records, the operations in them, and the items that transactions consist of.

pub mod buffer;
pub(crate) mod buffer_item;
pub mod build;
mod checksum;
pub mod dquot;
pub mod icreate;
pub mod inode;
pub mod intent;
pub mod item;
pub mod operation;
mod raw_item;
mod record;
pub mod transaction;

pub(crate) use buffer_item::BufferItem;
pub(crate) use checksum::check_record;
pub use checksum::{Mismatch, seal_record};
pub use record::*;
