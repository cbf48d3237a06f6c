//! Links optimised builds for Linux with glibc at a fixed address (no PIE). Scripts call the program under the names
//! of small tools thousands of times. A position-independent program spends a seventh of such a call on 14,000
//! relocations and the copied pages that contain them. Stack, heap and shared libraries are still at random
//! addresses. `DISKWRIGHT_PIE=1` builds a position-independent program, for distributions that require it.

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
