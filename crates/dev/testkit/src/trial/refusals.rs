//! Forbidden operations on names, which must leave no trace.

use vfs::{Error, FileSystem, Ino, RenameMode, Result};

use super::{NEW, Trial, entries, later};
use crate::model::Model;

/// Creates a small tree: files `a` and `b`, directories `d/e/f` and `empty`, and `d/g`.
fn fill(fs: &dyn FileSystem) -> Ino {
    let top = fs.mkdir(fs.root(), b"top", &NEW).unwrap();
    fs.create(top, b"a", &NEW).unwrap();
    fs.create(top, b"b", &NEW).unwrap();
    let d = fs.mkdir(top, b"d", &NEW).unwrap();
    let e = fs.mkdir(d, b"e", &NEW).unwrap();
    fs.mkdir(e, b"f", &NEW).unwrap();
    fs.create(d, b"g", &NEW).unwrap();
    fs.mkdir(top, b"empty", &NEW).unwrap();
    top
}

/// Splits a path below the top into its directory and last name.
fn split<'p>(fs: &dyn FileSystem, top: Ino, path: &'p str) -> (Ino, &'p [u8]) {
    let (dirs, name) = path.rsplit_once('/').unwrap_or(("", path));
    let dirs = dirs.split('/').filter(|name| !name.is_empty());
    (dirs.fold(top, |dir, name| fs.lookup(dir, name.as_bytes()).unwrap()), name.as_bytes())
}

/// Returns the complete state of the tree.
fn state(fs: &dyn FileSystem, dir: Ino) -> String {
    let mut attributes = fs.attributes(dir).unwrap();
    (attributes.size, attributes.blocks_512, attributes.generation) = (0, 0, 0);
    attributes.crtime = None;
    let mut text = format!("{attributes:?} {:?}\n", fs.lookup(dir, b".."));
    for (name, ino) in entries(fs, dir) {
        text.push_str(&format!("{} ", name.escape_ascii()));
        match fs.attributes(ino).unwrap().file_type {
            vfs::FileType::Directory => text.push_str(&state(fs, ino)),
            _ => text.push_str(&format!("{:?}\n", fs.attributes(ino).unwrap().links)),
        }
    }
    text
}

fn cause(result: &Result<()>) -> String {
    let Err(error) = result else { return "done".into() };
    format!("{error:?}").split('(').next().unwrap_or_default().into()
}

type RefusedOperation = Box<dyn Fn(&dyn FileSystem, Ino) -> Result<()>>;

fn rename(from: &'static str, to: &'static str, mode: RenameMode) -> RefusedOperation {
    Box::new(move |fs, top| fs.rename(split(fs, top, from), split(fs, top, to), mode, later(9)))
}

fn on(path: &'static str, what: fn(&dyn FileSystem, Ino, &[u8]) -> Result<()>) -> RefusedOperation {
    Box::new(move |fs, top| {
        let (dir, name) = split(fs, top, path);
        what(fs, dir, name)
    })
}

const LONG: &str = match std::str::from_utf8(&[b'n'; 256]) {
    Ok(name) => name,
    Err(_) => "",
};

fn removals() -> Vec<(&'static str, RefusedOperation)> {
    let unlink = |path| on(path, |fs, dir, name| fs.unlink(dir, name, later(9)));
    let rmdir = |path| on(path, |fs, dir, name| fs.rmdir(dir, name, later(9)));
    vec![
        ("NotFound", unlink("no")),
        ("IsADirectory", unlink("d")),
        ("IsADirectory", unlink(".")),
        ("IsADirectory", unlink("..")),
        ("NameTooLong", unlink(LONG)),
        ("NotADirectory", unlink("a/x")),
        ("NotFound", rmdir("no")),
        ("NotADirectory", rmdir("a")),
        ("NotEmpty", rmdir("d")),
        ("Invalid", rmdir(".")),
        ("NotEmpty", rmdir("..")),
        ("NameTooLong", rmdir(LONG)),
        ("NotADirectory", rmdir("a/x")),
    ]
}

fn additions() -> Vec<(&'static str, RefusedOperation)> {
    let link = |path| {
        on(path, |fs, dir, name| fs.link(fs.lookup(dir, b"a").unwrap_or(dir), dir, name, later(9)))
    };
    vec![
        ("Exists", link("b")),
        ("Exists", link(".")),
        ("Exists", link("..")),
        ("NameTooLong", link(LONG)),
        ("Invalid", link("")),
        ("IsADirectory", link("d/x")),
        ("Exists", on("a", |fs, dir, name| fs.create(dir, name, &NEW).map(drop))),
        ("Exists", on(".", |fs, dir, name| fs.mkdir(dir, name, &NEW).map(drop))),
        ("NotADirectory", on("a/x", |fs, dir, name| fs.mkdir(dir, name, &NEW).map(drop))),
        ("Invalid", on("x", |fs, dir, _| fs.create(dir, b"x/y", &NEW).map(drop))),
        ("NotFound", on("x", |fs, dir, name| fs.link(Ino(1 << 20), dir, name, None))),
    ]
}

fn renames() -> Vec<(&'static str, RefusedOperation)> {
    use RenameMode::{Exchange, NoReplace, Replace};
    vec![
        ("NotFound", rename("no", "x", Replace)),
        ("NotFound", rename("no", "a", Exchange)),
        ("NotFound", rename("a", "no", Exchange)),
        ("Exists", rename("a", "b", NoReplace)),
        ("Exists", rename("a", "a", NoReplace)),
        ("done", rename("a", "a", Replace)),
        ("done", rename("a", "a", Exchange)),
        ("done", rename("d", "d", Replace)),
        ("NotADirectory", rename("d", "a", Replace)),
        ("IsADirectory", rename("a", "empty", Replace)),
        ("IsADirectory", rename("a", "d", Replace)),
        ("NotEmpty", rename("empty", "d", Replace)),
        ("NotEmpty", rename("d/e", "d", Replace)),
        ("IsADirectory", rename("d/g", "d", Replace)),
        ("NotEmpty", rename("d/e/f", "d", Replace)),
        ("Invalid", rename("d", "d/x", Replace)),
        ("Invalid", rename("d", "d/e", Replace)),
        ("Invalid", rename("d", "d/e/f/x", Replace)),
        ("Invalid", rename("d", "d/e/x", NoReplace)),
        ("Invalid", rename("d", "d/e", Exchange)),
        ("Invalid", rename("d/e", "d", Exchange)),
        ("Invalid", rename("d/g", "d", Exchange)),
        ("Invalid", rename("d/e/f", "d", Exchange)),
        ("NameTooLong", rename("a", LONG, Replace)),
        ("Invalid", rename("a", "", Replace)),
        ("Invalid", rename(".", "x", Replace)),
        ("Invalid", rename("d/..", "x", Replace)),
        ("Invalid", rename("a", ".", Replace)),
        ("Invalid", rename("a", "..", Exchange)),
        ("Exists", rename("a", "..", NoReplace)),
        ("NotADirectory", rename("b", "a/x", Replace)),
    ]
}

/// Runs operations on names that must be rejected without a trace.
///
/// # Panics
/// If one is not.
pub fn refusals(trial: &Trial<'_>) {
    let device = trial.make();
    let (mounted, model) = (trial.open(device.clone()), Model::new());
    let fs = mounted.file_system();
    let (top, model_top) = (fill(fs), fill(&model));
    let free = fs.statfs().unwrap();
    let before = state(fs, top);
    let model_before = state(&model, model_top);
    let all = removals().into_iter().chain(additions()).chain(renames());
    for (number, (expected, operation)) in all.enumerate() {
        assert_eq!(cause(&operation(fs, top)), expected, "operation {number}");
        assert_eq!(state(fs, top), before, "operation {number}");
        // The model distinguishes fewer errors for invalid names.
        let model_result = operation(&model, model_top);
        assert_eq!(model_result.is_ok(), expected == "done", "operation {number}, model");
        assert_eq!(state(&model, model_top), model_before, "operation {number}, model");
    }
    assert_eq!(fs.statfs().unwrap(), free);
    trial.close(mounted, &device);
}

/// A file without a name gets one; an open file and an open directory outlive their names.
///
/// # Panics
/// If they do not.
pub fn unnamed(trial: &Trial<'_>) {
    let device = trial.make();
    let mounted = trial.open(device.clone());
    let fs = mounted.file_system();
    let top = fill(fs);
    let file = fs.create_unlinked(top, &NEW).unwrap();
    fs.create(top, b"now", &NEW).unwrap();
    assert!(matches!(fs.link_over(file, top, b"free", None), Err(Error::NotFound)));
    assert!(matches!(fs.link_over(file, top, b"empty", None), Err(Error::IsADirectory)));
    fs.link_over(file, top, b"now", later(1)).unwrap();
    fs.link_over(file, top, b"now", later(1)).unwrap();
    assert_eq!(fs.attributes(file).unwrap().links, 1);
    fs.close(file).unwrap();
    assert_eq!(fs.lookup(top, b"now").unwrap(), file);
    // An open file outlives its name, and a removed directory accepts no names.
    let empty = fs.lookup(top, b"empty").unwrap();
    for ino in [file, empty] {
        fs.open(ino).unwrap();
    }
    fs.unlink(top, b"now", later(2)).unwrap();
    fs.rmdir(top, b"empty", later(2)).unwrap();
    assert!(matches!(fs.create(empty, b"x", &NEW), Err(Error::NotFound)));
    assert!(matches!(fs.link(file, empty, b"x", None), Err(Error::NotFound)));
    assert_eq!(fs.attributes(file).unwrap().links, 0);
    for ino in [file, empty] {
        fs.close(ino).unwrap();
        assert!(matches!(fs.attributes(ino), Err(Error::NotFound)));
    }
    trial.close(mounted, &device);
}
