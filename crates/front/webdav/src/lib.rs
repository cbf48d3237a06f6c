//! Serves a [`vfs::FileSystem`] by WebDAV (RFC 4918, classes 1 and 2), with a page for browsers.
//!
//! `dav-server` answers the requests, hyper speaks HTTP. This crate adds access, limits, and the operations on the file
//! system, which run on a bounded number of threads. Connections, requests and their memory are bounded;
//! invalid input gets an error or ends its connection.
#![forbid(unsafe_code)]

mod access;
mod answer;
mod archive;
mod archive_pieces;
mod body;
mod connections;
mod context;
mod copy;
mod dav;
mod file;
mod listing;
mod locks;
mod metadata;
mod missing;
mod names;
mod options;
mod page;
mod pool;
mod properties;
mod server;
mod status;
mod stream;
mod times;
mod upload;
mod volume;
mod xml_guard;

pub use archive::{Archive, ArchiveSource};
pub use options::{Symlinks, WebdavAccess, WebdavOptions, WebdavSecret};
pub use server::WebdavServer;
pub use vfs::peer::LocalUsers;
pub use vfs::served::ServedOutcome;
