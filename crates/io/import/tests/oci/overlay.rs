//! Separate layers, as lower directories of overlayfs.

use super::common::{Member, dir, file, flatten, layout_of, link, symlink};
use super::model::lines;

#[track_caller]
fn kept(layers: &[Vec<Member>]) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    layout_of(directory.path(), layers);
    lines(&flatten(directory.path(), true).unwrap())
}

const OPAQUE: &str = "[([116, 114, 117, 115, 116, 101, 100, 46, 111, 118, 101, 114, 108, 97, 121, 46, 111, 112, 97, 113, 117, 101], [121])]";

#[test]
fn layers_lie_side_by_side() {
    let lower = vec![
        dir("d").mode(0o700).owner(1, 2),
        file("d/x", ""),
        file("a", "data"),
        dir("o"),
        file("o/old", ""),
        symlink("l", "d"),
    ];
    let upper = vec![
        file("d/y", ""),
        file("d/.wh.x", ""),
        file("no/.wh.thing", ""),
        file("o/.wh..wh..opq", ""),
        file("l/z", ""),
        link("b", "a"),
    ];
    let expected = [
        ": Directory (493, 0, 0, 0) []",
        "0: Directory (493, 0, 0, 0) []",
        "0/a: file \"data\" (420, 0, 0, 1000000) []",
        "0/d: Directory (448, 1, 2, 1000000) []",
        "0/d/x: file \"\" (420, 0, 0, 1000000) []",
        "0/l: Symlink([100]) (420, 0, 0, 1000000) []",
        "0/o: Directory (493, 0, 0, 1000000) []",
        "0/o/old: file \"\" (420, 0, 0, 1000000) []",
        "1: Directory (493, 0, 0, 0) []",
        "1/a: file \"data\" (420, 0, 0, 1000000) []",
        "1/b: link to 1/a",
        // A directory that this layer does not list is the same as below.
        "1/d: Directory (448, 1, 2, 1000000) []",
        "1/d/x: CharDevice { major: 0, minor: 0 } (0, 0, 0, 0) []",
        "1/d/y: file \"\" (420, 0, 0, 1000000) []",
        "1/d/z: file \"\" (420, 0, 0, 1000000) []",
    ];
    let found = kept(&[lower, upper]);
    assert_eq!(found[..expected.len()], expected);
    assert_eq!(found[expected.len()..], [format!("1/o: Directory (493, 0, 0, 1000000) {OPAQUE}")]);
}

#[test]
fn a_directory_that_replaces_a_hidden_one_is_opaque() {
    let lower = vec![dir("a"), file("a/x", ""), dir("b"), file("b/x", "")];
    let upper = vec![dir("a").mode(0o711), file(".wh.a", ""), file("b/y", ""), file(".wh.b", "")];
    let found = kept(&[lower, upper]);
    let expected = [
        format!("1/a: Directory (457, 0, 0, 1000000) {OPAQUE}"),
        format!("1/b: Directory (493, 0, 0, 0) {OPAQUE}"),
        "1/b/y: file \"\" (420, 0, 0, 1000000) []".into(),
    ];
    assert_eq!(found[found.len() - 3..], expected);
}

#[test]
fn names_of_layers_are_in_order() {
    let layers: Vec<_> = (0..11).map(|n| vec![file("n", &n.to_string())]).collect();
    let found = kept(&layers);
    assert!(found[1].starts_with("00: ") && found.last().unwrap().starts_with("10/n"), "{found:?}");
}
