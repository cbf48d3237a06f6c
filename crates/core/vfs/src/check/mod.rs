//! Shared parts of the checkers of both formats: findings with stable codes, observers, parallel work, and sets of
//! blocks.
//!
//! A checker reads a device and never writes. It reports each [`Finding`] to an [`Observer`] as soon as the finding is
//! complete, and returns a [`Summary`] at the end. The possible findings of each format form its catalogue, a list of
//! [`Code`]s.

mod finding;
mod observer;
mod paths;
mod set;
mod work;

pub use finding::{Code, Finding, FindingPlace, Severity};
pub use observer::{FindingCounter, FindingList, Observer, Options, Phase, Silent, Summary};
pub use paths::{Naming, Parent, Waiting};
pub use set::BitSet;
pub use work::each;
