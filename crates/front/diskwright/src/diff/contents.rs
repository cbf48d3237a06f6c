//! Comparison of file contents. Common holes are skipped.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;

use vfs::runs::Run;

use super::tree::{ComparedTree, Data, VisitedFile};
use crate::Result;

/// Bytes read at a time.
const READ_BYTES: u64 = 1 << 20;

/// Compares the contents of file pairs and returns the results in order. The files of a pair have equal sizes. `read`
/// counts the bytes read from both.
pub(super) fn compare_all(
    (a, b): (&dyn ComparedTree, &dyn ComparedTree),
    pairs: &[(&VisitedFile, &VisitedFile)],
    threads: usize,
    read: &AtomicU64,
) -> Vec<Result<bool>> {
    let results: Vec<_> = pairs.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut buffers = [Vec::new(), Vec::new()];
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(&(x, y)) = pairs.get(at) else { return };
            let is_same = a.open(x).and_then(|x_data| {
                let y_data = b.open(y)?;
                is_same(&*x_data, &*y_data, x.attributes.size, &mut buffers, read)
            });
            *results[at].lock() = Some(is_same);
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.clamp(1, pairs.len().max(1)) {
            // Use fewer threads if the system provides no more. The current thread works too.
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    // Every pair was processed by a thread.
    results.into_iter().filter_map(Mutex::into_inner).collect()
}

fn is_same(
    a: &dyn Data,
    b: &dyn Data,
    size: u64,
    buffers: &mut [Vec<u8>; 2],
    read: &AtomicU64,
) -> Result<bool> {
    let (a_runs, b_runs) = (a.runs()?, b.runs()?);
    let (mut a_runs, mut b_runs) = (Places::new(&a_runs, size), Places::new(&b_runs, size));
    let mut at = 0;
    while at < size {
        let ((a_has_data, a_end), (b_has_data, b_end)) = (a_runs.at(at), b_runs.at(at));
        let end = a_end.min(b_end);
        if !a_has_data && !b_has_data {
            at = end;
            continue;
        }
        let len = (end - at).min(READ_BYTES) as usize;
        let sides = [(a, a_has_data), (b, b_has_data)];
        for (buffer, (data, has_data)) in buffers.iter_mut().zip(sides) {
            if buffer.len() < len {
                buffer.resize(len, 0);
            }
            if has_data {
                data.read(at, &mut buffer[..len])?;
                read.fetch_add(len as u64, Ordering::Relaxed);
            } else {
                buffer[..len].fill(0);
            }
        }
        if buffers[0][..len] != buffers[1][..len] {
            return Ok(false);
        }
        at += len as u64;
    }
    Ok(true)
}

/// Cursor over data runs that distinguishes data from holes.
struct Places<'a> {
    runs: &'a [Run],
    size: u64,
}

impl<'a> Places<'a> {
    fn new(runs: &'a [Run], size: u64) -> Self {
        Self { runs, size }
    }

    /// Returns whether an offset is in data, and the end of that data or hole. Offsets must ascend.
    fn at(&mut self, place: u64) -> (bool, u64) {
        while let Some((run, rest)) = self.runs.split_first() {
            if run.offset > place {
                return (false, run.offset);
            }
            let end = run.offset + run.len;
            if end > place {
                return (true, end);
            }
            self.runs = rest;
        }
        (false, self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct ComparedFile {
        bytes: Vec<u8>,
        runs: Vec<Run>,
    }

    impl Data for ComparedFile {
        fn runs(&self) -> Result<Vec<Run>> {
            Ok(self.runs.clone())
        }

        fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
            let end = offset + buf.len() as u64;
            let is_data =
                self.runs.iter().any(|run| run.offset <= offset && end <= run.offset + run.len);
            assert!(is_data, "a hole was read");
            buf.copy_from_slice(&self.bytes[offset as usize..end as usize]);
            Ok(())
        }
    }

    fn file(bytes: &[u8], runs: &[(u64, u64)]) -> ComparedFile {
        let runs = runs.iter().map(|&(offset, len)| Run { offset, len }).collect();
        ComparedFile { bytes: bytes.to_vec(), runs }
    }

    #[test]
    fn holes_are_zeros_and_holes_of_both_are_not_read() {
        let mut bytes = vec![0; 100];
        bytes[20..30].fill(7);
        let a = file(&bytes, &[(20, 10)]);
        for runs in [&[(0, 100)][..], &[(20, 10)], &[(10, 5), (18, 20), (99, 1)]] {
            let read = AtomicU64::new(0);
            let mut buffers = [Vec::new(), Vec::new()];
            let mut b = file(&bytes, runs);
            assert!(is_same(&a, &b, 100, &mut buffers, &read).unwrap());
            b.bytes[25] = 8;
            assert!(!is_same(&a, &b, 100, &mut buffers, &read).unwrap());
            b.bytes[25] = 7;
            let place = runs[runs.len() - 1].0;
            b.bytes[place as usize] += 1;
            assert!(!is_same(&a, &b, 100, &mut buffers, &read).unwrap());
        }
        let (empty, read) = (file(&bytes, &[]), AtomicU64::new(0));
        assert!(is_same(&empty, &empty, 100, &mut Default::default(), &read).unwrap());
        assert_eq!(read.into_inner(), 0);
    }
}
