//! Permissions: checks of callers, sticky and set-group-ID directories, set-id bits, access control lists.

use vfs::acl::{self, AclEntry, Tag};

use crate::common::{self, *};

const R: u32 = 1;
const MODIFY: u32 = 4;
const X: u32 = 32;

fn user(client: &mut NfsClient, uid: u32, groups: &[u32]) {
    client.caller = Some((uid, groups[0], groups[1..].to_vec()));
}

fn mode(mode: u32) -> NewAttr {
    NewAttr { mode: Some(mode), ..NewAttr::default() }
}

#[test]
fn callers_have_the_rights_of_owner_group_or_others() {
    served(&checked(), |client, root| {
        let owned =
            NewAttr { mode: Some(0o640), uid: Some(5), gid: Some(50), ..NewAttr::default() };
        let (file, _) = client.create(root, "file", CreateHow::Guarded(owned)).unwrap();
        client.write(&file, 0, b"data", 0).unwrap();
        let rights = |client: &mut NfsClient| client.access(&file, R | MODIFY | X).unwrap();
        assert_eq!(rights(client), R | MODIFY, "superuser");
        user(client, 5, &[9]);
        assert_eq!(rights(client), R | MODIFY, "owner");
        client.write(&file, 0, b"more", 0).unwrap();
        user(client, 6, &[9, 10, 50]);
        assert_eq!(rights(client), R, "group");
        assert_eq!(client.read(&file, 0, 4), Ok((b"more".to_vec(), true)));
        assert_eq!(client.write(&file, 0, b"x", 0), Err(ACCES));
        assert_eq!(client.setattr(&file, mode(0o666), None), Err(PERM));
        let size = NewAttr { size: Some(0), ..NewAttr::default() };
        assert_eq!(client.setattr(&file, size, None), Err(ACCES));
        for callers in [Some((6, 9, vec![])), None] {
            client.caller = callers;
            assert_eq!(rights(client), 0, "others");
            assert_eq!(client.read(&file, 0, 4), Err(ACCES));
            let new = CreateHow::Guarded(mode(0o644));
            assert_eq!(client.create(root, "new", new).err(), Some(ACCES));
            assert_eq!(client.remove(root, "file"), Err(ACCES));
            assert_eq!(client.link(&file, root, "link").err(), Some(ACCES));
        }
        user(client, 5, &[9]);
        let owner = NewAttr { uid: Some(6), ..NewAttr::default() };
        assert_eq!(client.setattr(&file, owner, None), Err(PERM), "chown");
        let group = NewAttr { gid: Some(51), ..NewAttr::default() };
        assert_eq!(client.setattr(&file, group, None), Err(PERM), "a group of others");
        let group = NewAttr { gid: Some(9), ..NewAttr::default() };
        client.setattr(&file, group, None).unwrap();
        assert_eq!(client.getattr(&file).unwrap().gid, 9);
    });
}

#[test]
fn directories_need_search_and_read_permission() {
    served(&checked(), |client, root| {
        let dir = client.mkdir(root, "dir", 0o754).unwrap().0;
        client.file(&dir, "file");
        user(client, 6, &[6]);
        assert_eq!(client.lookup(&dir, "file").err(), Some(ACCES));
        assert_eq!(client.readdir(&dir, (0, 0), 4096).unwrap().0.len(), 3);
        client.caller = Some((0, 0, vec![]));
        client.setattr(&dir, mode(0o751), None).unwrap();
        user(client, 6, &[6]);
        assert!(client.lookup(&dir, "file").is_ok());
        assert_eq!(client.readdir(&dir, (0, 0), 4096).err(), Some(ACCES));
        assert_eq!(client.mknod(&dir, "device", 4).err(), Some(ACCES));
    });
}

#[test]
fn names_in_sticky_directories_belong_to_owners() {
    served(&checked(), |client, root| {
        let dir = client.mkdir(root, "dir", 0o1777).unwrap().0;
        user(client, 5, &[5]);
        client.file(&dir, "five");
        assert_eq!(client.mknod(&dir, "device", 4).err(), Some(PERM), "devices need the superuser");
        client.mknod(&dir, "fifo", 7).unwrap();
        user(client, 6, &[6]);
        client.file(&dir, "six");
        assert_eq!(client.remove(&dir, "five"), Err(PERM));
        assert_eq!(client.rename((&dir, "five"), (&dir, "x")), Err(PERM));
        assert_eq!(client.rename((&dir, "six"), (&dir, "five")), Err(PERM));
        client.rename((&dir, "six"), (&dir, "seven")).unwrap();
        client.remove(&dir, "seven").unwrap();
        user(client, 5, &[5]);
        client.remove(&dir, "five").unwrap();
    });
}

#[test]
fn groups_are_inherited() {
    served(&checked(), |client, root| {
        let dir = client.mkdir(root, "dir", 0o2777).unwrap().0;
        let group = NewAttr { gid: Some(77), mode: Some(0o2777), ..NewAttr::default() };
        client.setattr(&dir, group, None).unwrap();
        user(client, 5, &[5]);
        let (_, below) = client.mkdir(&dir, "below", 0o755).unwrap();
        assert_eq!((below.uid, below.gid, below.mode), (5, 77, 0o2755));
        let how = CreateHow::Guarded(mode(0o2775));
        let (_, file) = client.create(&dir, "file", how).unwrap();
        assert_eq!((file.uid, file.gid, file.mode), (5, 77, 0o775), "not a member of the group");
        let (link, made) = client.symlink(&dir, "link", "x").unwrap();
        assert_eq!((made.gid, made.mode), (77, 0o777));
        client.getattr(&link).unwrap();
    });
}

#[test]
fn writes_clear_set_id_bits() {
    served(&checked(), |client, root| {
        let new = NewAttr { uid: Some(5), gid: Some(5), ..mode(0o6777) };
        let (file, _) = client.create(root, "file", CreateHow::Guarded(new)).unwrap();
        client.write(&file, 0, b"by the superuser", 0).unwrap();
        assert_eq!(client.getattr(&file).unwrap().mode, 0o6777);
        user(client, 6, &[6]);
        client.write(&file, 0, b"by another user", 0).unwrap();
        assert_eq!(client.getattr(&file).unwrap().mode, 0o777);
        client.caller = Some((0, 0, vec![]));
        client.setattr(&file, mode(0o6777), None).unwrap();
        client.setattr(&file, NewAttr { uid: Some(7), ..NewAttr::default() }, None).unwrap();
        assert_eq!(client.getattr(&file).unwrap().mode, 0o777, "a new owner");
        client.setattr(&file, mode(0o6777), None).unwrap();
        user(client, 6, &[6]);
        client.setattr(&file, NewAttr { size: Some(1), ..NewAttr::default() }, None).unwrap();
        assert_eq!(client.getattr(&file).unwrap().mode, 0o777, "a new size");
    });
}

#[test]
fn unchecked_callers_have_all_rights_and_one_owner() {
    let callers = nfs::NfsCallers::Unchecked { uid: 33, gid: 44 };
    served(&nfs::NfsOptions { callers, ..options() }, |client, root| {
        let dir = client.mkdir(root, "dir", 0o700).unwrap().0;
        for caller in [Some((5, 6, vec![])), Some((0, 0, vec![])), None] {
            client.caller = caller;
            let (file, made) =
                client.create(&dir, "file", CreateHow::Guarded(mode(0o000))).unwrap();
            assert_eq!((made.uid, made.gid), (33, 44));
            client.write(&file, 0, b"x", 0).unwrap();
            assert_eq!(client.read(&file, 0, 1), Ok((b"x".to_vec(), true)));
            assert_eq!(client.access(&file, 0x3f), Ok(0x0d));
            client.setattr(&file, NewAttr { uid: Some(9), ..mode(0o755) }, None).unwrap();
            client.remove(&dir, "file").unwrap();
        }
    });
}

#[test]
fn access_lists_are_followed_and_inherited() {
    on_both(|image| {
        let entry = |tag, permissions, id| AclEntry::new(tag, permissions, id);
        let list = |first: u16| {
            acl::to_bytes([
                entry(Tag::UserObj, 7, acl::NO_ID),
                entry(Tag::User, first, 5),
                entry(Tag::GroupObj, 0, acl::NO_ID),
                entry(Tag::Group, 4, 60),
                entry(Tag::Mask, 7, acl::NO_ID),
                entry(Tag::Other, 5, acl::NO_ID),
            ])
        };
        common::serve(image, &checked(), |address| {
            let mut client = NfsClient::connect(address);
            let root = client.mount(EXPORT).unwrap();
            let (dir, attr) = client.mkdir(&root, "dir", 0o755).unwrap();
            image.fs().set_xattr(vfs::Ino(attr.ino), acl::DEFAULT, &list(6)).unwrap();
            let how = CreateHow::Guarded(mode(0o666));
            let (file, made) = client.create(&dir, "file", how).unwrap();
            assert_eq!(made.mode, 0o664, "the mask, and bits that the list grants");
            let mut rights = |uid, groups: &[u32]| {
                user(&mut client, uid, groups);
                client.access(&file, R | MODIFY | X).unwrap()
            };
            assert_eq!(rights(5, &[9]), R | MODIFY, "named user");
            assert_eq!(rights(6, &[60]), R, "named group");
            assert_eq!(rights(6, &[0]), 0, "group of the file");
            assert_eq!(rights(6, &[7]), R, "others");
            client.caller = Some((0, 0, vec![]));
            client.setattr(&file, mode(0o644), None).unwrap();
            user(&mut client, 5, &[9]);
            assert_eq!(client.access(&file, R | MODIFY), Ok(R), "the mask follows the mode");
            client.caller = Some((0, 0, vec![]));
            let (_, below) = client.mkdir(&dir, "below", 0o777).unwrap();
            let inherited = image.fs().get_xattr(vfs::Ino(below.ino), acl::DEFAULT).unwrap();
            assert_eq!(inherited, list(6));
        });
    });
}

#[test]
fn all_files_are_shown_as_those_of_one_user_and_keep_their_owners() {
    let callers = nfs::NfsCallers::Unchecked { uid: 33, gid: 44 };
    let shown = nfs::NfsOptions { callers, shown_owner: Some((33, 44)), ..options() };
    on_both(|image| {
        let owner = |ino| {
            let attributes = image.fs().attributes(vfs::Ino(ino)).unwrap();
            (attributes.uid, attributes.gid)
        };
        common::serve(image, &options(), |address| {
            let mut client = NfsClient::connect(address);
            let root = client.mount(EXPORT).unwrap();
            let file = client.file(&root, "file");
            let new = NewAttr { uid: Some(5), gid: Some(6), ..mode(0o600) };
            client.setattr(&file, new, None).unwrap();
        });
        common::serve(image, &shown, |address| {
            let mut client = NfsClient::connect(address);
            let root = client.mount(EXPORT).unwrap();
            user(&mut client, 33, &[44]);
            let (file, found) = client.lookup(&root, "file").unwrap();
            assert_eq!((found.uid, found.gid, found.mode), (33, 44, 0o600));
            assert_eq!(client.access(&file, R | MODIFY), Ok(R | MODIFY));
            client.write(&file, 0, b"data", 2).unwrap();
            assert_eq!(client.wcc[0].after.unwrap().uid, 33);
            let own = NewAttr { uid: Some(33), gid: Some(44), ..mode(0o640) };
            client.setattr(&file, own, None).unwrap();
            assert_eq!(client.getattr(&file).unwrap().mode, 0o640);
            assert_eq!(owner(found.ino), (5, 6), "{}", image.name);
            for other in [
                NewAttr { uid: Some(5), ..NewAttr::default() },
                NewAttr { gid: Some(6), ..NewAttr::default() },
            ] {
                assert_eq!(client.setattr(&file, other, None), Err(PERM));
                let new = CreateHow::Guarded(other);
                assert_eq!(client.create(&root, "new", new).err(), Some(PERM));
            }
            let (_, made) = client.create(&root, "new", CreateHow::Guarded(own)).unwrap();
            assert_eq!((made.uid, made.gid), (33, 44));
            assert_eq!(owner(made.ino), (33, 44), "{}", image.name);
        });
    });
}

#[test]
fn only_one_user_and_root_have_access() {
    let callers = nfs::NfsCallers::Unchecked { uid: 33, gid: 44 };
    let unchecked = nfs::NfsOptions { callers, only_user: Some(33), ..options() };
    let of_one = nfs::NfsOptions { only_user: Some(33), ..checked() };
    for options in [unchecked, of_one] {
        served(&options, |client, root| {
            client.setattr(root, mode(0o777), None).unwrap();
            for (uid, groups) in [(0, [0]), (33, [44])] {
                user(client, uid, &groups);
                let new = CreateHow::Guarded(mode(0o666));
                let (file, _) = client.create(root, "file", new).unwrap();
                assert_eq!(client.access(&file, R | MODIFY), Ok(R | MODIFY));
                client.remove(root, "file").unwrap();
            }
            let file = client.file(root, "file");
            client.caller = Some((0, 0, vec![]));
            client.setattr(&file, NewAttr { uid: Some(7), ..mode(0o666) }, None).unwrap();
            for caller in [Some((7, 44, vec![])), None] {
                client.caller = caller;
                assert_eq!(client.access(&file, R | MODIFY | X), Ok(0));
                assert_eq!(client.lookup(root, "file").err(), Some(ACCES));
                assert_eq!(client.read(&file, 0, 4), Err(ACCES));
                assert_eq!(client.write(&file, 0, b"x", 0), Err(ACCES));
                assert!(client.setattr(&file, mode(0o777), None).is_err());
                assert_eq!(client.remove(root, "file"), Err(ACCES));
            }
        });
    }
}
