//! `diskwright mount` and `unmount` as processes: starting, ending, refusing.

mod background;
pub(crate) mod common;
mod damage;
mod ending;
mod images;
mod library;
mod refusals;
mod replacing;
mod unmounting;
mod user;
