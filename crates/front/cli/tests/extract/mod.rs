//! Extraction restores everything exactly, and writes nothing outside its destination.

mod host_names;
mod load;

use std::fs;
use std::io::Cursor;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;

use diskwright::extract::{ExtractOptions, ExtractReport, extract_to_directory, extract_to_tar};
use diskwright::{Error, Outcome};
use import::{Options, TarSource};
use load::{Warnings, load};
use testkit::model::Model;
use testkit::{Ignore, Sample, Tree, assert_same, sample_tree, scratch};
use vfs::{FileSystem, Ino, NewInode, Paths, Timestamp};

const NEW: NewInode = NewInode {
    permissions: 0o755,
    uid: 0,
    gid: 0,
    time: Timestamp { sec: 1_000, nsec: 7 },
    parent_time: Some(Timestamp { sec: 1_000, nsec: 7 }),
};

/// Ignores only properties that extraction cannot set.
fn exactly() -> Ignore {
    Ignore { lost_found: false, ..Ignore::default() }
}

fn without_sockets(tree: &mut Tree) {
    let sockets = tree.nodes.iter().filter(|(_, node)| node.kind == testkit::NodeKind::Socket);
    for path in sockets.map(|(path, _)| path.clone()).collect::<Vec<_>>() {
        tree.nodes.remove(&path);
    }
}

fn to_directory(fs: &Model, to: &Path, options: &ExtractOptions) -> (ExtractReport, Vec<String>) {
    let mut warnings = Warnings::default();
    let report = extract_to_directory(Paths::new(fs), to, options, &mut warnings);
    (report.unwrap(), warnings.0)
}

fn to_tar(fs: &Model, options: &ExtractOptions) -> (Vec<u8>, ExtractReport, Vec<String>) {
    let (mut archive, mut warnings) = (Vec::new(), Warnings::default());
    let report = extract_to_tar(Paths::new(fs), &mut archive, options, &mut warnings);
    (archive, report.unwrap(), warnings.0)
}

/// Creates a tree with every kind of file, and a model with the same contents.
fn sample(dir: &Path) -> (Tree, Model) {
    fs::create_dir(dir).unwrap();
    let sample = Sample { wide_names: 300, ..Sample::default() };
    sample_tree(dir, &sample);
    // Reading contents changes access times, so the model is loaded first.
    let model = load(&mut *import::open(dir, &Options::default()).unwrap());
    (Tree::of(dir), model)
}

#[test]
fn a_directory_is_restored_exactly() {
    testkit::require!(Root);
    let scratch = scratch();
    let (expected, model) = sample(&scratch.path().join("source"));
    let to = scratch.path().join("to");
    let (report, warnings) = to_directory(&model, &to, &ExtractOptions::default());
    assert_eq!((warnings, report.outcome()), (Vec::new(), Outcome::Done));
    assert_eq!(report.files, expected.nodes.len() as u64);
    assert_same(&expected, &Tree::of(&to), &exactly());
}

#[test]
fn an_archive_is_read_back_exactly() {
    testkit::require!(Root);
    let scratch = scratch();
    let (mut expected, model) = sample(&scratch.path().join("source"));
    let (archive, report, warnings) = to_tar(&model, &ExtractOptions::default());
    let nodes_before = expected.nodes.len();
    without_sockets(&mut expected);
    assert_eq!(warnings.len(), nodes_before - expected.nodes.len(), "{warnings:?}");
    assert_eq!(report.left_out, warnings.len() as u64);
    assert_eq!(archive, to_tar(&model, &ExtractOptions::default()).0, "the same every time");
    let mut source = TarSource::from_stream(Cursor::new(archive), "archive").unwrap();
    let again = load(&mut source);
    let to = scratch.path().join("to");
    to_directory(&again, &to, &ExtractOptions::default());
    assert_same(&expected, &Tree::of(&to), &exactly());
    for path in ["", "/etc"] {
        let one = |fs: &Model| Paths::new(fs).symlink_metadata(path.as_bytes()).ok();
        let key = |a: vfs::Attributes| (a.ctime, a.atime, a.mtime, a.permissions);
        assert_eq!(one(&again).map(key), one(&model).map(key), "times archives alone keep");
    }
}

#[test]
fn gnu_tar_restores_an_archive_exactly() {
    testkit::require!(Root, Tool("tar"));
    let scratch = scratch();
    let (mut expected, model) = sample(&scratch.path().join("source"));
    let (archive, ..) = to_tar(&model, &ExtractOptions::default());
    let (file, to) = (scratch.path().join("a.tar"), scratch.path().join("to"));
    fs::write(&file, archive).unwrap();
    fs::create_dir(&to).unwrap();
    let mut tar = testkit::command("tar");
    tar.args(["--xattrs", "--xattrs-include=*", "--acls", "--numeric-owner"]);
    // The sample contains times in the future.
    tar.args(["--warning=no-timestamp", "-xpf"]);
    let output = tar.arg(&file).arg("-C").arg(&to).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
    without_sockets(&mut expected);
    assert_same(&expected, &Tree::of(&to), &exactly());
}

#[test]
fn one_file_or_directory_comes_without_what_is_above() {
    let scratch = scratch();
    let model = Model::new();
    let paths = Paths::new(&model);
    paths.create_dir_all(b"/a/b", &NEW).unwrap();
    paths.write(b"/a/b/file", b"x", &NEW).unwrap();
    for (number, path, made) in [(0, "/a", "b/file"), (1, "a/b/", "file"), (2, "/a/b/file", "file")]
    {
        let to = scratch.path().join(number.to_string());
        let options = ExtractOptions::default().path(path);
        to_directory(&model, &to, &options);
        assert_eq!(fs::read(to.join(made)).unwrap(), b"x", "{path}");
        let (archive, ..) = to_tar(&model, &options);
        let again = load(&mut TarSource::from_stream(Cursor::new(archive), "").unwrap());
        assert_eq!(Paths::new(&again).read(made.as_bytes(), 1).unwrap(), b"x", "{path}");
    }
    let options = ExtractOptions::default().path("/nothing");
    let to = scratch.path().join("3");
    let error = extract_to_directory(paths, &to, &options, &mut Warnings::default()).unwrap_err();
    assert_eq!(
        (error.to_string().as_str(), error.outcome()),
        ("/nothing: no such file or directory", Outcome::No)
    );
    assert!(!to.exists());
}

#[test]
fn a_destination_with_files_in_it_needs_force() {
    let scratch = scratch();
    let to = scratch.path().join("to");
    fs::create_dir_all(to.join("dir")).unwrap();
    fs::write(to.join("file"), "old").unwrap();
    std::os::unix::fs::symlink(scratch.path(), to.join("link")).unwrap();
    let model = Model::new();
    let paths = Paths::new(&model);
    for path in ["file", "dir/new", "link/inside"] {
        paths.create_dir_all(vfs::path::split_last(path.as_bytes()).unwrap().0, &NEW).unwrap();
        paths.write(path.as_bytes(), b"new", &NEW).unwrap();
    }
    let refused =
        extract_to_directory(paths, &to, &ExtractOptions::default(), &mut Warnings::default());
    let error = refused.unwrap_err();
    assert!(error.to_string().contains("use --force"), "{error}");
    assert_eq!(error.outcome(), Outcome::Io);
    let force = ExtractOptions::default().force(true);
    to_directory(&model, &to, &force);
    assert_eq!(fs::read(to.join("file")).unwrap(), b"new");
    assert!(fs::symlink_metadata(to.join("link")).unwrap().is_dir(), "replaced, not followed");
    assert!(!scratch.path().join("inside").exists());
}

#[test]
fn names_and_links_of_a_hostile_image_stay_inside() {
    let scratch = scratch();
    let outside = scratch.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let target = outside.as_os_str().as_encoded_bytes();
    for name in [&b"../outside/x"[..], b"/etc/x", b"a/../../outside/x"] {
        let model = Model::new();
        let ino = model.create(model.root(), b"file", &NEW).unwrap();
        model.insert_unchecked(model.root(), name, ino);
        let to = scratch.path().join("names");
        let options = ExtractOptions::default().force(true);
        let result =
            extract_to_directory(Paths::new(&model), &to, &options, &mut Warnings::default());
        assert_eq!(result.unwrap_err().outcome(), Outcome::Image);
    }
    // A link and a directory of the same name: the directory's files must not be written through
    // the link.
    for force in [false, true] {
        let model = Model::new();
        let root = model.root();
        model.symlink(root, b"twin", target, &NEW).unwrap();
        let dir = model.mkdir(root, b"dir", &NEW).unwrap();
        model.create(dir, b"x", &NEW).unwrap();
        let to = scratch.path().join(format!("twin-{force}"));
        let options = ExtractOptions::default().force(force);
        let twins = Tampered { model, twin: Some(dir), broken: None };
        let result =
            extract_to_directory(Paths::new(&twins), &to, &options, &mut Warnings::default());
        assert_eq!(result.unwrap_err().outcome(), Outcome::Image);
    }
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

/// A model with two kinds of damage.
struct Tampered {
    model: Model,
    /// The directory that is listed as `twin`, whatever its name.
    twin: Option<Ino>,
    /// The file whose first MiB cannot be read.
    broken: Option<Ino>,
}

/// Forwards methods to the model.
macro_rules! pass_on {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($argument: $type),*) -> vfs::Result<$result> {
            self.model.$name($($argument),*)
        })*
    };
}

impl FileSystem for Tampered {
    pass_on! {
        statfs() -> vfs::StatFs;
        lookup(dir: Ino, name: &[u8]) -> Ino;
        attributes(ino: Ino) -> vfs::Attributes;
        set_attributes(ino: Ino, change: &vfs::SetAttributes) -> ();
        create(dir: Ino, name: &[u8], new: &NewInode) -> Ino;
        mkdir(dir: Ino, name: &[u8], new: &NewInode) -> Ino;
        mknod(dir: Ino, name: &[u8], file: vfs::SpecialFile, new: &NewInode) -> Ino;
        symlink(dir: Ino, name: &[u8], target: &[u8], new: &NewInode) -> Ino;
        readlink(ino: Ino) -> Vec<u8>;
        create_unlinked(dir: Ino, new: &NewInode) -> Ino;
        link(ino: Ino, dir: Ino, name: &[u8], time: Option<vfs::Timestamp>) -> ();
        link_over(ino: Ino, dir: Ino, name: &[u8], time: Option<vfs::Timestamp>) -> ();
        unlink(dir: Ino, name: &[u8], time: Option<vfs::Timestamp>) -> ();
        rmdir(dir: Ino, name: &[u8], time: Option<vfs::Timestamp>) -> ();
        rename(
            from: (Ino, &[u8]),
            to: (Ino, &[u8]),
            mode: vfs::RenameMode,
            time: Option<vfs::Timestamp>
        ) -> ();
        rename_with_whiteout(
            from: (Ino, &[u8]),
            to: (Ino, &[u8]),
            mode: vfs::RenameMode,
            whiteout: &NewInode,
            time: Option<vfs::Timestamp>
        ) -> ();
        open(ino: Ino) -> ();
        close(ino: Ino) -> ();
        remove_xattr(ino: Ino, name: &[u8]) -> ();
        fsync(ino: Ino) -> ();
        write(ino: Ino, offset: u64, data: &[u8], time: Option<vfs::Timestamp>) -> ();
        allocate(ino: Ino, offset: u64, len: u64, mode: vfs::AllocateMode) -> ();
        truncate(ino: Ino, size: u64, time: Option<vfs::Timestamp>) -> ();
        extent_map(
            ino: Ino,
            offset: u64,
            len: u64,
            each: &mut dyn FnMut(vfs::MappedExtent) -> ControlFlow<()>
        ) -> ();
        get_xattr(ino: Ino, name: &[u8]) -> Vec<u8>;
        set_xattr(ino: Ino, name: &[u8], value: &[u8]) -> ();
        list_xattrs(ino: Ino, each: &mut dyn FnMut(&[u8])) -> ();
        sync() -> ();
    }

    fn root(&self) -> Ino {
        self.model.root()
    }

    fn readdir(
        &self,
        dir: Ino,
        from: vfs::Cookie,
        each: &mut dyn FnMut(vfs::DirEntry<'_>) -> ControlFlow<()>,
    ) -> vfs::Result<()> {
        self.model.readdir(dir, from, &mut |mut entry| {
            if self.twin == Some(entry.ino) && entry.name != b"." {
                entry.name = b"twin";
            }
            each(entry)
        })
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> vfs::Result<usize> {
        if self.broken == Some(ino) && offset < 1 << 20 {
            return Err(vfs::Corruption::new("extent tree node", "bad").of_inode(ino.0).into());
        }
        self.model.read(ino, offset, buf)
    }
}

#[test]
fn damage_ends_the_operation_by_default() {
    let scratch = scratch();
    let model = Model::new();
    let ino = model.create(model.root(), b"broken", &NEW).unwrap();
    model.write(ino, 0, &[7; (1 << 20) + 5], None).unwrap();
    let fine = model.create(model.root(), b"fine", &NEW).unwrap();
    model.write(fine, 0, b"fine", None).unwrap();
    model.insert_unchecked(model.root(), b"gone", Ino(99));
    let broken = Tampered { model, twin: None, broken: Some(ino) };
    let (paths, to) = (Paths::new(&broken), scratch.path().join("stops"));
    let stop = ExtractOptions::default();
    let error = extract_to_directory(paths, &to, &stop, &mut Warnings::default()).unwrap_err();
    let expected = format!("/broken: damaged extent tree node, inode {}: bad", ino.0);
    assert_eq!((error.to_string(), error.outcome()), (expected.clone(), Outcome::Image));
    assert!(matches!(error, Error::File { .. }));

    let go_on = stop.keep_going(true);
    let (mut warnings, to) = (Warnings::default(), scratch.path().join("goes-on"));
    let report = extract_to_directory(paths, &to, &go_on, &mut warnings).unwrap();
    assert_eq!(warnings.0[0], expected);
    // Users other than root also get a warning about owners.
    let of_files = warnings.0.iter().filter(|text| !text.starts_with("owners are not restored"));
    assert_eq!(of_files.count(), 2, "{:?}", warnings.0);
    assert_eq!((report.unreadable, report.outcome()), (2, Outcome::Image));
    let contents = [vec![0; 1 << 20], vec![7; 5]].concat();
    assert_eq!(fs::read(to.join("broken")).unwrap(), contents);
    assert_eq!(fs::read(to.join("fine")).unwrap(), b"fine");

    let mut archive = Vec::new();
    let report = extract_to_tar(paths, &mut archive, &go_on, &mut Warnings::default()).unwrap();
    assert_eq!(report.unreadable, 2);
    let again = load(&mut TarSource::from_stream(Cursor::new(archive), "").unwrap());
    assert_eq!(Paths::new(&again).read(b"broken", 2 << 20).unwrap(), contents);
    assert_eq!(Paths::new(&again).read(b"fine", 9).unwrap(), b"fine");
}

#[test]
fn trees_deeper_than_there_are_files_to_open_come_back() {
    let scratch = scratch();
    let model = Model::new();
    let mut dir = model.root();
    for depth in 0..2000 {
        dir = model.mkdir(dir, format!("d{depth}").as_bytes(), &NEW).unwrap();
        if depth % 100 == 99 {
            let file = model.create(dir, b"z", &NEW).unwrap();
            model.link(file, model.root(), format!("link{depth}").as_bytes(), None).unwrap();
        }
    }
    let to = scratch.path().join("to");
    let (report, _) = to_directory(&model, &to, &ExtractOptions::default());
    assert_eq!(report.files, 2000 + 40 + 1);
    // Such a path is too long for removal by path.
    assert!(Command::new("rm").arg("-rf").arg(&to).status().unwrap().success());
}
