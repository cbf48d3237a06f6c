//! The server and the client, with each other, with programs of others, and with peers that lie.

#[macro_use]
extern crate oracle;

mod hostile;
mod judges;
mod serving;
mod support;
