//! Counting allocations from the heap, in programs that let them be counted: those whose global
//! allocator is an [`alloc_tracker::Allocator`]. Which one it is, only a program may decide.

use std::hint::black_box;

use alloc_tracker::Session;

/// How many allocations this thread makes in `work`; `None` if this program does not count them.
pub fn during(work: &mut dyn FnMut()) -> Option<u64> {
    let is_counting = counted(&mut || drop(black_box(Box::new(0_u64)))) > 0;
    is_counting.then(|| counted(work))
}

fn counted(work: &mut dyn FnMut()) -> u64 {
    let session = Session::new().no_stdout().no_file();
    let operation = session.operation("work");
    let span = operation.measure_thread().no_peak().iterations(1);
    work();
    drop(span);
    session.to_report().operations().map(|(_, work)| work.total_allocations_count()).sum()
}
