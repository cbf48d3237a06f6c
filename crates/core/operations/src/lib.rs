//! Code that ext4 and XFS share, between the transaction engine and the formats. [`repair`] stages and plans repairs.
#![forbid(unsafe_code)]

pub mod chain;
pub mod data;
pub mod groups;
pub mod inode;
mod interrupt;
pub mod label;
pub mod locks;
mod mode;
pub mod names;
pub mod opens;
pub mod orphans;
pub mod profile;
pub mod repair;
pub mod reserve;
mod run;
mod side;
pub mod waiting;

pub use interrupt::{Interrupt, Outcome};
pub use mode::Mode;
pub use run::{Operation, RunOperations, sync, sync_data};
pub use side::Side;
