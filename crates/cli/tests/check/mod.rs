//! `diskwright check`: what it says of sound and of damaged images, and how it ends. That the checkers find what is
//! wrong is what the tests of the formats are about.

mod catalogue;
pub(crate) mod common;
mod device;
mod ending;
mod output;
mod places;
