//! Tests of scripts.

#[macro_use]
extern crate oracle;

mod page;
