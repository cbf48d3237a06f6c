//! Code that ext4 and XFS share, between the transaction engine and the formats. [`repair`] stages and plans repairs.
#![forbid(unsafe_code)]

pub mod chain;
pub mod data;
pub mod deferred_create;
pub mod groups;
mod in_memory_undo;
pub mod inode;
mod interrupt;
pub mod label;
pub mod locks;
mod mode;
pub mod mounted;
pub mod names;
pub mod obfuscate;
pub mod opens;
pub mod orphans;
pub mod profile;
pub mod repair;
pub mod reserve;
mod run;

pub use in_memory_undo::InMemoryUndo;
pub use interrupt::{Interrupt, Outcome};
pub use mode::Mode;
pub use mounted::Mounted;
pub(crate) use run::sync_data;
pub use run::{Operation, RunOperations, sync};
