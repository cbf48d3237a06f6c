//! Tests of scripts.

#[macro_use]
extern crate testkit;

mod page;
