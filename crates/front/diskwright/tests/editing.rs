//! The library on the reference model instead of an engine.

use std::fs;

use diskwright::Error;
use diskwright::build::Owner;
use diskwright::copy::{CopyOptions, CopyReport, From, Observer, into_image, out_of_image};
use diskwright::edit::{
    Editor, ModeChange, Move, MoveOptions, OwnerChange, Policy, SizeChange, SymlinkPolicy,
};
use testkit::model::Model;
use vfs::{FileSystem, Paths, Timestamp};

struct Quiet;

impl Observer for Quiet {
    fn file(&mut self, _: &[u8]) {}

    fn copied(&mut self, _: u64) {}

    fn warning(&mut self, message: &str) {
        panic!("{message}");
    }
}

fn editor(model: &Model) -> Editor<'_> {
    let time = Timestamp { sec: 5, nsec: 6 };
    Editor::new(Paths::new(model), Policy { owner: Owner { uid: 1, gid: 2 }, time })
}

fn names(model: &Model, path: &[u8]) -> Vec<String> {
    let entries = Paths::new(model).read_dir(path).unwrap();
    entries.into_iter().map(|entry| String::from_utf8(entry.name).unwrap()).collect()
}

#[test]
fn changes_are_made_by_path() {
    let model = Model::new();
    let editor = editor(&model);
    let paths = Paths::new(&model);
    editor.make_directory(b"/a/b/c", None, true).unwrap();
    editor.truncate(b"/a/f", SizeChange::To(10), true).unwrap();
    editor.symlink(b"f", b"/a/link", false).unwrap();
    editor.symlink(b"new", b"/a/dangling", false).unwrap();
    editor.hard_link(b"/a/f", b"/a/b", false).unwrap();
    assert_eq!(names(&model, b"/a"), ["b", "dangling", "f", "link"]);
    let f = paths.metadata(b"/a/b/f").unwrap();
    assert_eq!((f.links, f.uid, f.gid, f.size, f.mtime.sec), (2, 1, 2, 10, 5));
    editor.truncate(b"/a/dangling", SizeChange::Grow(3), true).unwrap();
    assert_eq!(paths.metadata(b"/a/new").unwrap().size, 3, "made where the link leads");
    editor.change_mode(b"/a/link", &ModeChange::parse("600").unwrap(), false).unwrap();
    assert_eq!(paths.metadata(b"/a/f").unwrap().permissions, 0o600);
    let owner = OwnerChange { uid: Some(7), gid: None };
    assert_eq!(editor.change_owner(b"/a", owner, SymlinkPolicy::Follow, true).unwrap(), 8);
    editor.set_xattr(b"/a/f", SymlinkPolicy::Follow, b"user.x", b"1").unwrap();
    let options = MoveOptions::default().mode(Move::Replace);
    editor.rename(b"/a/b/f", b"/a/f", options).unwrap();
    assert_eq!(paths.metadata(b"/a/f").unwrap().links, 1, "one of two names is gone");
    let mut gone = 0;
    editor.remove_all(b"/a", &mut || gone += 1).unwrap();
    assert_eq!((gone, names(&model, b"/")), (7, Vec::new()));
}

#[test]
fn a_tree_goes_in_around_and_out() {
    let scratch = testkit::scratch();
    let tree = scratch.path().join("tree");
    fs::create_dir_all(tree.join("d")).unwrap();
    fs::write(tree.join("d/f"), "contents").unwrap();
    fs::hard_link(tree.join("d/f"), tree.join("d/g")).unwrap();
    std::os::unix::fs::symlink("d/f", tree.join("link")).unwrap();
    let model = Model::new();
    let editor = editor(&model);
    let options = CopyOptions::default().recursive(true).preserve(true);
    let report = into_image(editor, From::Host(&tree), b"/new", options, &mut Quiet).unwrap();
    assert_eq!(report, CopyReport { files: 5, bytes: 8, shared: 0, left_out: 0 });
    let from = From::Image(Paths::new(&model), b"/new");
    into_image(editor, from, b"/new2", options, &mut Quiet).unwrap();
    let paths = Paths::new(&model);
    assert_eq!(paths.read(b"/new2/link", 100).unwrap(), b"contents");
    assert_eq!(paths.metadata(b"/new2/d/g").unwrap().links, 2);
    let inside = From::Image(Paths::new(&model), b"/new");
    let error = into_image(editor, inside, b"/new/d", options, &mut Quiet).unwrap_err();
    assert!(matches!(error, Error::File { source: vfs::Error::Invalid(_), .. }), "{error}");
    let out = scratch.path().join("out");
    out_of_image(paths, b"/new2", &out, options, &mut Quiet).unwrap();
    assert_eq!(fs::read(out.join("link")).unwrap(), b"contents");
}

#[test]
fn a_replacement_inherits_the_attributes_of_the_old_file() {
    let scratch = testkit::scratch();
    let file = scratch.path().join("f");
    fs::write(&file, "new").unwrap();
    let model = Model::new();
    let editor = editor(&model);
    editor.truncate(b"/f", SizeChange::To(100), true).unwrap();
    editor.change_mode(b"/f", &ModeChange::parse("4711").unwrap(), false).unwrap();
    editor.set_xattr(b"/f", SymlinkPolicy::Follow, b"user.kept", b"1").unwrap();
    editor.set_xattr(b"/f", SymlinkPolicy::Follow, b"security.capability", b"1").unwrap();
    editor.symlink(b"f", b"/link", false).unwrap();
    into_image(editor, From::Host(&file), b"/link", CopyOptions::default(), &mut Quiet).unwrap();
    let paths = Paths::new(&model);
    let f = paths.symlink_metadata(b"/f").unwrap();
    assert_eq!((f.permissions, f.size), (0o4711, 3));
    assert_eq!(model.get_xattr(f.ino, b"user.kept").unwrap(), b"1");
    assert!(model.get_xattr(f.ino, b"security.capability").is_err());
    assert_eq!(names(&model, b"/"), ["f", "link"], "no temporary names");
}
