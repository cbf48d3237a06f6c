//! Tests of what is run from outside.

#[macro_use]
extern crate oracle;

mod page;
