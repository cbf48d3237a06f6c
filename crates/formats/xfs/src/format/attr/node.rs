//! Nodes: the last hash and the location of each block one level below.
//!
//! After the common header: count be16, level be16 (1 above leaves), and in version 5 four zero bytes. Entries are
//! {last hash be32, logical block be32}.

use engine::Corruption;

use super::super::bytes::{be16, be32, put16, put32};
use super::AttrLayout;
use crate::format::edit::Edit;

/// Maximum level of a node (`XFS_DA_NODE_MAXDEPTH`).
pub(crate) const LEVEL_MAX: u16 = 5;

const ENTRY_SIZE: usize = 8;

/// An entry: the last hash of a block, and the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Child {
    /// The highest hash in or below it.
    pub hash: u32,
    /// Its logical block.
    pub block: u32,
}

/// Returns the maximum number of entries of a node.
pub(crate) const fn capacity(layout: AttrLayout) -> usize {
    (layout.block_size - layout.node_header()) / ENTRY_SIZE
}

/// Returns the number of entries.
pub(crate) fn count(layout: AttrLayout, data: &[u8]) -> usize {
    usize::from(be16(data, layout.info_size())).min(capacity(layout))
}

/// Returns the level above the leaves.
pub(crate) fn level(layout: AttrLayout, data: &[u8]) -> u16 {
    be16(data, layout.info_size() + 2)
}

/// Returns entry `index`, or `None` if there are fewer.
pub(crate) fn child(layout: AttrLayout, data: &[u8], index: usize) -> Option<Child> {
    let at = layout.node_header() + index * ENTRY_SIZE;
    (index < count(layout, data)).then(|| Child { hash: be32(data, at), block: be32(data, at + 4) })
}

/// Returns the last hash in or below it.
pub(crate) fn last_hash(layout: AttrLayout, data: &[u8]) -> Option<u32> {
    Some(child(layout, data, count(layout, data).checked_sub(1)?)?.hash)
}

/// Returns the first entry whose hash is at least `wanted`, or the last one.
pub(crate) fn find(layout: AttrLayout, data: &[u8], wanted: u32) -> usize {
    let (mut low, mut high) = (0, count(layout, data).saturating_sub(1));
    while low < high {
        let middle = (low + high) / 2;
        let hash = be32(data, layout.node_header() + middle * ENTRY_SIZE);
        if hash < wanted { low = middle + 1 } else { high = middle }
    }
    low
}

/// Checks a node.
pub(crate) fn verify(layout: AttrLayout, data: &[u8]) -> Result<(), Corruption> {
    let damage = |problem: &'static str| Corruption::new("attribute node", problem);
    let count = usize::from(be16(data, layout.info_size()));
    if !(1..=capacity(layout)).contains(&count) {
        let expected = format!("1 to {}", capacity(layout));
        return Err(damage("count of entries").mismatch(expected, count));
    }
    let level = level(layout, data);
    if !(1..=LEVEL_MAX).contains(&level) {
        return Err(damage("level").mismatch(format_args!("1 to {LEVEL_MAX}"), level));
    }
    let hash = |index: usize| be32(data, layout.node_header() + index * ENTRY_SIZE);
    if (1..count).any(|index| hash(index) < hash(index - 1)) {
        return Err(damage("hashes are not in order"));
    }
    Ok(())
}

/// Fills a node with these entries. The common header is kept.
pub(crate) fn fill(block: &mut impl Edit, layout: AttrLayout, level: u16, children: &[Child]) {
    let base = layout.info_size();
    let bytes = block.edit(base..layout.block_size);
    bytes.fill(0);
    put16(bytes, 0, children.len() as u16);
    put16(bytes, 2, level);
    let table = bytes[layout.node_header() - base..].chunks_exact_mut(ENTRY_SIZE);
    for (at, child) in table.zip(children) {
        write(at, *child);
    }
}

/// Returns all entries.
pub(crate) fn children(layout: AttrLayout, data: &[u8]) -> Vec<Child> {
    (0..count(layout, data)).map_while(|index| child(layout, data, index)).collect()
}

/// Sets the hash of entry `index`.
pub(crate) fn set_hash(block: &mut impl Edit, layout: AttrLayout, index: usize, hash: u32) {
    let at = layout.node_header() + index * ENTRY_SIZE;
    put32(block.edit(at..at + 4), 0, hash);
}

/// Adds an entry at `index`; there must be room.
pub(crate) fn insert(block: &mut impl Edit, layout: AttrLayout, index: usize, child: Child) {
    let count = count(layout, block.bytes());
    let at = layout.node_header() + index * ENTRY_SIZE;
    let end = layout.node_header() + count * ENTRY_SIZE;
    let table = block.edit(at..end + ENTRY_SIZE);
    table.copy_within(..end - at, ENTRY_SIZE);
    write(table, child);
    set_count(block, layout, count + 1);
}

/// Removes entry `index`.
pub(crate) fn remove(block: &mut impl Edit, layout: AttrLayout, index: usize) {
    let count = count(layout, block.bytes());
    let at = layout.node_header() + index * ENTRY_SIZE;
    let end = layout.node_header() + count * ENTRY_SIZE;
    let table = block.edit(at..end);
    table.copy_within(ENTRY_SIZE.., 0);
    let last = table.len() - ENTRY_SIZE;
    table[last..].fill(0);
    set_count(block, layout, count - 1);
}

fn set_count(block: &mut impl Edit, layout: AttrLayout, count: usize) {
    let at = layout.info_size();
    put16(block.edit(at..at + 2), 0, count as u16);
}

fn write(at: &mut [u8], child: Child) {
    put32(at, 0, child.hash);
    put32(at, 4, child.block);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_found_by_the_hashes_below_them() {
        let layout = AttrLayout { block_size: 1024, crc: true };
        let mut block = vec![0; 1024];
        let all = [10, 20, 20, 30].map(|hash| Child { hash, block: hash });
        fill(&mut block, layout, 1, &all[..3]);
        insert(&mut block, layout, 3, all[3]);
        assert_eq!(children(layout, &block), all);
        verify(layout, &block).unwrap();
        let found = [0, 10, 11, 20, 21, 31].map(|hash| find(layout, &block, hash));
        assert_eq!(found, [0, 0, 1, 1, 3, 3]);
        remove(&mut block, layout, 0);
        set_hash(&mut block, layout, 2, 5);
        assert_eq!(count(layout, &block), 3);
        assert!(verify(layout, &block).is_err());
    }
}
