//! Images with metadata bundles, in stores that fail and lie.

mod hosted;
mod published;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use disk::BlockDevice;
use object_store::path::Path;
use remote::bundle::Plan;
use remote::opening::SUFFIX;
use remote::place::lazy::LazyOptions;
use remote::place::store::Location;

use crate::publish::store::{RequestKind, Verdict, Watched};

/// Length of the image: not a multiple of a unit.
pub(crate) const LEN: u64 = (12 << 20) + 1000;

/// Name of the image and of its bundle in the store.
pub(crate) const IMAGE: &str = "root.img";
pub(crate) const BUNDLE: &str = "root.img.dwb";

/// Returns contents that cannot be compressed, with some zeros.
pub(crate) fn contents(seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes: Vec<u8> = (0..LEN).map(|_| random.u8(..)).collect();
    bytes[40_960..81_920].fill(0);
    bytes
}

/// Returns a plan with parts in another order than in the image, some twice, and the end of the image.
pub(crate) fn plan() -> Plan {
    Plan {
        metadata: vec![
            0..4096,
            8 << 20..10 << 20,
            4096..100_000,
            0..8192,
            LEN - 5000..LEN,
            6 << 20..7 << 20,
        ],
        start: std::iter::once(3 << 20..4 << 20).collect(),
    }
}

/// Returns ranges inside and outside of the plan, and across its borders.
pub(crate) fn ranges() -> Vec<Range<u64>> {
    let mut ranges = vec![0..10, 39_000..90_000, LEN - 6000..LEN, LEN - 10..LEN, 3 << 20..5 << 20];
    ranges.extend((0..24).map(|number| {
        let start = number * (LEN / 24);
        start..start + 70_000
    }));
    ranges.retain(|range| range.end <= LEN);
    ranges
}

#[track_caller]
pub(crate) fn assert_reads(device: &dyn BlockDevice, expected: &[u8], when: &str) {
    assert_eq!(device.len(), expected.len() as u64, "{when}");
    for range in ranges() {
        let mut found = vec![0; (range.end - range.start) as usize];
        device
            .read_at(range.start, &mut found)
            .unwrap_or_else(|e| panic!("{when}: {range:?}: {e}"));
        let is_same = found == expected[range.start as usize..range.end as usize];
        assert!(is_same, "{when}: wrong bytes in {range:?}");
    }
    assert!(device.read_at(LEN - 1, &mut [0; 2]).is_err(), "{when}: reads past the end");
}

pub(crate) fn location(store: &Watched, path: &str) -> Location {
    let address = format!("s3://bucket/{path}");
    Location {
        store: Arc::new(store.clone()),
        path: Path::from(path),
        address: address.as_str().into(),
    }
}

pub(crate) fn options() -> LazyOptions {
    LazyOptions { wait: Duration::from_millis(1), ..LazyOptions::default() }
}

/// Returns a handle of the store that fails requests for bundles after `right` of them.
pub(crate) fn failing(store: &Watched, right: usize, verdict: Verdict) -> Watched {
    let count = std::sync::atomic::AtomicUsize::new(0);
    store.seen_by(move |_, kind, path| {
        let is_bundle = path.as_ref().ends_with(SUFFIX) || path.as_ref().contains("bundles/");
        if kind != RequestKind::Get || !is_bundle {
            return Verdict::Serve;
        }
        let before = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        if before < right { Verdict::Serve } else { verdict }
    })
}
