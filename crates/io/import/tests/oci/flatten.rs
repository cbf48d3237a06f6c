//! Flattened layers, compared with a simple model of the specification's rules.

use std::fs;

use proptest::prelude::*;

use super::common::{Member, MemberKind, dir, file, flatten, layout_of, link, member, symlink};
use super::model::{TreeModel, lines};

/// Flattens layers and compares with the model.
#[track_caller]
fn same(layers: &[Vec<Member>]) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    layout_of(directory.path(), layers);
    let found = lines(&flatten(directory.path(), false).unwrap());
    let expected = TreeModel::of(layers).expect("layers that can be unpacked").items();
    assert_eq!(found, expected);
    found
}

fn paths(lines: &[String]) -> Vec<&str> {
    lines.iter().map(|line| line.split(": ").next().unwrap()).collect()
}

/// Returns the contents of a flattened image, for rules that the model lacks.
#[track_caller]
fn holds(layers: &[Vec<Member>], expected: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    layout_of(directory.path(), layers);
    let found = lines(&flatten(directory.path(), false).unwrap());
    let short = |line: &String| line.split(" (").next().unwrap().to_owned();
    assert_eq!(found.iter().map(short).collect::<Vec<_>>(), expected);
}

#[test]
fn whiteouts_hide_lower_layers_only_in_any_order() {
    let lower = vec![file("a", "old"), dir("d"), file("d/x", "old"), file("d/y", "old")];
    let upper = vec![file("a", "new"), file(".wh.a", ""), file("d/z", "new"), file("d/.wh.x", "")];
    let mut reversed = upper.clone();
    reversed.reverse();
    let one = same(&[lower.clone(), upper]);
    assert_eq!(paths(&one), ["", "a", "d", "d/y", "d/z"]);
    assert_eq!(one, same(&[lower.clone(), reversed]));
    // A directory that is hidden and recreated by its entries.
    for upper in [[file("d/z", ""), file(".wh.d", "")], [file(".wh.d", ""), file("d/z", "")]] {
        assert_eq!(paths(&same(&[lower.clone(), upper.into()])), ["", "a", "d", "d/z"]);
    }
}

#[test]
fn opaque_directories_hide_lower_layers_only() {
    let lower = vec![dir("d"), dir("d/e"), file("d/e/x", "old"), file("d/y", "old"), file("k", "")];
    let opaque = file("d/.wh..wh..opq", "");
    let upper = vec![file("d/e/new", ""), opaque.clone(), file("d/z", "")];
    let found = same(&[lower.clone(), upper]);
    assert_eq!(paths(&found), ["", "d", "d/e", "d/e/new", "d/z", "k"]);
    let root = vec![file("n", ""), file(".wh..wh..opq", "")];
    assert_eq!(paths(&same(&[lower.clone(), root])), ["", "n"]);
    // Nothing hides later layers.
    let last = vec![file("d/y", "again")];
    assert_eq!(paths(&same(&[lower, vec![opaque], last])), ["", "d", "d/y", "k"]);
}

#[test]
fn whiteouts_may_be_of_any_type_and_hide_nothing() {
    let lower = vec![file("a", ""), file("b", ""), file("c", "")];
    let upper = vec![
        file(".wh.a", ""),
        link(".wh.b", ".wh.a"),
        link(".wh.c", ".wh..wh.plnk/1.2"),
        file("no/such/.wh.name", ""),
        file("no/.wh..wh..opq", ""),
        member(".wh.x", MemberKind::Char(0, 0)),
    ];
    assert_eq!(paths(&same(&[lower, upper])), [""]);
}

#[test]
fn hard_links_reach_into_lower_layers() {
    let lower =
        vec![file("a", "data").xattr("user.x", b"1"), file("gone", "kept"), symlink("s", "a")];
    let upper = vec![
        link("b", "a"),
        file("a", "other"),
        link("c", "a"),
        file(".wh.gone", ""),
        link("moved", "gone"),
        link("t", "s"),
    ];
    let found = same(&[lower, upper]);
    assert_eq!(paths(&found), ["", "a", "b", "c", "moved", "s", "t"]);
    assert!(found[2].starts_with("b: file \"data\"") && found[3] == "c: link to a", "{found:?}");
    assert!(found[4].starts_with("moved: file \"kept\"") && found[6] == "t: link to s");
}

#[test]
fn types_change_between_layers() {
    let base = vec![dir("d"), file("d/x", ""), file("f", ""), symlink("s", "d")];
    let upper = vec![file("d", "now a file"), dir("f"), file("f/y", ""), dir("s"), file("s/z", "")];
    let again = vec![dir("d"), symlink("f", "s"), member("s", MemberKind::Fifo)];
    let found = same(&[base.clone(), upper.clone()]);
    assert_eq!(paths(&found), ["", "d", "f", "f/y", "s", "s/z"]);
    assert_eq!(paths(&same(&[base, upper, again])), ["", "d", "f", "s"]);
}

#[test]
fn attributes_of_directories_are_those_of_the_last_entry() {
    let lower =
        vec![dir("./").mode(0o700), dir("d").mode(0o1777).xattr("user.old", b"1"), file("d/x", "")];
    let upper = vec![dir("d").owner(70_000, u32::MAX - 1).xattr("user.new", b"\0\xff")];
    let found = same(&[lower, upper]);
    assert!(found[0].contains("(448, 0, 0, 1000000)"), "{found:?}");
    assert!(found[1].contains("(493, 70000, 4294967294, 1000000)"), "{found:?}");
    let implied = same(&[vec![file("p/q/r", "").mode(0o4755)]]);
    assert!(implied[2].starts_with("p/q: Directory (493, 0, 0, 0)"), "{implied:?}");
}

#[test]
fn names_are_bytes() {
    let names: [&[u8]; 4] = [b"\xff\xfe", b"a\nb", b"..x", b"\x01"];
    let layer: Vec<_> = names.iter().map(|name| file(name, "x")).collect();
    let hidden = [b".wh.".to_vec(), names[0].to_vec()].concat();
    assert_eq!(same(std::slice::from_ref(&layer)).len(), 5);
    assert_eq!(same(&[layer, vec![file(hidden, "")]]).len(), 4);
}

#[test]
fn links_in_paths_are_followed_inside_of_the_root() {
    let lower = vec![
        dir("usr/lib"),
        symlink("lib", "usr/lib"),
        file("usr/lib/old", ""),
        symlink("up", "../../usr"),
        symlink("abs", "/usr/lib/../new"),
    ];
    let upper =
        vec![file("lib/x", ""), file("lib/.wh.old", ""), file("up/y", ""), file("abs/z", "")];
    let expected = [
        ": Directory",
        "abs: Symlink([47, 117, 115, 114, 47, 108, 105, 98, 47, 46, 46, 47, 110, 101, 119])",
        "lib: Symlink([117, 115, 114, 47, 108, 105, 98])",
        "up: Symlink([46, 46, 47, 46, 46, 47, 117, 115, 114])",
        "usr: Directory",
        "usr/lib: Directory",
        "usr/lib/x: file \"\"",
        "usr/new: Directory",
        "usr/new/z: file \"\"",
        "usr/y: file \"\"",
    ];
    holds(&[lower.clone(), upper], &expected);
    // A directory replaces the link, whose target is not affected.
    let upper = vec![file("lib/.wh.old", ""), dir("lib"), file("lib/x", "")];
    let directory = tempfile::tempdir().unwrap();
    layout_of(directory.path(), &[lower, upper]);
    let found = lines(&flatten(directory.path(), false).unwrap());
    assert!(found.iter().any(|line| line.starts_with("usr/lib/old")), "{found:?}");
    assert!(found.iter().any(|line| line.starts_with("lib/x")), "{found:?}");
}

#[test]
fn hard_link_storage_of_aufs_is_ignored() {
    let layer = vec![
        dir(".wh..wh.plnk"),
        file(".wh..wh.plnk/7.8", "shared"),
        file(".wh..wh.aufs", ""),
        dir(".wh..wh.orph"),
        link("a", ".wh..wh.plnk/7.8"),
        link("b", ".wh..wh.plnk/7.8"),
    ];
    holds(&[layer], &[": Directory", "a: file \"shared\"", "b: link to a"]);
}

#[test]
fn sparse_and_large_files_are_complete() {
    testkit::require!(Tool("tar"));
    let directory = tempfile::tempdir().unwrap();
    let (tree, layout) = (directory.path().join("tree"), directory.path().join("layout"));
    fs::create_dir_all(&tree).unwrap();
    fs::create_dir_all(&layout).unwrap();
    let sparse = fs::File::create(tree.join("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"end", 5 << 20).unwrap();
    sparse.set_len(8 << 20).unwrap();
    let large: Vec<u8> = (0..3_000_000_u32).map(|n| (n * 31 % 251) as u8).collect();
    fs::write(tree.join("large"), &large).unwrap();
    let out = testkit::command("tar")
        .args(["--create", "--format=posix", "--sparse", "--directory"])
        .arg(&tree)
        .arg(".")
        .output()
        .unwrap();
    for packing in super::common::PACKINGS {
        let manifest = super::common::image(&layout, &[(out.stdout.clone(), packing)], "amd64");
        super::common::layout(&layout, &[manifest]);
        let items = flatten(&layout, false).unwrap();
        let of = |path: &str| &items.iter().find(|item| item.path == path).unwrap().kind;
        let crate::common::ItemKind::File { data, .. } = of("large") else { panic!("no file") };
        assert!(*data == large, "{packing:?}");
        let crate::common::ItemKind::File { size, runs, data } = of("sparse") else {
            panic!("no file")
        };
        assert_eq!(*size, 8 << 20);
        assert!(runs.iter().map(|run| run.1).sum::<u64>() < 1 << 20, "{runs:?}");
        assert!(data.ends_with(b"end") || data.windows(3).any(|bytes| bytes == b"end"));
    }
}

/// Few names, so that layers overlap. Links lead to places outside of all paths.
fn any_member() -> impl Strategy<Value = Member> {
    let name = prop::sample::select(vec!["a", "b", "c"]);
    let path = prop::collection::vec(name, 1..4).prop_map(|names| names.join("/"));
    let hide = |path: &str| match path.rsplit_once('/') {
        Some((parent, name)) => format!("{parent}/.wh.{name}"),
        None => format!(".wh.{path}"),
    };
    (path.clone(), path, 0..12_u8, any::<u16>()).prop_map(move |(path, other, kind, salt)| {
        let member = match kind {
            0..=2 => dir(&path),
            3..=5 => file(&path, &format!("{path} {salt}")),
            6 => link(&path, &other),
            7 => member(&path, MemberKind::Fifo),
            8 => member(&path, MemberKind::Char(1, u32::from(salt % 9))),
            9 => file(format!("{path}/.wh..wh..opq"), ""),
            10 => link(&hide(&path), &hide(&other)),
            _ => file(hide(&path), ""),
        };
        member.mode(salt & 0o7777).owner(u32::from(salt) * 60_000, salt.into())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(testkit::effort(60, 200, 2000)))]
    #[test]
    fn random_layers_agree_with_the_model(
        layers in prop::collection::vec(prop::collection::vec(any_member(), 0..9), 1..5),
    ) {
        let directory = tempfile::tempdir().unwrap();
        layout_of(directory.path(), &layers);
        let found = flatten(directory.path(), false);
        match TreeModel::of(&layers) {
            Some(model) => prop_assert_eq!(lines(&found.unwrap()), model.items()),
            None => prop_assert!(found.is_err_and(|error| error.is_archive_fault())),
        }
    }
}
