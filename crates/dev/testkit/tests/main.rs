//! Tests of the judges and of their requirements, of the reference model, and of the style of the whole project.

#[macro_use]
extern crate diskwright_testkit as testkit;

mod circles;
mod documents;
mod guest;
mod judges;
mod messages;
mod model;
mod path;
mod shipped;
mod tidy;
mod words;
mod xfs;
