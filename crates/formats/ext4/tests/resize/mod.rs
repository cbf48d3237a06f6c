//! Resizing in place. The results, and the states after a crash, are checked by e2fsck, the check, the kernel and
//! resize2fs, which also resizes further.

mod crash;
mod device;
mod grow;
mod kinds;
mod shrink;
