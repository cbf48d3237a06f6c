//! Directories and tar archives as sources.

extern crate diskwright_source as source;
#[macro_use]
extern crate oracle;

mod combine;
mod common;
mod correct;
mod directory;
mod oci;
mod tar;
