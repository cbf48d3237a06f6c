//! NBD, the protocol of network block devices: a [`Server`] that offers any [`BlockDevice`](blockdev::BlockDevice), and a
//! [`Client`] that is one.
//!
//! Both speak the fixed newstyle handshake and simple replies, over TCP and Unix sockets, without TLS. Neither believes
//! the other: a peer that lies, cuts or stalls ends its own connection, and costs no more memory than is said at
//! [`Server`].
#![forbid(unsafe_code)]

mod address;
mod client;
mod protocol;
mod server;
mod stream;

pub use address::{Address, AddressError, Export};
pub use client::Client;
pub use server::Server;
pub use stream::Pace;
