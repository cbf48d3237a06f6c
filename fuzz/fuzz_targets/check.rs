//! Checks a damaged image of either format. Errors are fine; panics, hangs and unbounded memory are bugs. A sound image
//! has no finding.
#![no_main]

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use disk::BlockDevice;
use libfuzzer_sys::fuzz_target;
use vfs::check::{Finding, Observer, Options, Summary};

/// A sink that counts findings and formats each of them.
#[derive(Default)]
struct Counter {
    findings: AtomicU64,
}

impl Observer for Counter {
    fn found(&self, finding: Finding) {
        assert!(!finding.code.name.is_empty());
        self.findings.fetch_add(1, Ordering::Relaxed);
    }
}

type Check = fn(Arc<dyn BlockDevice>, &Options, &dyn Observer) -> vfs::Result<Summary>;

// The first byte chooses the format and one or two threads; the others are as for the targets that read images.
fuzz_target!(|input: &[u8]| {
    let [choice, input @ ..] = input else { return };
    let (device, check): (Arc<dyn BlockDevice>, Check) = if choice & 1 == 0 {
        let Some((device, _)) = diskwright_fuzz::damaged(input) else { return };
        (device, ext4::check::check)
    } else {
        let Some((device, _)) = diskwright_fuzz::xfs::damaged(input) else { return };
        (device, xfs::check::check)
    };
    let threads = NonZero::new(1 + usize::from(choice >> 1 & 1)).expect("one or two");
    let options = Options::default().with_threads(threads).with_norecovery(choice & 4 != 0);
    let counter = Counter::default();
    let Ok(summary) = check(device, &options, &counter) else { return };
    let found = counter.findings.into_inner();
    assert!(summary.is_complete || found > 0, "an incomplete check reports its reason");
    // An input that only chooses an image damages nothing. A crashed image has damage before recovery.
    let is_sound = input.len() <= 2 && !options.norecovery;
    assert!(!is_sound || found == 0, "a sound image has {found} findings");
});
