//! `diskwright mount` and `unmount` as processes: start, end and rejected calls.

mod background;
mod block_device;
pub(crate) mod common;
mod damage;
mod ending;
mod images;
mod listed;
mod nfs;
mod refusals;
mod replacing;
mod unmounting;
mod user;
