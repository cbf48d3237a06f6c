//! NBD, the protocol of network block devices: a [`Server`] that exports any [`BlockDevice`](disk::BlockDevice),
//! and a [`Client`] that is one.
//!
//! Both use the fixed newstyle handshake, structured replies and the status of blocks (`base:allocation`), over TCP and
//! Unix sockets, without TLS. Peers without structured replies get simple ones. Neither trusts its
//! peer: invalid, truncated or stalled messages end only the connection concerned. See [`Server`] for the memory
//! limits.

mod address;
mod client;
mod protocol;
mod server;
mod stream;

pub use address::{Address, AddressError, Export};
pub use client::Client;
#[doc(hidden)]
pub use client::parse_reply;
pub use server::Server;
pub use stream::Pace;
