//! vhost-user: a block device for virtual machines, which share their memory with the [`Server`].
//!
//! QEMU, Cloud Hypervisor, Firecracker and crosvm are front ends. The crates of rust-vmm implement the protocol; this
//! module performs the requests of virtio-blk. The layouts and numbers are those of VIRTIO 1.2, section 5.2, and of
//! QEMU's "Vhost-user Protocol".
//!
//! A guest is not trusted: descriptors outside of its memory, requests past the end and unknown requests are answered
//! with an error, or ignored without room for an answer. The program that runs the guest is trusted: it could
//! make its memory smaller after it was mapped.

mod backend;
mod config;
mod request;
mod server;

pub use server::{Options, Server};
