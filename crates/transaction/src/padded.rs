//! Keeping apart in memory what different threads change.

use std::ops::Deref;

/// A value on cache lines of its own: two, because processors fetch them in pairs.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

impl<T> Deref for Padded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
