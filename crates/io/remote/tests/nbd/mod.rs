//! The server and the client, with each other, with other programs, and with hostile peers.

mod chunks;
mod hostile;
mod judges;
mod serving;
mod support;
