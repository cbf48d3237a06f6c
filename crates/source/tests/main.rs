//! Directories and tar archives as sources.

mod combine;
mod common;
mod correct;
mod directory;
mod oci;
mod tar;
