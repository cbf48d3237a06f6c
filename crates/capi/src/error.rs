//! Errors as callers hold them.

use crate::failure::Failure;
use crate::handle::Handle;

/// An error: made by a call that failed, freed with dw_error_free. Several threads may read one.
pub struct dw_error {
    _opaque: (),
}

impl Handle for dw_error {
    type Value = Failure;
    const MARK: u64 = u64::from_le_bytes(*b"dw_error");
    const NAME: &'static str = "an error";
}
