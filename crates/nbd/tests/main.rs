//! The server and the client, with each other, with programs of others, and with peers that lie.

mod hostile;
mod judges;
mod serving;
mod support;
