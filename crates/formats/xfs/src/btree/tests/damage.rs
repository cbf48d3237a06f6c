//! Damage is detected and named, and never followed.

use fastrand::Rng;
use operations::Outcome;
use operations::RunOperations;
use vfs::{Error, Result};

use super::harness::{Supplied, group, plant, supply, volume};
use crate::XfsCore;
use crate::alloc::HeldAg;
use crate::btree::records::{BnoTree, FreeRun};
use crate::btree::{Cursor, Node, Seek};
use crate::format::address::AgBlock;
use crate::format::btree::Side;

const RECORDS: u32 = 400;

type TestCursor<'c, 'o, 'a> = Cursor<'c, 'a, BnoTree, Supplied<HeldAg<'o, 'a>>>;

/// Makes a tree with several leaves below one node.
fn tree() -> XfsCore {
    let fs = volume(10);
    plant::<BnoTree>(&fs);
    on(&fs, |cursor| {
        (0..RECORDS).try_for_each(|n| cursor.insert(FreeRun { start: AgBlock(n * 8), len: 1 }))
    })
    .unwrap();
    fs
}

fn on<R>(
    fs: &XfsCore,
    mut body: impl FnMut(&mut TestCursor<'_, '_, '_>) -> Outcome<R>,
) -> Result<R> {
    fs.atomically(|op| {
        let mut group = group(op)?;
        body(&mut Cursor::new(&mut group))
    })
}

/// Walks through the whole tree. Returns the number of records.
fn walk(fs: &XfsCore) -> Result<u32> {
    on(fs, |cursor| {
        let mut seen = 0;
        let mut at = cursor.seek(AgBlock(0), Seek::AtLeast)?;
        while at.is_some() {
            seen += 1;
            assert!(seen <= RECORDS, "a walk that does not end");
            at = cursor.next()?;
        }
        Ok(seen)
    })
}

/// Returns the error of a walk through a tree after `harm` damaged one node. `which` is the index among the root's
/// children; `None` for the root.
fn message(which: Option<usize>, harm: impl Fn(&mut TestCursor<'_, '_, '_>, Node)) -> String {
    let fs = tree();
    assert_eq!(walk(&fs).unwrap(), RECORDS);
    on(&fs, |cursor| {
        let top = cursor.top()?;
        let node = match which {
            Some(at) => cursor.child(top, at)?,
            None => top,
        };
        harm(cursor, node);
        Ok(())
    })
    .unwrap();
    match walk(&fs) {
        Err(Error::Corrupt(damage)) => damage.to_string(),
        other => panic!("damage was not seen: {other:?}"),
    }
}

#[test]
fn a_wrong_level_is_found() {
    let text = message(Some(1), |cursor, node| {
        cursor.edit(node, 4..6).copy_from_slice(&[0, 1]);
    });
    assert!(text.contains("bnobt") && text.contains("level"), "{text}");
}

#[test]
fn more_entries_than_fit_are_found() {
    let text = message(Some(0), |cursor, node| cursor.set_count(node, 122));
    assert!(text.contains("numrecs") && text.contains("1 to 121"), "{text}");
    let text = message(None, |cursor, node| cursor.set_count(node, 0));
    assert!(text.contains("numrecs"), "{text}");
}

#[test]
fn pointers_out_of_the_group_are_found() {
    let text = message(None, |cursor, node| {
        let range = cursor.area(node).pointer_range(1, 2);
        cursor.edit(node, range).copy_from_slice(&0x7000_0000_u32.to_be_bytes());
    });
    assert!(text.contains("a null pointer"), "{text}");
}

#[test]
fn a_child_that_is_named_twice_is_found() {
    let text = message(None, |cursor, node| {
        let first = cursor.pointer(node, 0) as u32;
        let range = cursor.area(node).pointer_range(1, 2);
        cursor.edit(node, range).copy_from_slice(&first.to_be_bytes());
    });
    assert!(text.contains("sibling"), "{text}");
}

#[test]
fn a_node_that_leads_to_itself_is_found() {
    let text = message(None, |cursor, node| {
        let range = cursor.area(node).pointer_range(1, 2);
        cursor.edit(node, range).copy_from_slice(&(node.block as u32).to_be_bytes());
    });
    assert!(text.contains("level"), "{text}");
}

#[test]
fn siblings_in_a_circle_are_found() {
    let text = message(Some(2), |cursor, node| {
        let first = cursor.sibling(node, Side::Left);
        cursor.set_sibling(node, Side::Right, first);
    });
    assert!(text.contains("right sibling"), "{text}");
}

#[test]
fn records_out_of_order_are_found() {
    let text = message(Some(1), |cursor, node| {
        let range = cursor.area(node).entry_range(0, 1);
        cursor.edit(node, range).fill(0);
    });
    assert!(text.contains("not greater than"), "{text}");
}

#[test]
fn a_duplicate_record_is_damage() {
    let fs = tree();
    let twice = on(&fs, |cursor| cursor.insert(FreeRun { start: AgBlock(80), len: 2 }));
    assert!(matches!(twice, Err(Error::Corrupt(_))), "{twice:?}");
    let astray = on(&fs, |cursor| {
        cursor.seek(AgBlock(80), Seek::Exactly)?;
        cursor.update(FreeRun { start: AgBlock(96), len: 2 })
    });
    assert!(matches!(astray, Err(Error::Corrupt(_))), "{astray:?}");
    assert_eq!(walk(&fs).unwrap(), RECORDS);
    assert!(!supply::taken().is_empty());
}

/// With any contents of blocks, operations end with a result or an error.
#[test]
fn random_bytes_cause_no_panic() {
    let mut rng = Rng::with_seed(30);
    let mut refused = 0;
    for _ in 0..300 {
        let fs = tree();
        let blocks: Vec<u32> = supply::taken().into_iter().collect();
        for _ in 0..rng.u32(1..4) {
            let block = blocks[rng.usize(..blocks.len())];
            // Headers and first entries matter most.
            let at = if rng.bool() { rng.usize(4..80) } else { rng.usize(4..1024) };
            let value = if rng.bool() { rng.u8(..) } else { rng.u8(..4) };
            on(&fs, |cursor| {
                let id = cursor.anchor.0.txn.buffer(block.into(), cursor.tag())?;
                cursor.anchor.0.txn.edit(id, at..at + 1)[0] = value;
                Ok(())
            })
            .unwrap();
        }
        for _ in 0..60 {
            let (start, choice) = (AgBlock(rng.u32(..RECORDS * 9)), rng.u8(..6));
            let taken = supply::taken();
            let outcome = on(&fs, |cursor| {
                (0..20).try_for_each(|n| {
                    let record = FreeRun { start: AgBlock(start.0 + n), len: 1 };
                    let found = cursor.seek(record.start, Seek::AtLeast)?;
                    match (choice, found) {
                        (0, Some(_)) => cursor.remove(),
                        (1, Some(_)) => cursor.replace(record),
                        (2, _) => cursor.previous().map(drop),
                        (3, _) => cursor.next().map(drop),
                        _ => cursor.insert(record),
                    }
                })
            });
            if let Err(error) = outcome {
                assert!(matches!(error, Error::Corrupt(_) | Error::NoSpace), "{error:?}");
                supply::set(taken);
                refused += 1;
            }
        }
    }
    assert!(refused > 300, "only {refused} operations saw damage");
}
