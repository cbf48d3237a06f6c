//! CREATE, MKDIR, SYMLINK, MKNOD.

use crate::common::*;

#[test]
fn all_types_are_created() {
    served(&options(), |client, root| {
        let (dir, made) = client.mkdir(root, "dir", 0o751).unwrap();
        assert_eq!((made.file_type, made.mode, made.links), (2, 0o751, 2));
        let parent = client.wcc[0];
        let root_now = client.getattr(root).unwrap();
        assert_eq!(parent.after, Some(root_now));
        assert!(root_now.mtime > parent.before.unwrap().1);
        let (link, made) = client.symlink(&dir, "link", "to/a target").unwrap();
        assert_eq!((made.file_type, made.size), (5, 11));
        assert_eq!(client.readlink(&link).as_deref(), Ok(&b"to/a target"[..]));
        assert_eq!(client.readlink(&dir), Err(INVAL));
        for (name, file_type, device) in [
            ("block", 3, (4095, 77)),
            ("character", 4, (4095, 77)),
            ("socket", 6, (0, 0)),
            ("fifo", 7, (0, 0)),
        ] {
            let (handle, made) = client.mknod(&dir, name, file_type).unwrap();
            assert_eq!((made.file_type, made.mode, made.device), (file_type, 0o640, device));
            assert_eq!(client.getattr(&handle), Ok(made), "{name}");
            assert_eq!(client.read(&handle, 0, 1), Err(INVAL), "{name}");
            assert_eq!(client.mknod(&dir, name, file_type).err(), Some(EXIST));
        }
        for file_type in [1, 2, 5, 9] {
            assert_eq!(client.mknod(&dir, "none", file_type).err(), Some(BADTYPE), "{file_type}");
        }
        assert_eq!(client.mkdir(&dir, "fifo", 0o755).err(), Some(EXIST));
        assert_eq!(client.symlink(&dir, ".", "x").err(), Some(EXIST));
        assert_eq!(client.mkdir(&link, "x", 0o755).err(), Some(NOTDIR));
    });
}

#[test]
fn files_are_created_with_attributes() {
    served(&options(), |client, root| {
        let new = NewAttr {
            mode: Some(0o4711),
            uid: Some(7),
            gid: Some(8),
            size: Some(5000),
            atime: Some(Some((1, 2))),
            mtime: Some(Some((3, 4))),
        };
        let (file, made) = client.create(root, "file", CreateHow::Guarded(new)).unwrap();
        assert_eq!((made.mode, made.uid, made.gid, made.size), (0o4711, 7, 8, 5000));
        assert_eq!((made.atime, made.mtime), ((1, 2), (3, 4)));
        assert_eq!(client.create(root, "file", CreateHow::Guarded(new)).err(), Some(EXIST));

        // An existing file keeps all attributes but its size.
        let other = NewAttr { mode: Some(0o600), size: Some(10), ..NewAttr::default() };
        let (same, kept) = client.create(root, "file", CreateHow::Unchecked(other)).unwrap();
        assert_eq!((&same, kept.size, kept.uid), (&file, 10, 7));
        assert_eq!(kept.mode, 0o711, "a truncation clears set-user-ID");
        let (same, kept) =
            client.create(root, "file", CreateHow::Unchecked(NewAttr::default())).unwrap();
        assert_eq!((&same, kept.size), (&file, 10));
        client.mkdir(root, "dir", 0o755).unwrap();
        let unchecked = CreateHow::Unchecked(NewAttr::default());
        assert_eq!(client.create(root, "dir", unchecked).err(), Some(EXIST));
        let wrong = NewAttr { mtime: Some(Some((0, 1_000_000_000))), ..NewAttr::default() };
        assert_eq!(client.create(root, "wrong", CreateHow::Guarded(wrong)).err(), Some(INVAL));
        assert_eq!(client.lookup(root, "wrong").err(), Some(NOENT), "nothing is left");
    });
}

#[test]
fn an_exclusive_creation_can_be_repeated_by_its_creator() {
    served(&options(), |client, root| {
        let ours = CreateHow::Exclusive([0xff; 8]);
        let (file, made) = client.create(root, "file", ours).unwrap();
        assert_eq!((made.file_type, made.size), (1, 0));
        assert_eq!(client.create(root, "file", ours).unwrap(), (file.clone(), made));
        let theirs = CreateHow::Exclusive([1; 8]);
        assert_eq!(client.create(root, "file", theirs).err(), Some(EXIST));
        // The creator sets the attributes, and the verifier is gone.
        let new = NewAttr {
            mode: Some(0o644),
            atime: Some(None),
            mtime: Some(None),
            ..NewAttr::default()
        };
        client.setattr(&file, new, None).unwrap();
        assert_eq!(client.create(root, "file", ours).err(), Some(EXIST));
    });
}
