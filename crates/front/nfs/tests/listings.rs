//! READDIR and READDIRPLUS.

use std::collections::BTreeSet;

use crate::common::*;

const FILES: usize = 300;

fn fill(client: &mut NfsClient, root: &[u8]) -> (Handle, BTreeSet<String>) {
    let dir = client.mkdir(root, "dir", 0o755).unwrap().0;
    let names: BTreeSet<_> = (0..FILES).map(|number| format!("file-{number}")).collect();
    for name in &names {
        client.file(&dir, name);
    }
    (dir, names)
}

fn unsynced() -> nfs::NfsOptions {
    nfs::NfsOptions { sync: false, ..options() }
}

#[test]
fn all_entries_are_listed_once() {
    served(&unsynced(), |client, root| {
        let (dir, names) = fill(client, root);
        let dots = [".", ".."].map(String::from);
        let expected: BTreeSet<_> = names.iter().cloned().chain(dots).collect();
        for count in [256, 1000, 1 << 16, u32::MAX] {
            let (mut found, mut cookie, mut parts) = (Vec::new(), 0, 0);
            loop {
                let (entries, is_end) = client.readdir(&dir, (cookie, 0), count).unwrap();
                parts += 1;
                cookie = entries.last().map_or(cookie, |entry| entry.2);
                found.extend(entries);
                if is_end {
                    break;
                }
            }
            assert!(count > 1 << 15 || parts > 5, "{parts} parts of {count} bytes");
            let listed: BTreeSet<_> = found.iter().map(|(_, name, _)| name.clone()).collect();
            assert_eq!((found.len(), &listed), (expected.len(), &expected), "{count}");
            let ino = client.getattr(&dir).unwrap().ino;
            assert!(found.iter().any(|(found, name, _)| name == "." && *found == ino));
        }
    });
}

#[test]
fn entries_come_with_attributes_and_handles() {
    served(&unsynced(), |client, root| {
        let (dir, names) = fill(client, root);
        let (mut cookie, mut found) = (0, BTreeSet::new());
        loop {
            let (entries, is_end) = client.readdirplus(&dir, cookie, (1000, 8192)).unwrap();
            assert!(entries.len() < 60, "{} entries in 8 KiB", entries.len());
            for (name, next, attr, handle) in entries {
                cookie = next;
                assert_eq!(client.getattr(&handle), Ok(attr), "{name}");
                found.insert(name);
            }
            if is_end {
                break;
            }
        }
        assert!(names.is_subset(&found) && found.len() == names.len() + 2);
    });
}

#[test]
fn cookies_survive_removals() {
    served(&unsynced(), |client, root| {
        let (dir, names) = fill(client, root);
        let (mut cookie, mut found) = (0, Vec::new());
        loop {
            let (entries, is_end) = client.readdir(&dir, (cookie, 0), 700).unwrap();
            for (_, name, next) in entries {
                cookie = next;
                if !name.starts_with('.') {
                    client.remove(&dir, &name).unwrap();
                    found.push(name);
                }
            }
            if is_end {
                break;
            }
        }
        assert_eq!(found.len(), names.len());
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), names);
        client.rmdir(root, "dir").unwrap();
    });
}

#[test]
fn invalid_listings_are_refused() {
    served(&unsynced(), |client, root| {
        let file = client.file(root, "file");
        assert_eq!(client.readdir(&file, (0, 0), 4096).err(), Some(NOTDIR));
        assert_eq!(client.readdir(root, (0, 7), 4096).err(), Some(BAD_COOKIE));
        for count in [0, 100, 130] {
            assert_eq!(client.readdir(root, (0, 0), count).err(), Some(TOOSMALL), "{count}");
            let plus = client.readdirplus(root, 0, (count, count)).err();
            assert_eq!(plus, Some(TOOSMALL), "{count}");
        }
        // Any cookie is harmless.
        for cookie in [1, 12345, 1 << 31, 1 << 40, u64::MAX] {
            let _ = client.readdir(root, (cookie, 0), 4096);
        }
        assert!(client.readdir(root, (0, 0), 4096).is_ok());
    });
}
