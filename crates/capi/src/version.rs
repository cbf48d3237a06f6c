//! Which version this is.

use std::ffi::c_char;

/// First number of the version of this header.
pub const DW_VERSION_MAJOR: u32 = 0;
/// Second number: before 1.0, versions that differ in it need not fit together.
pub const DW_VERSION_MINOR: u32 = 1;
/// Third number.
pub const DW_VERSION_PATCH: u32 = 0;

/// The version of the library that runs, as a number: the first of its three numbers times 1,000,000, the second times
/// 1,000 and the third, all added.
#[unsafe(no_mangle)]
pub extern "C" fn dw_version_number() -> u32 {
    DW_VERSION_MAJOR * 1_000_000 + DW_VERSION_MINOR * 1_000 + DW_VERSION_PATCH
}

/// The version of the library that runs, as text, such as "0.1.0". It is not to be freed.
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
