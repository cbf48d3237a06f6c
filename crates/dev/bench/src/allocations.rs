//! Counts of heap allocations. They need another global allocator, which slows down every allocation, so only programs
//! with the feature `allocations` have them.

/// True if this program counts allocations.
pub(crate) const COUNTED: bool = cfg!(feature = "allocations");

/// Returns the number of allocations of this thread in `work`; `None` if this program does not count them.
#[cfg(feature = "allocations")]
pub(crate) fn during(work: &mut dyn FnMut()) -> Option<u64> {
    Some(allocation_counter::measure(work).count_total)
}

/// Runs `work`: this program does not count allocations.
#[cfg(not(feature = "allocations"))]
pub(crate) fn during(_work: &mut dyn FnMut()) -> Option<u64> {
    None
}
