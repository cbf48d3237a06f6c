//! Edge cases of the guarantees of POSIX and Linux, on our mounts.

mod appends;
mod damage;
mod data;
mod flags;
mod full;
mod handles;
mod ioctls;
mod listing;
mod names;
mod permissions;
mod shutdown;
mod times;
mod unlinked;
mod whiteouts;
