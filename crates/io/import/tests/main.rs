//! Directories and tar archives as sources.

extern crate diskwright_import as import;
#[macro_use]
extern crate testkit;

mod combine;
mod common;
mod correct;
mod directory;
mod oci;
mod tar;
