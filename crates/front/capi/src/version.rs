//! Version of the library.

use std::ffi::c_char;

/// Major version of this header.
pub const DW_VERSION_MAJOR: u32 = 0;
/// Minor version. Before 1.0, versions with different minor numbers may be incompatible.
pub const DW_VERSION_MINOR: u32 = 1;
/// Patch version.
pub const DW_VERSION_PATCH: u32 = 0;

/// Returns the version of the loaded library as a number: major * 1,000,000 + minor * 1,000 + patch.
#[unsafe(no_mangle)]
pub extern "C" fn dw_version_number() -> u32 {
    DW_VERSION_MAJOR * 1_000_000 + DW_VERSION_MINOR * 1_000 + DW_VERSION_PATCH
}

/// Returns the version of the loaded library as a string, such as "0.1.0". It must not be freed.
#[unsafe(no_mangle)]
pub extern "C" fn dw_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_package() {
        let numbers = [DW_VERSION_MAJOR, DW_VERSION_MINOR, DW_VERSION_PATCH].map(|n| n.to_string());
        assert_eq!(numbers.join("."), env!("CARGO_PKG_VERSION"));
    }
}
