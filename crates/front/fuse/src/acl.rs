//! POSIX access control lists in requests.

#[cfg(test)]
mod tests;

use linux::Errno;
use vfs::acl::Malformed;
pub(crate) use vfs::acl::{ACCESS, Acl, DEFAULT};

/// Parses an attribute's value.
///
/// # Errors
/// `EOPNOTSUPP` if the version is unknown, `EINVAL` if the list is invalid.
pub(crate) fn parse(value: &[u8]) -> Result<Acl, Errno> {
    Acl::parse(value).map_err(|malformed| match malformed {
        Malformed::Version => Errno::OPNOTSUPP,
        Malformed::Entries => Errno::INVAL,
    })
}
