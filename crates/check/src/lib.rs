//! What the checkers of both formats share: findings with stable codes, who is told of them, what is done by
//! several threads, and sets of blocks.
//!
//! A checker reads a device and never writes. It tells an [`Observer`] of each [`Finding`] as soon as all of it
//! is known, and says at the end in a [`Summary`] what it looked at. What each format can find is its catalogue,
//! a list of [`Code`]s.
#![forbid(unsafe_code)]

mod finding;
mod observer;
mod paths;
mod set;
mod work;

pub use finding::{Code, Finding, Place, Severity};
pub use observer::{Observer, Options, Phase, Summary};
pub use paths::{Parent, Waiting};
pub use set::BitSet;
pub use work::each;
