//! Collection of findings by code, with bounded memory.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};
use std::path::Path;

use parking_lot::Mutex;
use vfs::check::{Code, Finding, Observer, Summary};

use super::{FindingsOfKind, Format, ImageCheck, Report};

/// Limits of the findings kept per code. All are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of findings.
    pub findings_max: usize,
    /// Maximum memory in bytes. One finding is always kept.
    pub bytes_max: usize,
}

impl Default for Limits {
    /// Returns limits of 1000 findings and 1 MiB.
    fn default() -> Self {
        Self { findings_max: 1000, bytes_max: 1 << 20 }
    }
}

impl Limits {
    /// Count findings without keeping them.
    pub const NONE: Self = Self { findings_max: 0, bytes_max: 0 };
}

/// Collects findings by code. For each code it keeps the first ones by location, whatever the order of discovery.
/// Reports are therefore independent of the number of threads.
#[derive(Debug)]
pub struct Collector {
    limits: Limits,
    kinds: Mutex<BTreeMap<&'static str, FindingGroup>>,
}

impl Collector {
    /// Creates a collector with these limits.
    pub fn new(limits: Limits) -> Self {
        Self { limits, kinds: Mutex::default() }
    }

    /// Returns the report of the findings so far with the summary of the check, and empties the collector.
    pub fn report(&self, subject: &ImageCheck, summary: Summary) -> Report {
        let mut report = self.report_on(subject.path(), subject.format(), summary);
        report.fail(subject.device_error());
        report
    }

    /// Same as [`Self::report`], for a check on a device without a [`ImageCheck`]. The report names it `image`.
    pub fn report_on(&self, image: &Path, format: Format, summary: Summary) -> Report {
        let kinds = self.take();
        Report {
            image: image.to_owned(),
            format,
            summary,
            is_interrupted: false,
            device_error: None,
            kinds,
            damaged_files: None,
        }
    }

    /// Returns all kinds, most severe first.
    pub(super) fn take(&self) -> Vec<FindingsOfKind> {
        let kinds = std::mem::take(&mut *self.kinds.lock());
        let mut kinds: Vec<_> = kinds.into_values().map(FindingGroup::finish).collect();
        // Stable sort: equal severities remain sorted by name.
        kinds.sort_by_key(|kind| std::cmp::Reverse(kind.code.severity));
        kinds
    }
}

impl Observer for Collector {
    fn found(&self, finding: Finding) {
        let mut kinds = self.kinds.lock();
        let kind =
            kinds.entry(finding.code.name).or_insert_with(|| FindingGroup::new(finding.code));
        kind.add(finding, self.limits);
    }
}

/// Findings of one code.
#[derive(Debug)]
struct FindingGroup {
    code: &'static Code,
    count: u64,
    /// Kept findings; the heap's top is the last one by location.
    kept: BinaryHeap<ByPlace>,
    bytes: usize,
    /// First finding by location that was dropped. All findings after it are dropped too.
    left_out: Option<ByPlace>,
}

impl FindingGroup {
    fn new(code: &'static Code) -> Self {
        Self { code, count: 0, kept: BinaryHeap::new(), bytes: 0, left_out: None }
    }

    fn add(&mut self, finding: Finding, limits: Limits) {
        self.count += 1;
        let finding = ByPlace(finding);
        if limits.findings_max == 0 || self.left_out.as_ref().is_some_and(|first| finding >= *first)
        {
            return;
        }
        self.bytes += finding.bytes();
        self.kept.push(finding);
        let is_too_much = |kind: &Self| {
            kind.kept.len() > limits.findings_max
                || (kind.bytes > limits.bytes_max && kind.kept.len() > 1)
        };
        while is_too_much(self)
            && let Some(last) = self.kept.pop()
        {
            self.bytes -= last.bytes();
            self.left_out = Some(last);
        }
    }

    fn finish(self) -> FindingsOfKind {
        let findings = self.kept.into_sorted_vec().into_iter().map(|ByPlace(finding)| finding);
        FindingsOfKind { code: self.code, count: self.count, findings: findings.collect() }
    }
}

/// Finding ordered by location, then by text.
#[derive(Debug)]
struct ByPlace(Finding);

impl ByPlace {
    fn bytes(&self) -> usize {
        let Finding { place, detail, expected, found, path, .. } = &self.0;
        let texts = [detail, expected, found].map(|text| text.as_ref().map_or(0, String::len));
        let names = [&place.name, path].map(|name| name.as_ref().map_or(0, Vec::len));
        size_of::<Self>() + texts.iter().chain(&names).sum::<usize>()
    }
}

impl Ord for ByPlace {
    fn cmp(&self, other: &Self) -> Ordering {
        let place = |ByPlace(finding): &Self| {
            let place = &finding.place;
            (place.group, place.inode, place.block, place.field)
        };
        fn rest(ByPlace(finding): &ByPlace) -> impl Ord + '_ {
            let Finding { place, detail, expected, found, path, .. } = finding;
            (&place.name, detail, expected, found, path)
        }
        place(self).cmp(&place(other)).then_with(|| rest(self).cmp(&rest(other)))
    }
}

impl PartialOrd for ByPlace {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ByPlace {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for ByPlace {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::samples::{COUNT_OFF, TREE_GONE};

    fn blocks(kind: &FindingsOfKind) -> Vec<u64> {
        kind.findings.iter().filter_map(|finding| finding.place.block).collect()
    }

    /// Reports a finding at each of these blocks.
    fn collect(limits: Limits, found: impl IntoIterator<Item = (u64, usize)>) -> FindingsOfKind {
        let collector = Collector::new(limits);
        for (block, detail_len) in found {
            let finding = Finding::new(&COUNT_OFF).at_block(block).detail("x".repeat(detail_len));
            collector.found(finding);
        }
        let [kind] = collector.take().try_into().unwrap();
        kind
    }

    #[test]
    fn the_first_by_place_are_kept_whatever_their_order() {
        let limits = Limits { findings_max: 10, ..Limits::default() };
        for step in [1, 7, 93, 99] {
            // Each of these steps is coprime to 100, so it visits all numbers.
            let kind = collect(limits, (0..100).map(|number| (number * step % 100, 0)));
            assert_eq!(blocks(&kind), (0..10).collect::<Vec<_>>(), "step {step}");
            assert_eq!((kind.count, kind.left_out()), (100, 90));
        }
    }

    #[test]
    fn long_findings_are_limited_by_bytes_and_the_first_is_kept() {
        let limits = Limits { findings_max: 100, bytes_max: 10_000 };
        let sizes = [(1, 100), (2, 9_800), (3, 100)];
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            // Findings after one that does not fit are dropped too; otherwise the result would depend on the order.
            let kind = collect(limits, order.map(|number: usize| sizes[number]));
            assert_eq!(blocks(&kind), [1], "{order:?}");
            assert_eq!(kind.left_out(), 2);
        }
        let kind = collect(limits, [(1, 1 << 20), (2, 1)]);
        assert_eq!(blocks(&kind), [1], "too large, but the only one");
    }

    #[test]
    fn findings_that_are_not_stored_are_counted() {
        let kind = collect(Limits::NONE, (0..1_000_000).map(|block| (block, 0)));
        assert_eq!((kind.count, kind.findings.len()), (1_000_000, 0));
    }

    #[test]
    fn the_worst_kind_comes_first() {
        let collector = Collector::new(Limits::default());
        collector.found(Finding::new(&COUNT_OFF));
        collector.found(Finding::new(&TREE_GONE));
        let kinds = collector.take();
        let names = kinds.iter().map(|kind| kind.code.name);
        assert_eq!(names.collect::<Vec<_>>(), [TREE_GONE.name, COUNT_OFF.name]);
        assert!(collector.take().is_empty());
    }
}
