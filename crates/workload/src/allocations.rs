//! Counting allocations from the heap. That takes another global allocator, which costs every allocation of a
//! program something: so only programs with the feature `allocations` have it.

/// Whether this program counts allocations.
pub const COUNTED: bool = cfg!(feature = "allocations");

/// How many allocations this thread makes in `work`; `None` if this program does not count them.
#[cfg(feature = "allocations")]
pub fn during(work: &mut dyn FnMut()) -> Option<u64> {
    Some(allocation_counter::measure(work).count_total)
}

/// Only does the work: this program does not count allocations.
#[cfg(not(feature = "allocations"))]
pub fn during(_work: &mut dyn FnMut()) -> Option<u64> {
    None
}
