//! Selection, order and attributes of files.

use import::correct::{
    AttributeChange, CorrectionOptions, FileCapabilities, PermissionChange, Surroundings,
};
use import::{Time, Xattr};
use testkit::scratch;

use super::{archive, corrected, exclude, file, include, paths, plainly, rule, said, tree};
use crate::common::ItemKind;

#[test]
fn directories_of_what_is_taken_come_with_it() {
    let directory = scratch();
    let root = directory.path().join("root");
    for path in ["usr/share/doc/a/x", "usr/share/doc/b", "usr/bin", "var/cache/y"] {
        std::fs::create_dir_all(root.join(path)).unwrap();
        std::fs::write(root.join(path).join("file"), path).unwrap();
    }
    std::fs::write(root.join("usr/share/doc/a/copyright"), "mine").unwrap();
    let options = CorrectionOptions {
        choices: vec![
            exclude("/usr/share/doc"),
            include("copyright"),
            exclude("/var/cache/*"),
            exclude("*.nothing"),
        ],
        ..Default::default()
    };
    let (items, report) = plainly(tree(&root), &options).unwrap();
    let expected = [
        "",
        "usr",
        "usr/bin",
        "usr/bin/file",
        "usr/share",
        "usr/share/doc",
        "usr/share/doc/a",
        "usr/share/doc/a/copyright",
        "var",
        "var/cache",
    ];
    assert_eq!(paths(&items), expected);
    // doc/a/x and its file, doc/b and its file, cache/y and its file.
    assert_eq!(report.excluded, 6);
    assert_eq!(report.warnings, ["--exclude *.nothing: the pattern has no effect on any file"]);
}

#[test]
fn a_hard_link_to_an_excluded_file_is_the_file() {
    let directory = scratch();
    let root = directory.path().join("root");
    std::fs::create_dir(&root).unwrap();
    std::fs::write(root.join("a"), "contents").unwrap();
    std::fs::hard_link(root.join("a"), root.join("b")).unwrap();
    std::fs::hard_link(root.join("a"), root.join("c")).unwrap();
    let options = CorrectionOptions { choices: vec![exclude("/a")], ..Default::default() };
    let (items, _) = plainly(tree(&root), &options).unwrap();
    assert_eq!(paths(&items), ["", "b", "c"]);
    assert!(matches!(&items[1].kind, ItemKind::File { data, .. } if data == b"contents"));
    assert_eq!(items[2].kind, ItemKind::Other("Hardlink([98])".into()));

    // The sequential contents have been skipped.
    let linked = || archive(&[("a", b'0', "contents"), ("b", b'1', "a")]);
    let text = said(linked(), &options);
    assert!(text.contains("\"/b\" is a hard link to \"/a\", which is excluded"), "{text}");
    let both = CorrectionOptions { choices: vec![exclude("/*")], ..Default::default() };
    assert_eq!(paths(&plainly(linked(), &both).unwrap().0), [""]);
}

#[test]
fn directories_that_an_archive_never_lists_are_corrected_too() {
    let directory = scratch();
    let contexts = file(
        directory.path(),
        "contexts",
        "/.* -d u:r:dir_t:s0\n/usr/bin/tool -- u:r:tool_t:s0\n/srv <<none>>\n",
    );
    let options = CorrectionOptions { file_contexts: Some(contexts), ..Default::default() };
    let source = archive(&[("usr/bin/tool", b'0', "x"), ("usr/", b'5', ""), ("link", b'2', "x")]);
    let surroundings =
        Surroundings { owner: Some((5, 6)), time: Time { sec: 99, nsec: 0 }, ..Default::default() };
    let (items, report) = corrected(source, &options, &surroundings).unwrap();
    assert_eq!(paths(&items), ["", "usr", "usr/bin", "usr/bin/tool", "usr", "link"]);
    let label = |at: usize| items[at].xattrs.first().map(|xattr| xattr.value.as_slice());
    assert_eq!(label(2), Some(&b"u:r:dir_t:s0\0"[..]));
    assert_eq!(label(3), Some(&b"u:r:tool_t:s0\0"[..]));
    assert_eq!(label(5), None);
    assert_eq!((report.labels, report.unlabelled), (5, 1));
    assert_eq!((items[2].metadata.uid, items[2].metadata.mtime.sec), (5, 99));
    // The later entry of the archive applies.
    assert_eq!((items[4].metadata.gid, items[4].metadata.permissions), (6, 0o640));
    assert!(matches!(&items[3].kind, ItemKind::File { data, .. } if data == b"x"));
}

#[test]
fn owners_tables_and_rules_apply_in_their_order() {
    let directory = scratch();
    let map = file(directory.path(), "map", "uid 1000 0\ngid 1001-1005 100\n");
    let table = file(
        directory.path(),
        "table",
        "/dev d 755 0 0\n/dev/null c 666 0 0 1 3\n/dev/tty c 620 0 5 4 0 0 1 2\n\
         /bin/ping f -1 0 0\n|xattr cap_net_raw+ep\n/etc r -1 3 3\n/gone F 644 0 0\n",
    );
    let options = CorrectionOptions {
        owner_map: Some(map),
        devices: vec![table],
        rules: vec![
            rule("/etc/*", AttributeChange::Owner { uid: None, gid: Some(9) }),
            rule("/dev/tty1", AttributeChange::Permissions(PermissionChange::new(|_, _| 0o600))),
            rule("*", AttributeChange::Permissions(PermissionChange::new(|old, _| old | 0o4000))),
            rule("/none", AttributeChange::Capabilities(FileCapabilities::parse("all=p").unwrap())),
            rule(
                "*",
                AttributeChange::Xattr(Xattr { name: b"user.x".to_vec(), value: b"1".to_vec() }),
            ),
        ],
        ..Default::default()
    };
    let source = archive(&[
        ("bin/ping", b'0', "x"),
        ("etc/", b'5', ""),
        ("etc/passwd", b'0', "x"),
        ("etc/link", b'2', "x"),
        ("home", b'5', ""),
    ]);
    let (items, report) = plainly(source, &options).unwrap();
    let expected = [
        "",
        "bin",
        "bin/ping",
        "etc",
        "etc/passwd",
        "etc/link",
        "home",
        "dev",
        "dev/null",
        "dev/tty0",
        "dev/tty1",
    ];
    assert_eq!(paths(&items), expected);
    let owners: Vec<_> = items.iter().map(|item| (item.metadata.uid, item.metadata.gid)).collect();
    let expected =
        [(0, 0), (0, 0), (0, 0), (3, 3), (3, 9), (3, 9), (0, 100), (0, 0), (0, 0), (0, 5), (0, 5)];
    assert_eq!(owners, expected);
    let permissions = |at: usize| items[at].metadata.permissions;
    assert_eq!([2, 4, 5, 10].map(permissions), [0o4640, 0o4640, 0o640, 0o4600]);
    assert_eq!(items[10].kind, ItemKind::Other("CharDevice { major: 4, minor: 1 }".into()));
    let names =
        |at: usize| items[at].xattrs.iter().map(|xattr| xattr.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(2), [b"security.capability".to_vec(), b"user.x".to_vec()]);
    assert!(names(5).is_empty() && names(10).is_empty());
    assert_eq!((report.made, report.excluded), (4, 0));
    assert_eq!(
        report.warnings,
        ["--capability /none: the pattern matches no file that supports it"]
    );
}

#[test]
fn tables_that_are_about_something_else_are_refused() {
    let directory = scratch();
    let refused = |text: &str, expected: &str| {
        let table = file(directory.path(), "table", text);
        let options = CorrectionOptions { devices: vec![table], ..Default::default() };
        let source = archive(&[("a", b'0', "x"), ("b", b'1', "a"), ("d/", b'5', "")]);
        let text = said(source, &options);
        assert!(text.contains(expected), "{text}");
    };
    refused("/a d 755 0 0", "line 1: \"/a\": expected a directory, found a regular file");
    refused("/x f 755 0 0", "line 1: \"/x\" is not in the source");
    refused("#\n/d c 755 0 0 1 1", "line 2: \"/d\": expected a character device");
    refused("/b f 755 0 0", "\"/b\" is another name of the file \"/a\"");
    refused("/a f 755 daemon 0", "user \"daemon\"");
}

#[test]
fn patterns_that_match_only_additional_names_are_reported() {
    let change = AttributeChange::Owner { uid: Some(1), gid: None };
    let options = CorrectionOptions { rules: vec![rule("/b", change)], ..Default::default() };
    let source = archive(&[("a", b'0', "x"), ("b", b'1', "a")]);
    let (_, report) = plainly(source, &options).unwrap();
    let expected = "--chown /b: /b is another name of a file, which is matched by its first name";
    assert_eq!(report.warnings, [expected]);
}
