//! Serves a [`vfs::FileSystem`] by NFSv3 and MOUNTv3 (RFC 1813) on one TCP port, without a portmapper.
//!
//! [`NfsService`] answers single messages. [`NfsServer`] accepts connections and passes their messages to a service.
//! File handles carry a check value, so that clients get them from MOUNT only. Messages, connections and the memory of
//! a connection are bounded; invalid input gets an error or ends its connection.
#![forbid(unsafe_code)]

mod access;
mod answer;
mod attributes;
mod connection;
mod duplicates;
mod export;
mod handle;
mod held;
mod locks;
mod mount;
mod mount_table;
mod procedures;
mod rpc;
mod server;
mod service;
mod status;
mod xdr;

pub use access::NfsCallers;
pub use export::{ExportPath, ExportPathError};
pub use server::NfsServer;
pub use service::{NfsOptions, NfsService};
pub use status::NfsStatus;
pub use vfs::peer::LocalUsers;
pub use vfs::served::ServedOutcome;
