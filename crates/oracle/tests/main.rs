//! The judges and what they need, and the style of the whole project.

mod circles;
mod judges;
mod tidy;
mod xfs;
