//! Listings through requests: every name once, for any buffer size, and every look-up counted.

use crate::serving;

use std::collections::{BTreeMap, BTreeSet};

use fuse::Options;
use linux::Errno;
use linux::abi::ROOT_ID;
use serving::{Client, EXT4, KINDS, ListedRecord, ServedImage, XFS, on_each};

/// Size of a record without its name.
const HEAD: u32 = 24;
const HEAD_PLUS: u32 = 24 + 128;

const DT_DIR: u32 = 4;
const DT_REG: u32 = 8;
const DT_LNK: u32 = 10;

/// One request of a listing.
fn part(client: &Client<'_>, dir: u64, plus: bool, offset: u64, size: u32) -> Vec<ListedRecord> {
    let ask = if plus { Client::readdirplus } else { Client::readdir };
    ask(client, dir, offset, size).unwrap()
}

/// Lists a whole directory in requests of `size` bytes.
fn list(client: &Client<'_>, dir: u64, plus: bool, size: u32) -> Vec<ListedRecord> {
    let mut all: Vec<ListedRecord> = Vec::new();
    loop {
        let offset = all.last().map_or(0, |last| last.dirent.off);
        let records = part(client, dir, plus, offset, size);
        if records.is_empty() {
            return all;
        }
        all.extend(records);
        assert!(all.len() < 100_000, "the listing does not end");
    }
}

/// Forgets the look-ups of a listing.
fn forget(client: &Client<'_>, records: &[ListedRecord]) {
    for entry in records.iter().filter_map(|record| record.entry) {
        if entry.nodeid != 0 {
            client.forget(entry.nodeid, 1);
        }
    }
}

/// Returns a name of this length that is unique for the number.
fn name(number: usize, len: usize) -> String {
    format!("{number:0>len$}")
}

#[test]
fn any_room_delivers_every_name_once() {
    on_each(&KINDS, |image| {
        let client = Client::new(image.fs(), Options::default());
        let dir = client.directory(ROOT_ID, "d");
        let mut expected = BTreeMap::new();
        for number in 0..40 {
            let name = name(number, 2 + number * 13 % 254);
            expected.insert(name.clone().into_bytes(), client.create(dir, &name).nodeid);
        }
        expected.insert(b".".to_vec(), dir);
        // The root's node is 1, which differs from its inode number.
        let root = client.getattr(ROOT_ID).ino;
        assert_ne!(root, ROOT_ID);
        expected.insert(b"..".to_vec(), root);
        for (plus, head) in [(false, HEAD), (true, HEAD_PLUS)] {
            let least = (head + 255).next_multiple_of(8);
            for size in (least..least + 700).step_by(4).chain([4096, 1 << 16]) {
                let records = list(&client, dir, plus, size);
                forget(&client, &records);
                let listed: BTreeMap<_, _> =
                    records.iter().map(|record| (record.name.clone(), record.dirent.ino)).collect();
                assert_eq!(records.len(), expected.len(), "{size}");
                assert_eq!(listed, expected, "{size}");
            }
        }
    });
}

#[test]
fn a_record_that_never_fits_ends_with_an_error() {
    on_each(&KINDS, |image| {
        let client = Client::new(image.fs(), Options::default());
        let dir = client.directory(ROOT_ID, "d");
        for size in [0, HEAD, HEAD + 7] {
            assert_eq!(client.readdir(dir, 0, size).unwrap_err(), Errno::INVAL);
            assert_eq!(client.readdirplus(dir, 0, HEAD_PLUS + size % 8).unwrap_err(), Errno::INVAL);
        }
        assert_eq!(client.readdir(dir, 0, HEAD + 8).unwrap().len(), 1);
        let file = client.file("f");
        assert_eq!(client.readdir(file, 0, 4096).unwrap_err(), Errno::NOTDIR);
    });
}

#[test]
fn records_say_what_an_inode_is() {
    on_each(&KINDS, |image| {
        let client = Client::new(image.fs(), Options::default());
        let dir = client.directory(ROOT_ID, "d");
        client.create(dir, "f");
        client.directory(dir, "d");
        client.symlink(dir, "l", "f").unwrap();
        let types = BTreeMap::from([
            (&b"."[..], DT_DIR),
            (b"..", DT_DIR),
            (b"d", DT_DIR),
            (b"f", DT_REG),
            (b"l", DT_LNK),
        ]);
        for plus in [false, true] {
            let records = list(&client, dir, plus, 4096);
            let listed: BTreeMap<_, _> =
                records.iter().map(|record| (&record.name[..], record.dirent.r#type)).collect();
            assert_eq!(listed, types);
            forget(&client, &records);
        }
        for record in list(&client, dir, true, 4096) {
            let entry = record.entry.unwrap();
            if record.name.starts_with(b".") {
                assert_eq!(entry.nodeid, 0, "dots are not counted");
                continue;
            }
            assert_eq!(entry.nodeid, record.dirent.ino);
            assert_eq!(entry.attr, client.getattr(entry.nodeid));
            client.forget(entry.nodeid, 1);
        }
    });
}

/// Names that stay while others are added and removed between the parts of a listing.
fn others_come_and_go(image: &ServedImage, plus: bool, size: u32) {
    let client = Client::new(image.fs(), Options::default());
    let dir = client.directory(ROOT_ID, &format!("d{plus}{size}"));
    let mut staying = BTreeSet::new();
    for number in 0..300 {
        let name = name(number, 20);
        client.create(dir, &name);
        if number % 3 == 0 {
            staying.insert(name.into_bytes());
        }
    }
    let (mut seen, mut offset, mut round) = (BTreeMap::new(), 0, 0);
    loop {
        let records = part(&client, dir, plus, offset, size);
        forget(&client, &records);
        let Some(last) = records.last() else { break };
        offset = last.dirent.off;
        for record in records {
            *seen.entry(record.name).or_insert(0) += 1;
        }
        round += 1;
        // Each time one is removed, listed or not, and another one is added, so that the directory grows.
        let gone = round * 7 % 300;
        if gone % 3 != 0 {
            let outcome = client.unlink(dir, &name(gone, 20));
            assert!(matches!(outcome, Ok(()) | Err(Errno::NOENT)), "{outcome:?}");
        }
        if round < 150 {
            client.create(dir, &name(1000 + round, 60));
        }
    }
    assert!(round > 10, "the listing has many parts");
    assert!(seen.values().all(|&times| times == 1), "a name was listed twice");
    for name in &staying {
        assert!(seen.contains_key(name), "{} was not listed", name.escape_ascii());
    }
}

#[test]
fn names_that_stay_are_listed_once_while_others_come_and_go() {
    on_each(&KINDS, |image| {
        for (plus, size) in [(false, 300), (false, 1000), (true, 440), (true, 2000)] {
            others_come_and_go(image, plus, size);
        }
    });
}

#[test]
fn every_reported_inode_is_counted() {
    on_each(&KINDS, |image| {
        let client = Client::new(image.fs(), Options::default());
        let dir = client.directory(ROOT_ID, "d");
        let free = client.inodes_free();
        let mut told: BTreeMap<u64, u64> = BTreeMap::new();
        for number in 0..30 {
            let node = client.create(dir, &name(number, 4)).nodeid;
            // Known once by its creation, and once by another name.
            client.link(node, dir, &name(number, 40)).unwrap();
            *told.entry(node).or_default() += 2;
        }
        for size in [500, 4096] {
            for record in list(&client, dir, true, size) {
                let node = record.entry.unwrap().nodeid;
                if node != 0 {
                    *told.entry(node).or_default() += 1;
                }
            }
        }
        assert!(told.values().all(|&times| times == 2 + 2 * 2));
        for number in 0..30 {
            client.unlink(dir, &name(number, 4)).unwrap();
            client.unlink(dir, &name(number, 40)).unwrap();
        }
        for (&node, &times) in &told {
            // Kept until the last look-up is forgotten.
            client.forget(node, times - 1);
            assert_eq!(client.getattr(node).nlink, 0);
            client.forget(node, 1);
        }
        // XFS may have freed an inode chunk that existed before.
        assert!(image.fs().statfs().unwrap().inodes_free <= free + 64);
        for &node in told.keys() {
            assert!(client.attr(node).is_err(), "{node} is still there");
        }
    });
}

#[test]
fn an_inode_that_cannot_be_read_does_not_end_a_listing() {
    for kind in [EXT4, XFS] {
        let image = ServedImage::new(kind);
        let client = Client::new(image.fs(), Options::default());
        let dir = client.directory(ROOT_ID, "d");
        let victim = client.create(dir, "victim").nodeid;
        for other in 0..200 {
            client.create(dir, &name(other, 10));
        }
        drop(client);
        let image = image.with_damage(victim);
        let client = Client::new(image.fs(), Options::default());
        let plain = list(&client, dir, false, 1000);
        assert!(!client.adapter.is_damaged(), "names alone are sound");
        let records = list(&client, dir, true, 1000);
        let names = |records: &[ListedRecord]| -> Vec<_> {
            records.iter().map(|record| record.name.clone()).collect()
        };
        assert_eq!(names(&plain), names(&records));
        for record in &records {
            let nodeid = record.entry.unwrap().nodeid;
            let is_told = !matches!(&record.name[..], b"." | b".." | b"victim");
            assert_eq!(nodeid != 0, is_told, "{}", record.name.escape_ascii());
        }
        assert!(client.adapter.is_damaged());
        assert_eq!(client.attr(victim).unwrap_err(), Errno::UCLEAN);
        assert_eq!(client.lookup(dir, "victim").unwrap_err(), Errno::UCLEAN);
    }
}
