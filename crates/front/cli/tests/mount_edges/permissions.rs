//! Permissions: owners and groups, sticky and set-ID bits, ACLs, attributes.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
use rustix::io::Errno;

use crate::place::{Place, prove_on_both, run, shell, tool};

const USER: u32 = 4321;
const OTHER: u32 = 8765;
const GROUP: u32 = 5555;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

/// Returns whether a user can run a shell line in the mount.
fn can(place: &Place, user: u32, group: u32, line: &str) -> bool {
    let mut command = Command::new("bash");
    command.args(["-c", line]).current_dir(place.path()).uid(user).gid(group);
    command.env("LC_ALL", "C").output().unwrap().status.success()
}

/// In a sticky directory, only owners remove and rename.
fn sticky_directories_protect_what_is_in_them(place: &mut Place) {
    let sticky = place.join("sticky");
    fs::create_dir(&sticky).unwrap();
    set_mode(&sticky, 0o1777);
    assert!(can(place, USER, GROUP, "umask 0; echo mine > sticky/file && mkdir sticky/dir"));
    assert!(can(place, OTHER, GROUP, "echo also >> sticky/file"), "its mode allows writing");
    assert!(!can(place, OTHER, GROUP, "rm -f sticky/file"));
    assert!(!can(place, OTHER, GROUP, "mv sticky/file sticky/other"));
    assert!(!can(place, OTHER, GROUP, "rmdir sticky/dir"));
    assert!(!can(place, OTHER, GROUP, "echo x > sticky/x && mv sticky/x sticky/file"));
    assert!(can(
        place,
        USER,
        GROUP,
        "mv sticky/file sticky/other && rm sticky/other && rmdir sticky/dir"
    ));
    set_mode(&sticky, 0o777);
    assert!(can(place, USER, GROUP, "echo mine > sticky/file"));
    assert!(can(place, OTHER, GROUP, "rm -f sticky/file"));
}

/// In a directory with the set-group-ID bit, new files inherit its group, and directories the bit
/// as well.
fn groups_are_inherited(place: &mut Place) {
    fs::create_dir(place.join("shared")).unwrap();
    chown(place.join("shared"), Some(0), Some(GROUP)).unwrap();
    set_mode(&place.join("shared"), 0o2777);
    let line = "umask 022; cd shared && touch file && mkdir dir && touch dir/inner && ln -s x link && \
                mkfifo fifo && install -m 2755 /dev/null executable; true";
    assert!(can(place, USER, OTHER, line));
    place.remount();
    for name in ["file", "dir", "dir/inner", "link", "fifo"] {
        let found = fs::symlink_metadata(place.join("shared").join(name)).unwrap();
        assert_eq!((found.uid(), found.gid()), (USER, GROUP), "{name}");
    }
    assert_eq!(mode(&place.join("shared/dir")), 0o2755);
    assert_eq!(mode(&place.join("shared/file")), 0o644);
    // Users outside the group cannot create programs that would run with it.
    assert_eq!(mode(&place.join("shared/executable")), 0o755);
}

/// Set-ID bits and capabilities are cleared when others could profit from them.
fn set_id_bits_are_cleared(place: &mut Place) {
    set_mode(place.path(), 0o777);
    let path = place.join("program");
    let reset = |mode| {
        fs::write(&path, "a program").unwrap();
        chown(&path, Some(USER), Some(GROUP)).unwrap();
        set_mode(&path, mode);
    };
    for line in CHANGES {
        for before in [0o6777, 0o6767, 0o6666, 0o2767, 0o4767] {
            reset(before);
            assert!(can(place, OTHER, OTHER, line), "{line}");
            let found = mode(&path);
            assert_eq!(found, before & 0o777, "{line}: {before:o}");
        }
    }
    reset(0o6755);
    assert!(can(place, USER, GROUP, "chgrp $(id -g) program"));
    assert_eq!(mode(&path), 0o755, "a change of group");
    // A privileged user keeps the bits on a write, but loses them on a change of the owner.
    reset(0o6755);
    fs::write(&path, "another program").unwrap();
    assert_eq!(mode(&path), 0o6755);
    chown(&path, Some(OTHER), None).unwrap();
    assert_eq!(mode(&path), 0o755);
    // A capability of version 2: cap_net_bind_service.
    let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    setxattr(&path, "security.capability", &capability, XattrFlags::empty()).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(b"x", 0).unwrap();
    let found = getxattr(&path, "security.capability", &mut [0_u8; 64]);
    assert_eq!(found, Err(Errno::NODATA), "a capability outlives a write");
}

/// Commands that change the contents of a file.
const CHANGES: [&str; 5] = [
    "echo x >> program",
    "truncate -s 3 program",
    ": > program",
    "fallocate -l 10000 program",
    "fallocate -n -p -l 4096 program",
];

/// Set-group-ID of a file without group execution is kept if the caller is in the file's group,
/// also as a supplementary group. It is cleared if anyone else changes the file.
fn set_group_id_without_execution_is_the_groups(place: &mut Place) {
    set_mode(place.path(), 0o777);
    let path = place.join("program");
    for line in CHANGES {
        for (groups, expected) in [
            (vec!["--regid=8765", "--groups=8765"], 0o666),
            (vec!["--regid=5555", "--clear-groups"], 0o2666),
            (vec!["--regid=8765", "--groups=8765,5555"], 0o2666),
        ] {
            fs::write(&path, "a program").unwrap();
            chown(&path, Some(USER), Some(GROUP)).unwrap();
            set_mode(&path, 0o6666);
            let mut command = tool("setpriv");
            command.arg("--reuid=8765").args(&groups).args(["--", "bash", "-c", line]);
            run(command.current_dir(place.path()));
            assert_eq!(mode(&path), expected, "{line}, {groups:?}");
        }
    }
    // The same applies when the owner changes the group.
    for (group, expected) in [(OTHER, 0o666), (GROUP, 0o2666)] {
        chown(&path, Some(USER), Some(GROUP)).unwrap();
        set_mode(&path, 0o2666);
        assert!(can(place, USER, group, "chgrp $(id -g) program"));
        assert_eq!(mode(&path), expected, "{group}");
    }
}

fn acl(path: &Path) -> String {
    let listed = run(tool("getfacl").args(["-cpnE"]).arg(path));
    listed.split_whitespace().collect::<Vec<_>>().join(",")
}

/// ACLs grant and deny access, are inherited, and agree with the mode.
fn acls_are_obeyed_and_inherited(place: &mut Place) {
    let root = place.path().to_owned();
    let setfacl = |arguments: &str| shell(&root, &format!("setfacl {arguments}"));
    fs::write(place.join("file"), "secret").unwrap();
    set_mode(&place.join("file"), 0o600);
    set_mode(place.path(), 0o755);
    assert!(!can(place, USER, GROUP, "cat file"));
    setfacl(&format!("-m u:{USER}:r file"));
    assert!(can(place, USER, GROUP, "cat file") && !can(place, USER, GROUP, "echo >> file"));
    assert!(!can(place, OTHER, GROUP, "cat file"));
    // The group bits are now the mask; clearing them removes what the ACL grants.
    assert_eq!(mode(&place.join("file")), 0o640);
    set_mode(&place.join("file"), 0o600);
    assert!(!can(place, USER, GROUP, "cat file"));
    assert_eq!(
        acl(&place.join("file")),
        format!("user::rw-,user:{USER}:r--,group::---,mask::---,other::---")
    );
    setfacl(&format!("-m g:{GROUP}:rw,m::rw file"));
    assert!(can(place, OTHER, GROUP, "echo >> file") && can(place, USER, OTHER, "cat file"));
    // A minimal ACL, equivalent to a mode, is stored as a mode.
    setfacl("-b file");
    assert_eq!(listxattr(place.join("file"), &mut [0_u8; 0]), Ok(0));
    setfacl("-m u::rwx,g::r-x,o::--x file");
    assert_eq!(mode(&place.join("file")), 0o751);
    assert_eq!(listxattr(place.join("file"), &mut [0_u8; 0]), Ok(0));

    fs::create_dir(place.join("dir")).unwrap();
    set_mode(&place.join("dir"), 0o777);
    setfacl(&format!("-d -m u::rwx,u:{USER}:rwx,g::r-x,o::--- dir"));
    // A default ACL replaces the umask.
    assert!(can(
        place,
        OTHER,
        OTHER,
        "umask 077; echo x > dir/file && mkdir dir/sub && echo x > dir/sub/deep"
    ));
    let named = format!("user::rw-,user:{USER}:rwx,group::r-x,mask::rw-,other::---");
    assert_eq!(acl(&place.join("dir/file")), named);
    assert_eq!(mode(&place.join("dir/file")), 0o660);
    assert_eq!(acl(&place.join("dir/sub/deep")), named);
    let defaults = format!(
        "default:user::rwx,default:user:{USER}:rwx,default:group::r-x,default:mask::rwx,default:other::---"
    );
    let expected = format!("user::rwx,user:{USER}:rwx,group::r-x,mask::rwx,other::---,{defaults}");
    assert_eq!(acl(&place.join("dir/sub")), expected);
    assert!(can(place, USER, GROUP, "echo y >> dir/sub/deep"));
    assert!(!can(place, 1111, 1111, "cat dir/sub/deep"));
    place.remount();
    assert_eq!(acl(&place.join("dir/sub")), expected);
    assert_eq!(acl(&place.join("dir/sub/deep")), named);
    assert!(
        can(place, USER, GROUP, "cat dir/sub/deep") && !can(place, 1111, 1111, "cat dir/sub/deep")
    );
}

/// Extended attributes of all sizes. Requests without permission fail with the right error.
fn attributes_are_kept(place: &mut Place) {
    let path = place.join("file");
    fs::write(&path, "x").unwrap();
    let set = |name: &str, value: &[u8], flags| setxattr(&path, name, value, flags);
    let value = |name: &str, at: &Path| {
        let mut buffer = vec![0; 65_536];
        getxattr(at, name, &mut buffer[..]).map(|len| buffer[..len].to_vec())
    };
    let none = XattrFlags::empty();
    let long_name = format!("user.{}", "n".repeat(250));
    // Sizes that fit one block of ext4 together; XFS has room for the maximum value.
    let largest = if place.format() == crate::place::Format::Xfs { 65_536 } else { 3000 };
    let values = [
        ("user.empty", 0),
        ("user.small", 5),
        (long_name.as_str(), 300),
        ("trusted.largest", largest),
    ];
    for (name, len) in values {
        set(name, &vec![7; len], none).unwrap();
        assert_eq!(value(name, &path).unwrap(), vec![7; len], "{name}");
    }
    assert_eq!(set("user.small", b"again", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(set("user.none", b"again", XattrFlags::REPLACE), Err(Errno::NODATA));
    set("user.small", b"a longer one", XattrFlags::REPLACE).unwrap();
    assert_eq!(value("user.small", &path).unwrap(), b"a longer one");
    assert_eq!(getxattr(&path, "user.small", &mut [0_u8; 3]), Err(Errno::RANGE));
    assert_eq!(set(&format!("{long_name}x"), b"", none), Err(Errno::RANGE));
    assert_eq!(set("nobody.knows", b"", none), Err(Errno::OPNOTSUPP));
    if place.format() == crate::place::Format::Ext {
        assert_eq!(set("user.too-large", &[1; 40_000], none), Err(Errno::NOSPC));
    }
    assert_eq!(removexattr(&path, "user.none"), Err(Errno::NODATA));
    removexattr(&path, "user.empty").unwrap();
    std::os::unix::fs::symlink("file", place.join("link")).unwrap();
    let on_link = rustix::fs::lsetxattr(place.join("link"), "user.a", b"", none);
    assert_eq!(on_link, Err(Errno::PERM));
    rustix::fs::lsetxattr(place.join("link"), "trusted.a", b"v", none).unwrap();
    place.remount();
    let path = place.join("file");
    let mut names = vec![0_u8; 65_536];
    let len = listxattr(&path, &mut names[..]).unwrap();
    let mut names: Vec<_> =
        names[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty()).collect();
    names.sort();
    assert_eq!(names, [b"trusted.largest", long_name.as_bytes(), b"user.small"]);
    assert_eq!(value("trusted.largest", &path).unwrap().len(), largest);
    assert_eq!(value("user.small", &path).unwrap(), b"a longer one");
}

/// Special files: their device numbers, and that they work.
fn special_files_work(place: &mut Place) {
    shell(
        place.path(),
        "mknod null c 1 3 && mknod disk b 7 200 && mkfifo fifo && chmod 666 null fifo",
    );
    let listener = std::os::unix::net::UnixListener::bind(place.join("socket")).unwrap();
    let client = std::os::unix::net::UnixStream::connect(place.join("socket")).unwrap();
    listener.accept().unwrap();
    drop((client, listener));
    fs::write(place.join("null"), "gone").unwrap();
    let text = shell(place.path(), "(echo through > fifo &) ; cat fifo; cat null");
    assert_eq!(text, "through\n");
    place.remount();
    let numbers = shell(place.path(), "stat -c '%F %t %T' null disk fifo socket");
    let expected = "character special file 1 3\nblock special file 7 c8\nfifo 0 0\nsocket 0 0\n";
    assert_eq!(numbers, expected);
}

prove_on_both!(
    sticky_directories_protect_what_is_in_them,
    groups_are_inherited,
    set_id_bits_are_cleared,
    set_group_id_without_execution_is_the_groups,
    acls_are_obeyed_and_inherited,
    attributes_are_kept,
    special_files_work,
);
