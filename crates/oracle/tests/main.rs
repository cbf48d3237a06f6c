//! Tests of the judges and of their requirements, and of the style of the whole project.

#[macro_use]
extern crate diskwright_oracle as oracle;

mod circles;
mod documents;
mod guest;
mod judges;
mod messages;
mod tidy;
mod words;
mod xfs;
