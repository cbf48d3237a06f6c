//! GETATTR, SETATTR, ACCESS, FSSTAT, FSINFO, PATHCONF, and attributes before and after changes.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::common::{self, *};

#[test]
fn attributes_are_set() {
    served(&options(), |client, root| {
        let file = client.file(root, "file");
        client.write(&file, 0, &[1; 100], 0).unwrap();
        let before = client.getattr(&file).unwrap();
        let new = NewAttr {
            mode: Some(0o1640),
            uid: Some(5),
            gid: Some(6),
            size: Some(50),
            atime: Some(Some((100, 5))),
            mtime: Some(Some((200, 6))),
        };
        client.setattr(&file, new, None).unwrap();
        let after = client.getattr(&file).unwrap();
        assert_eq!(client.wcc[0].before, Some((100, before.mtime, before.ctime)));
        assert_eq!(client.wcc[0].after, Some(after));
        assert_eq!((after.mode, after.uid, after.gid, after.size), (0o1640, 5, 6, 50));
        assert_eq!((after.atime, after.mtime), ((100, 5), (200, 6)));
        assert!(after.ctime > before.ctime);

        client.setattr(&file, NewAttr { size: Some(70), ..NewAttr::default() }, None).unwrap();
        let grown = client.getattr(&file).unwrap();
        assert!(grown.mtime > after.mtime && grown.ctime > after.ctime && grown.size == 70);
        let touched = NewAttr { atime: Some(None), ..NewAttr::default() };
        client.setattr(&file, touched, None).unwrap();
        let touched = client.getattr(&file).unwrap();
        assert!(touched.atime > grown.atime && touched.mtime == grown.mtime);
        client.setattr(&file, NewAttr::default(), None).unwrap();
        assert_eq!(client.getattr(&file), Ok(touched));

        let wrong = NewAttr { atime: Some(Some((0, 2_000_000_000))), ..NewAttr::default() };
        assert_eq!(client.setattr(&file, wrong, None), Err(INVAL));
        let size = NewAttr { size: Some(1), ..NewAttr::default() };
        assert_eq!(client.setattr(root, size, None), Err(ISDIR));
    });
}

#[test]
fn a_guard_prevents_changes_of_changed_inodes() {
    served(&options(), |client, root| {
        let file = client.file(root, "file");
        let old = client.getattr(&file).unwrap();
        let mode = |mode| NewAttr { mode: Some(mode), ..NewAttr::default() };
        client.setattr(&file, mode(0o600), Some(old.ctime)).unwrap();
        assert_eq!(client.setattr(&file, mode(0o644), Some(old.ctime)), Err(NOT_SYNC));
        assert_eq!(client.getattr(&file).unwrap().mode, 0o600);
    });
}

#[test]
fn totals_and_properties_are_plausible() {
    served(&options(), |client, root| {
        let before = client.fsstat(root).unwrap();
        let [bytes, free, available, inodes, inodes_free, _] = before;
        assert!(bytes > 16 << 20 && free <= bytes && available <= free, "{before:?}");
        assert!(inodes > 0 && inodes_free <= inodes);
        let file = client.file(root, "file");
        client.write(&file, 0, &[1; 1 << 20], 2).unwrap();
        let after = client.fsstat(&file).unwrap();
        assert!(after[1] + (1 << 20) <= before[1], "{before:?} {after:?}");
        let (sizes, properties) = client.fsinfo(root).unwrap();
        assert_eq!(sizes, [1 << 20, 1 << 20, 4096, 1 << 20, 1 << 20, 4096, 1 << 16]);
        assert_eq!(properties, 0x1b);
        assert_eq!(client.pathconf(root), Ok(([65_000, 255], [true, false, false, true])));
        assert_eq!(client.access(root, 0x3f), Ok(0x1f));
        assert_eq!(client.access(&file, 0x3f), Ok(0x0d));
        let fsid = client.getattr(&file).unwrap().fsid;
        assert_eq!(fsid, client.getattr(root).unwrap().fsid);
    });
}

/// The attributes before each change are those after another one, so clients see whether others have changed the
/// directory.
#[test]
fn attributes_around_changes_enclose_them() {
    on_both(|image| {
        let seen = Mutex::new(BTreeMap::new());
        let options = nfs::NfsOptions { sync: false, ..options() };
        common::serve(image, &options, |address| {
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    let seen = &seen;
                    scope.spawn(move || {
                        let mut client = NfsClient::connect(address);
                        let root = client.mount(EXPORT).unwrap();
                        for number in 0..50 {
                            client.file(&root, &format!("{thread}-{number}"));
                            let Wcc { before, after } = client.wcc[0];
                            let (_, mtime, ctime) = before.unwrap();
                            let after = after.unwrap();
                            let before = seen.lock().unwrap().insert(ctime, after.ctime);
                            assert_eq!(before, None, "two changes of one state");
                            assert!(after.mtime > mtime && after.ctime > ctime);
                        }
                    });
                }
            });
        });
        let seen = seen.into_inner().unwrap();
        assert_eq!(seen.len(), 200);
        let chained = seen.values().zip(seen.keys().skip(1));
        for (after, next_before) in chained {
            assert_eq!(after, next_before);
        }
    });
}
