//! Where the program lies in memory. Scripts call it by the names of small tools, thousands of times, and a seventh of such
//! a call is what a program takes that may lie anywhere: 14,000 addresses to write, and a copy of each page that has one.
//! So optimised builds for Linux with glibc have an address of their own, as far as the program itself goes; its stack,
//! its memory and the shared libraries lie anywhere as before. `DISKWRIGHT_PIE=1` builds the other kind, for
//! distributions that ask for it.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=DISKWRIGHT_PIE");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    let is_linux = is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu");
    if is_linux && is("PROFILE", "release") && env::var_os("DISKWRIGHT_PIE").is_none() {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
