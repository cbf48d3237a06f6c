//! Changing the size in place: what comes of it, and what a crash leaves, is judged by e2fsck, the check, the kernel
//! and resize2fs, which goes on after us.

mod crash;
mod grow;
mod kinds;
mod shrink;
