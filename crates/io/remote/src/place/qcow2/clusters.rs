//! Uses of clusters, compared with their refcounts. No I/O.

use std::collections::{BTreeMap, HashMap};

/// Clusters of one page.
pub(super) const PAGE_CLUSTERS: u64 = 256;
const WORDS: usize = PAGE_CLUSTERS as usize / 64;

/// Bits of 256 clusters.
#[derive(Clone, Copy, Default)]
struct Bits([u64; WORDS]);

impl Bits {
    fn has(&self, index: usize) -> bool {
        self.0[index / 64] >> (index % 64) & 1 != 0
    }

    fn set(&mut self, index: usize) {
        self.0[index / 64] |= 1 << (index % 64);
    }
}

/// Properties of 256 clusters.
#[derive(Default)]
struct ClusterPage {
    /// The refcount is not 0.
    counted: Bits,
    /// The refcount is 1.
    once: Bits,
    /// A structure of metadata uses it.
    metadata: Bits,
    /// Data uses it.
    data: Bits,
}

/// Verdict on another use of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Fine,
    /// The refcount is 0.
    Uncounted,
    /// The cluster is to be changed in place, and its refcount is above 1.
    CountedAgain,
    /// A structure of metadata uses it already.
    Metadata,
}

/// The uses of all clusters that have a refcount.
#[derive(Default)]
pub(super) struct Clusters {
    pages: Vec<ClusterPage>,
    index: HashMap<u64, usize>,
    /// Clusters of data with several references, and how many.
    shared: BTreeMap<u64, u64>,
}

impl Clusters {
    /// Returns true if the refcounts of this page are known.
    pub(super) fn has_page(&self, page: u64) -> bool {
        self.index.contains_key(&page)
    }

    /// Adds the refcounts of a page. A page without refcounts takes no memory.
    pub(super) fn add_page(&mut self, page: u64, refcounts: impl Iterator<Item = u64>) {
        let mut made = ClusterPage::default();
        let mut is_empty = true;
        for (index, count) in refcounts.take(PAGE_CLUSTERS as usize).enumerate() {
            if count > 0 {
                made.counted.set(index);
                is_empty = false;
            }
            if count == 1 {
                made.once.set(index);
            }
        }
        if !is_empty {
            self.index.insert(page, self.pages.len());
            self.pages.push(made);
        }
    }

    fn page(&mut self, cluster: u64) -> Option<(&mut ClusterPage, usize)> {
        let index = *self.index.get(&(cluster / PAGE_CLUSTERS))?;
        Some((self.pages.get_mut(index)?, (cluster % PAGE_CLUSTERS) as usize))
    }

    /// Records that a metadata structure uses a cluster exclusively.
    pub(super) fn claim(&mut self, cluster: u64, is_in_place: bool) -> Verdict {
        let Some((page, index)) = self.page(cluster) else { return Verdict::Uncounted };
        if !page.counted.has(index) {
            return Verdict::Uncounted;
        }
        if page.metadata.has(index) {
            return Verdict::Metadata;
        }
        if is_in_place && !page.once.has(index) {
            return Verdict::CountedAgain;
        }
        page.metadata.set(index);
        Verdict::Fine
    }

    /// Records `references` more references to data in a cluster.
    pub(super) fn refer(&mut self, cluster: u64, references: u64, is_in_place: bool) -> Verdict {
        let Some((page, index)) = self.page(cluster) else { return Verdict::Uncounted };
        if !page.counted.has(index) {
            return Verdict::Uncounted;
        }
        if page.metadata.has(index) {
            return Verdict::Metadata;
        }
        if is_in_place && !page.once.has(index) {
            return Verdict::CountedAgain;
        }
        let before = u64::from(page.data.has(index));
        page.data.set(index);
        if before + references > 1 {
            let count = self.shared.entry(cluster).or_insert(before);
            *count = count.saturating_add(references);
        }
        Verdict::Fine
    }

    /// Returns the data clusters with several references, in order, with their numbers of references.
    pub(super) fn shared(&self) -> impl Iterator<Item = (u64, u64)> {
        self.shared.iter().map(|(cluster, count)| (*cluster, *count))
    }
}

/// Returns the refcount at an index of a refcount block. Counts of less than a byte start at its least significant bit.
pub(super) fn refcount(bytes: &[u8], order: u32, index: usize) -> u64 {
    let width = 1_usize << order;
    if width < 8 {
        let byte = bytes.get(index * width / 8).copied().unwrap_or(0);
        return u64::from(byte >> (index * width % 8)) & ((1 << width) - 1);
    }
    let len = width / 8;
    let bytes = bytes.get(index * len..(index + 1) * len).unwrap_or(&[]);
    bytes.iter().fold(0, |count, byte| count << 8 | u64::from(*byte))
}
