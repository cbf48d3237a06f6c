//! Errors as handles of the caller.

use crate::failure::Failure;
use crate::handle::Handle;

/// An error of a failed call, to be freed with dw_error_free. Several threads may read it.
pub struct dw_error {
    _opaque: (),
}

impl Handle for dw_error {
    type Value = Failure;
    const MARK: u64 = u64::from_le_bytes(*b"dw_error");
    const NAME: &'static str = "an error";
}
