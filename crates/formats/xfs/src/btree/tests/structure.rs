//! Checks the structure of a tree.

use std::collections::BTreeSet;

use crate::alloc::ags::{AgState, AgTree};
use crate::btree::{Anchor, Cursor, Node, Tree, TreeOwner, keys};
use crate::format::btree::{NO_SIBLING, Side};

/// Checks a whole tree: levels, fill, keys of parents, siblings, order. Returns its records and its blocks.
pub(super) fn check<'a, T: Tree, A: Anchor<'a, T>>(
    cursor: &mut Cursor<'_, 'a, T, A>,
) -> (Vec<T::Record>, BTreeSet<u32>) {
    let top = cursor.top().unwrap();
    let mut level = vec![top];
    let mut blocks = BTreeSet::new();
    loop {
        for node in &level {
            check_node(cursor, *node, top);
            if node.buffer.is_some() {
                assert!(blocks.insert(node.block as u32), "a block is in the tree twice");
            }
        }
        check_chain(cursor, &level);
        if level[0].level == 0 {
            break;
        }
        level = children(cursor, &level);
    }
    let mut records = Vec::new();
    for leaf in level {
        let count = cursor.count(leaf);
        records.extend((0..count).map(|at| T::record(cursor.entry(leaf, at))));
    }
    assert!(records.is_sorted_by(|a, b| T::key_of(a) < T::key_of(b)));
    (records, blocks)
}

fn check_node<'a, T: Tree, A: Anchor<'a, T>>(cursor: &Cursor<'_, 'a, T, A>, node: Node, top: Node) {
    let is_top = node.block == top.block && node.level == top.level;
    let count = cursor.count(node);
    if is_top {
        let is_group = matches!(cursor.anchor.owner(), TreeOwner::Group(_));
        assert!(node.level == 0 || count > usize::from(is_group), "a level too many");
    } else {
        let only_child = top.buffer.is_none() && cursor.count(top) == 1;
        let is_below_top = node.level + 1 == top.level;
        let min =
            if only_child && is_below_top { node.level.min(1) } else { cursor.area(node).min() };
        assert!(count >= min, "{count} entries at level {}, not {min}", node.level);
    }
    if node.buffer.is_some() {
        check_bytes(cursor, node);
    }
}

/// Checks that the block would pass verification when read again.
fn check_bytes<'a, T: Tree, A: Anchor<'a, T>>(cursor: &Cursor<'_, 'a, T, A>, node: Node) {
    let geometry = cursor.anchor.geometry();
    let mut bytes = cursor.bytes(node).to_vec();
    T::SHAPE.seal(geometry, &mut bytes);
    let place = cursor.place_of(node.block).unwrap();
    T::SHAPE.verify(geometry, place, cursor.tag().owner, &bytes).unwrap();
}

fn check_chain<'a, T: Tree, A: Anchor<'a, T>>(cursor: &Cursor<'_, 'a, T, A>, level: &[Node]) {
    if level[0].buffer.is_none() {
        return;
    }
    for pair in level.windows(2) {
        cursor.check_siblings(pair[0], pair[1]).unwrap();
    }
    assert_eq!(cursor.sibling(level[0], Side::Left), NO_SIBLING);
    assert_eq!(cursor.sibling(level[level.len() - 1], Side::Right), NO_SIBLING);
}

fn children<'a, T: Tree, A: Anchor<'a, T>>(
    cursor: &mut Cursor<'_, 'a, T, A>,
    level: &[Node],
) -> Vec<Node> {
    let mut below = Vec::new();
    for node in level {
        for at in 0..cursor.count(*node) {
            let child = cursor.child(*node, at).unwrap();
            if cursor.count(child) > 0 {
                let expected = keys::tests::keys_of(cursor, child);
                assert_eq!(cursor.entry(*node, at), expected, "key {at} of level {}", node.level);
            }
            below.push(child);
        }
    }
    below
}

/// Checks the counts in the headers for a tree of `blocks` blocks.
pub(super) fn check_counts(state: &AgState, tree: AgTree, blocks: u32) {
    let from_list = matches!(tree, AgTree::Bno | AgTree::Cnt | AgTree::Rmap);
    assert_eq!(state.btreeblks, if from_list { blocks - 1 } else { 0 });
    let count = match tree {
        AgTree::Bno | AgTree::Cnt => return,
        AgTree::Rmap => state.rmap_blocks,
        AgTree::Refcount => state.refcount_blocks,
        AgTree::Ino => state.ino_blocks,
        AgTree::Fino => state.fino_blocks,
    };
    assert_eq!(count, blocks);
}
