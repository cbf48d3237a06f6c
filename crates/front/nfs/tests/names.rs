//! Names: MOUNT, LOOKUP, REMOVE, RMDIR, RENAME, LINK.

use crate::common::{self, *};

#[test]
fn an_export_and_directories_below_it_are_mounted() {
    served(&options(), |client, root| {
        client.null();
        let (dir, _) = client.mkdir(root, "dir", 0o755).unwrap();
        let (below, _) = client.mkdir(&dir, "below", 0o755).unwrap();
        client.file(&dir, "file");
        client.symlink(&dir, "link", "below").unwrap();
        assert_eq!(client.mount("/export/dir/below"), Ok(below));
        assert_eq!(client.mount("/export/dir/"), Ok(dir));
        for (path, status) in [
            ("/export2", ACCES),
            ("/", ACCES),
            ("", ACCES),
            ("/export/dir/file", NOTDIR),
            ("/export/dir/link", NOTDIR),
            ("/export/none", NOENT),
            ("/export/../export", INVAL),
        ] {
            assert_eq!(client.mount(path), Err(status), "{path}");
        }
        // DUMP, UMNT, DUMP, EXPORT, UMNTALL, DUMP.
        let mut lines = |procedure, path: Option<&str>| {
            let args = path.map_or(Message::default(), |p| Message::default().opaque(p.as_bytes()));
            let mut results = client.call(MOUNT, procedure, &args);
            let mut lines = Vec::new();
            if procedure != 3 && procedure != 4 {
                while results.bool() {
                    lines.push(String::from_utf8(results.opaque()).unwrap());
                    if procedure == 2 {
                        lines.push(String::from_utf8(results.opaque()).unwrap());
                    } else {
                        assert!(!results.bool(), "no groups");
                    }
                }
            }
            results.finish();
            lines.join(" ")
        };
        let mounted = "127.0.0.1 /export 127.0.0.1 /export/dir/below 127.0.0.1 /export/dir/";
        assert_eq!(lines(2, None), mounted);
        lines(3, Some("/export/dir/"));
        assert_eq!(lines(2, None), "127.0.0.1 /export 127.0.0.1 /export/dir/below");
        assert_eq!(lines(5, None), "/export");
        lines(4, None);
        assert_eq!(lines(2, None), "");
    });
}

#[test]
fn secret_paths_are_not_listed() {
    let export = nfs::ExportPath::random().unwrap();
    let options = nfs::NfsOptions { export: export.clone(), ..options() };
    let image = MemoryImage::ext4();
    common::serve(&image, &options, |address| {
        let mut client = NfsClient::connect(address);
        client.mount(export.as_str()).unwrap();
        assert_eq!(client.mount(EXPORT), Err(ACCES));
        for procedure in [2, 5] {
            let mut results = client.call(MOUNT, procedure, &Message::default());
            assert!(!results.bool());
            results.finish();
        }
    });
    image.judge();
}

#[test]
fn names_are_found_and_removed() {
    served(&options(), |client, root| {
        let (dir, made) = client.mkdir(root, "dir", 0o755).unwrap();
        let file = client.file(&dir, "file");
        assert_eq!(client.lookup(root, "dir").unwrap().0, dir);
        assert_eq!(client.lookup(&dir, "file").unwrap().0, file);
        assert_eq!(client.lookup(&dir, ".").unwrap().0, dir);
        assert_eq!(client.lookup(&dir, "..").unwrap().0, *root);
        assert_eq!(client.lookup(root, "..").unwrap().0, *root);
        assert_eq!(made.file_type, 2);
        let long = "n".repeat(256);
        for (in_dir, name, status) in [
            (&dir, "none", NOENT),
            (&file, "x", NOTDIR),
            (&dir, "", INVAL),
            (&dir, "a/b", INVAL),
            (&dir, "a\0", INVAL),
            (&dir, &long, NAMETOOLONG),
        ] {
            assert_eq!(client.lookup(in_dir, name).err(), Some(status), "lookup of {name:?}");
            assert_eq!(client.remove(in_dir, name).err(), Some(status), "removal of {name:?}");
        }
        assert_eq!(client.rmdir(root, "dir"), Err(NOTEMPTY));
        assert_eq!(client.remove(root, "dir"), Err(ISDIR));
        assert_eq!(client.rmdir(&dir, "file"), Err(NOTDIR));
        assert_eq!(client.rmdir(&dir, "."), Err(INVAL));
        assert_eq!(client.remove(&dir, ".."), Err(INVAL));
        client.remove(&dir, "file").unwrap();
        assert_eq!(client.getattr(&file), Err(STALE));
        assert_eq!(client.write(&file, 0, b"x", 0), Err(STALE));
        client.rmdir(root, "dir").unwrap();
        assert_eq!(client.lookup(&dir, "file").err(), Some(STALE));
        assert_eq!(client.mkdir(&dir, "new", 0o755).err(), Some(STALE));
    });
}

#[test]
fn a_reused_inode_has_another_handle() {
    served(&options(), |client, root| {
        let old = client.file(root, "file");
        let ino = client.getattr(&old).unwrap().ino;
        client.remove(root, "file").unwrap();
        let mut names = (0..64).map(|number| format!("new{number}"));
        let new = names.find_map(|name| {
            let new = client.file(root, &name);
            (client.getattr(&new).unwrap().ino == ino).then_some(new)
        });
        let new = new.expect("the inode is reused");
        assert_ne!(new, old);
        assert_eq!(client.getattr(&old), Err(STALE));
    });
}

#[test]
fn files_are_renamed_and_linked() {
    served(&options(), |client, root| {
        let (dir, _) = client.mkdir(root, "dir", 0o755).unwrap();
        let file = client.file(root, "a");
        let linked = client.link(&file, &dir, "b").unwrap().unwrap();
        assert_eq!(linked.links, 2);
        assert!(client.wcc[0].after.unwrap().mtime > client.wcc[0].before.unwrap().1);
        assert_eq!(client.link(&file, &dir, "b"), Err(EXIST));
        assert_eq!(client.link(&dir, root, "d"), Err(ISDIR));
        client.remove(&dir, "b").unwrap();

        client.rename((root, "a"), (&dir, "c")).unwrap();
        assert_eq!(client.wcc.len(), 2);
        for wcc in client.wcc.clone() {
            assert!(wcc.after.unwrap().ctime > wcc.before.unwrap().2, "{wcc:?}");
        }
        assert_eq!(client.lookup(&dir, "c").unwrap().0, file);
        assert_eq!(client.lookup(root, "a").err(), Some(NOENT));
        let other = client.file(root, "other");
        client.rename((&dir, "c"), (root, "other")).unwrap();
        assert_eq!(client.getattr(&other), Err(STALE), "replaced");
        assert_eq!(client.lookup(root, "other").unwrap().0, file);

        let (below, _) = client.mkdir(&dir, "below", 0o755).unwrap();
        assert_eq!(client.rename((root, "dir"), (&below, "x")), Err(INVAL));
        assert_eq!(client.rename((root, "none"), (root, "x")), Err(NOENT));
        assert_eq!(client.rename((root, "other"), (root, "dir")), Err(ISDIR));
        assert_eq!(client.rename((root, "dir"), (root, "other")), Err(NOTDIR));
        assert_eq!(client.rename((root, "."), (root, "x")), Err(INVAL));
        client.rename((&dir, "below"), (root, "moved")).unwrap();
        assert_eq!(client.lookup(&below, "..").unwrap().0, *root);
    });
}

#[test]
fn a_read_only_export_changes_nothing() {
    let image = MemoryImage::xfs();
    common::serve(&image, &options(), |address| {
        let mut client = NfsClient::connect(address);
        let root = client.mount(EXPORT).unwrap();
        let file = client.file(&root, "file");
        client.write(&file, 0, b"contents", 2).unwrap();
    });
    let read_only = nfs::NfsOptions { read_only: true, ..options() };
    common::serve(&image, &read_only, |address| {
        let mut client = NfsClient::connect(address);
        let root = client.mount(EXPORT).unwrap();
        let (file, attr) = client.lookup(&root, "file").unwrap();
        assert_eq!(client.read(&file, 0, 100), Ok((b"contents".to_vec(), true)));
        let guarded = CreateHow::Guarded(NewAttr::default());
        assert_eq!(client.create(&root, "new", guarded).err(), Some(ROFS));
        assert_eq!(client.mkdir(&root, "new", 0o755).err(), Some(ROFS));
        assert_eq!(client.symlink(&root, "new", "x").err(), Some(ROFS));
        assert_eq!(client.mknod(&root, "new", 7).err(), Some(ROFS));
        assert_eq!(client.write(&file, 0, b"x", 0), Err(ROFS));
        assert_eq!(client.remove(&root, "file"), Err(ROFS));
        assert_eq!(client.rmdir(&root, "file"), Err(ROFS));
        assert_eq!(client.rename((&root, "file"), (&root, "x")), Err(ROFS));
        assert_eq!(client.link(&file, &root, "x"), Err(ROFS));
        assert_eq!(
            client.setattr(&file, NewAttr { size: Some(0), ..NewAttr::default() }, None),
            Err(ROFS)
        );
        assert_eq!(client.wcc[0].after, Some(attr), "attributes come with the failure");
        // Read, lookup, execute; no rights to change.
        assert_eq!(client.access(&file, 0x3f), Ok(0x01));
        assert_eq!(client.access(&root, 0x3f), Ok(0x03));
        assert!(client.commit(&file).is_ok());
    });
    image.judge();
}
