//! Extended attributes through requests.

use crate::serving;

use fuse::Options;
use linux::abi::{GetxattrOut, ROOT_ID, SETXATTR_ACL_KILL_SGID};
use linux::{Errno, Operation};
use serving::{Client, EXT4, KINDS, ServedImage, XFS, XFS_PLAIN, on_each, pattern};
use zerocopy::FromBytes;

const CREATE: u32 = 1;
const REPLACE: u32 = 2;

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";
const PARENTS: &[u8] = b"system.diskwright.parents";

/// Returns the length reported to a request with an empty buffer.
fn asked_len(client: &Client<'_>, node: u64, operation: Operation<'_>) -> usize {
    let answer = client.ask(node, operation).unwrap();
    GetxattrOut::read_from_bytes(&answer).unwrap().size as usize
}

#[test]
fn values_need_their_room() {
    on_each(&KINDS, |image| {
        let client = Client::new(image.fs(), Options::default());
        let node = client.file("f");
        for len in [0, 1, 100, 3000] {
            let value = pattern(1, len);
            client.setxattr(node, b"user.x", &value).unwrap();
            let get = |size| Operation::Getxattr { size, name: b"user.x" };
            assert_eq!(asked_len(&client, node, get(0)), len);
            for room in [len as u32, len as u32 + 1, 1 << 16] {
                if room > 0 {
                    assert_eq!(client.ask(node, get(room)).unwrap(), value);
                }
            }
            if len > 1 {
                assert_eq!(client.ask(node, get(len as u32 - 1)), Err(Errno::RANGE));
            }
        }
        assert_eq!(client.getxattr(node, b"user.y"), Err(Errno::NODATA));
        assert_eq!(client.removexattr(node, b"user.y"), Err(Errno::NODATA));
        client.removexattr(node, b"user.x").unwrap();
        assert_eq!(client.getxattr(node, b"user.x"), Err(Errno::NODATA));
    });
    on_each(&[XFS], |image| {
        let client = Client::new(image.fs(), Options::default());
        let (node, value) = (client.file("f"), pattern(2, 1 << 16));
        client.setxattr(node, b"user.large", &value).unwrap();
        assert!(client.getxattr(node, b"user.large").unwrap() == value);
    });
}

#[test]
fn lists_need_their_room_and_hide_what_is_not_everybodys() {
    on_each(&KINDS, |image| {
        let mut client = Client::new(image.fs(), Options::default());
        let node = client.file("f");
        assert_eq!(client.listxattr(node).unwrap(), [b""; 0]);
        for name in ["user.a", "user.bb", "trusted.t", "security.s"] {
            client.setxattr(node, name.as_bytes(), b"value").unwrap();
        }
        let sorted = |client: &Client<'_>| {
            let mut names = client.listxattr(node).unwrap();
            names.sort();
            names
        };
        assert_eq!(sorted(&client), [&b"security.s"[..], b"trusted.t", b"user.a", b"user.bb"]);
        let list = |size| Operation::Listxattr { size };
        let len = asked_len(&client, node, list(0));
        assert_eq!(len, "security.s trusted.t user.a user.bb ".len());
        assert_eq!(client.ask(node, list(len as u32)).unwrap().len(), len);
        assert_eq!(client.ask(node, list(len as u32 - 1)), Err(Errno::RANGE));
        client.0.uid = 1000;
        assert_eq!(sorted(&client), [&b"security.s"[..], b"user.a", b"user.bb"]);
    });
}

#[test]
fn lists_longer_than_linux_hands_over_are_refused() {
    on_each(&[XFS], |image| {
        let client = Client::new(image.fs(), Options::default());
        let node = client.file("f");
        for number in 0..300 {
            client.setxattr(node, format!("user.{number:0>245}").as_bytes(), b"").unwrap();
        }
        for size in [0, 1 << 16] {
            assert_eq!(client.ask(node, Operation::Listxattr { size }), Err(Errno::TOOBIG));
        }
    });
}

#[test]
fn flags_ask_for_a_name_to_be_there_or_not() {
    on_each(&KINDS, |image| {
        let client = Client::new(image.fs(), Options::default());
        let node = client.file("f");
        let set = |value: &[u8], flags| client.setxattr_with(node, b"user.x", value, flags, 0);
        assert_eq!(set(b"1", REPLACE), Err(Errno::NODATA));
        assert_eq!(set(b"2", CREATE), Ok(()));
        assert_eq!(set(b"3", CREATE), Err(Errno::EXIST));
        assert_eq!(client.getxattr(node, b"user.x").unwrap(), b"2");
        assert_eq!(set(b"4", REPLACE), Ok(()));
        assert_eq!(set(b"5", CREATE | REPLACE), Err(Errno::EXIST));
        assert_eq!(client.getxattr(node, b"user.x").unwrap(), b"4");
    });
}

#[test]
fn changes_set_the_change_time_alone() {
    on_each(&KINDS, |image| {
        let client = Client::new(image.fs(), Options::default());
        let node = client.file("f");
        let changes = |change: &dyn Fn()| {
            client.set_times(node, 1, 2, 3);
            change();
            let attr = client.getattr(node);
            assert_eq!((attr.atime, attr.mtime), (1, 2));
            attr.ctime != 3
        };
        let named = list(&[USER_OBJ_RW, NAMED, GROUP_OBJ, MASK, OTHER]);
        assert!(changes(&|| client.setxattr(node, b"user.x", b"1").unwrap()));
        assert!(changes(&|| client.removexattr(node, b"user.x").unwrap()));
        assert!(!changes(&|| assert!(client.removexattr(node, b"user.x").is_err())));
        assert!(changes(&|| client.setxattr(node, ACCESS, &named).unwrap()));
        assert!(changes(&|| client.removexattr(node, ACCESS).unwrap()));
    });
}

#[test]
fn nothing_else_is_in_system() {
    on_each(&KINDS, |image| {
        let client = Client::new(image.fs(), Options::default());
        let node = client.file("f");
        for name in [&b"system.data"[..], b"system.x", b"system.posix_acl_accessx", b"system."] {
            assert_eq!(client.getxattr(node, name), Err(Errno::OPNOTSUPP));
            assert_eq!(client.setxattr(node, name, b"1"), Err(Errno::OPNOTSUPP));
            assert_eq!(client.removexattr(node, name), Err(Errno::OPNOTSUPP));
        }
        assert_eq!(client.setxattr(node, b"nowhere.x", b"1"), Err(Errno::OPNOTSUPP));
    });
}

const USER_OBJ_RW: (u16, u16, u32) = (0x01, 6, u32::MAX);
const NAMED: (u16, u16, u32) = (0x02, 7, 1000);
const GROUP_OBJ: (u16, u16, u32) = (0x04, 4, u32::MAX);
const MASK: (u16, u16, u32) = (0x10, 5, u32::MAX);
const OTHER: (u16, u16, u32) = (0x20, 1, u32::MAX);

/// Returns an access control list in the form of Linux's attributes.
fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

#[test]
fn permissions_and_lists_keep_step() {
    on_each(&KINDS, |image| {
        let client = Client::new(image.fs(), Options::default());
        let node = client.file("f");
        let mode = || client.getattr(node).mode & 0o7777;
        client.chmod(node, 0o2777);
        // The group's bits are those of the mask.
        let named = list(&[USER_OBJ_RW, NAMED, GROUP_OBJ, MASK, OTHER]);
        client.setxattr(node, ACCESS, &named).unwrap();
        assert_eq!(mode(), 0o2651);
        assert_eq!(client.getxattr(node, ACCESS).unwrap(), named);
        // chmod(2) changes the mask.
        client.chmod(node, 0o2674);
        let changed =
            list(&[USER_OBJ_RW, NAMED, GROUP_OBJ, (0x10, 7, u32::MAX), (0x20, 4, u32::MAX)]);
        assert_eq!(client.getxattr(node, ACCESS).unwrap(), changed);
        // A caller who is not in the group loses the set-group-id bit.
        client.setxattr_with(node, ACCESS, &named, 0, SETXATTR_ACL_KILL_SGID).unwrap();
        assert_eq!(mode(), 0o651);
        // A list that is equivalent to permissions is not stored.
        client.setxattr(node, ACCESS, &list(&[USER_OBJ_RW, GROUP_OBJ, OTHER])).unwrap();
        assert_eq!(mode(), 0o641);
        assert_eq!(client.getxattr(node, ACCESS), Err(Errno::NODATA));
        assert_eq!(client.removexattr(node, ACCESS), Err(Errno::NODATA));
        // Removing it, or setting an empty value, keeps the permissions.
        client.setxattr(node, ACCESS, &named).unwrap();
        client.setxattr(node, ACCESS, b"").unwrap();
        assert_eq!((client.getxattr(node, ACCESS), mode()), (Err(Errno::NODATA), 0o651));
        client.setxattr(node, ACCESS, &named).unwrap();
        client.removexattr(node, ACCESS).unwrap();
        assert_eq!((client.getxattr(node, ACCESS), mode()), (Err(Errno::NODATA), 0o651));
        assert_eq!(client.setxattr(node, ACCESS, &named[..20]), Err(Errno::INVAL));
        assert_eq!(client.setxattr(node, ACCESS, &list(&[USER_OBJ_RW, NAMED])), Err(Errno::INVAL));
        assert_eq!(mode(), 0o651);
    });
}

#[test]
fn default_lists_are_for_directories() {
    on_each(&KINDS, |image| {
        let client = Client::new(image.fs(), Options::default());
        let (file, dir) = (client.file("f"), client.directory(ROOT_ID, "d"));
        let link = client.symlink(ROOT_ID, "l", "f").unwrap().nodeid;
        let minimal = list(&[USER_OBJ_RW, GROUP_OBJ, OTHER]);
        assert_eq!(client.setxattr(file, DEFAULT, &minimal), Err(Errno::ACCESS));
        assert_eq!(client.setxattr(link, DEFAULT, &minimal), Err(Errno::OPNOTSUPP));
        assert_eq!(client.setxattr(link, ACCESS, &minimal), Err(Errno::OPNOTSUPP));
        // Here, a list of the permissions alone has an effect.
        client.setxattr(dir, DEFAULT, &minimal).unwrap();
        assert_eq!(client.getxattr(dir, DEFAULT).unwrap(), minimal);
        assert_eq!(client.getattr(dir).mode & 0o7777, 0o755);
        assert_eq!(client.listxattr(dir).unwrap(), [DEFAULT]);
        let inside = client.directory(dir, "inside");
        assert_eq!(client.getxattr(inside, DEFAULT).unwrap(), minimal);
        assert_eq!(client.setxattr(dir, DEFAULT, b"rubbish"), Err(Errno::OPNOTSUPP));
        client.setxattr(dir, DEFAULT, b"").unwrap();
        assert_eq!(client.getxattr(dir, DEFAULT), Err(Errno::NODATA));
    });
}

#[test]
fn parents_are_all_links() {
    on_each(&[XFS], |image| {
        let mut client = Client::new(image.fs(), Options::default());
        let (node, dir) = (client.file("one"), client.directory(ROOT_ID, "d"));
        client.link(node, dir, "two").unwrap();
        client.link(node, dir, "three").unwrap();
        client.rename((ROOT_ID, "one"), (dir, "one"), 0).unwrap();
        client.link(node, ROOT_ID, "four").unwrap();
        let sorted = |client: &Client<'_>, node| {
            let value = client.getxattr(node, PARENTS).unwrap();
            let text = String::from_utf8(value).unwrap();
            let mut links: Vec<_> = text.split_terminator('\0').map(str::to_owned).collect();
            links.sort();
            links
        };
        let root = client.getattr(ROOT_ID).ino;
        let mut expected = vec![
            format!("{dir}/one"),
            format!("{dir}/two"),
            format!("{dir}/three"),
            format!("{root}/four"),
        ];
        expected.sort();
        assert_eq!(sorted(&client, node), expected);
        assert_eq!(sorted(&client, dir), [format!("{root}/d")]);
        assert_eq!(client.getxattr(ROOT_ID, PARENTS).unwrap(), b"");
        assert_eq!(client.listxattr(node).unwrap(), [b""; 0], "it is not listed");
        assert_eq!(client.setxattr(node, PARENTS, b"1"), Err(Errno::OPNOTSUPP));
        assert_eq!(client.removexattr(node, PARENTS), Err(Errno::OPNOTSUPP));
        client.0.uid = 12_345;
        assert_eq!(client.getxattr(node, PARENTS), Err(Errno::PERM));
    });
}

#[test]
fn parents_that_are_too_many_are_refused() {
    on_each(&[XFS], |image| {
        let client = Client::new(image.fs(), Options::default());
        let node = client.file("f");
        for number in 0..250 {
            client.link(node, ROOT_ID, &format!("{number:0>250}")).unwrap();
        }
        assert!(client.getxattr(node, PARENTS).unwrap().len() > 250 * 250);
        for number in 250..270 {
            client.link(node, ROOT_ID, &format!("{number:0>250}")).unwrap();
        }
        assert_eq!(client.getxattr(node, PARENTS), Err(Errno::TOOBIG));
    });
}

#[test]
fn parents_are_not_known_everywhere() {
    on_each(&[EXT4, XFS_PLAIN], |image| {
        let client = Client::new(image.fs(), Options::default());
        let node = client.file("f");
        assert_eq!(client.getxattr(node, PARENTS), Err(Errno::NODATA));
    });
}

#[test]
fn nothing_is_changed_on_a_read_only_mount() {
    for kind in KINDS {
        let image = ServedImage::new(kind);
        let node = Client::new(image.fs(), Options::default()).file("f");
        let options = Options { read_only: true, ..Options::default() };
        let client = Client::new(image.fs(), options);
        assert_eq!(client.setxattr(node, b"user.x", b"1"), Err(Errno::ROFS));
        assert_eq!(client.setxattr(node, ACCESS, b""), Err(Errno::ROFS));
        assert_eq!(client.removexattr(node, b"user.x"), Err(Errno::ROFS));
    }
}
