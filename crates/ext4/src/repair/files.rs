//! What belongs to files.

use ::repair::Fix;

use super::Job;

/// Inodes and what they own.
pub(super) const INODES: &[Fix<Job>] = &[];
/// Contents of directories.
pub(super) const DIRECTORIES: &[Fix<Job>] = &[];
/// Which names lead where, once space can be allocated.
pub(super) const NAMES: &[Fix<Job>] = &[];
