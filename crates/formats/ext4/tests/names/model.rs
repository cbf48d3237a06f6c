//! Random operations, each compared with the model.

use std::collections::HashMap;

use ext4::Ext4;
use testkit::model::Model;
use testkit::{KernelMount, MountOptions, Tree, require};
use vfs::{Error, FileSystem, FileType, Ino, RenameMode, Result};

use crate::names::common::{ImageFile, NEW, entries, later};

/// A file system and a model that receive the same operations.
struct ModelPair {
    fs: Ext4,
    model: Model,
    /// Maps the model's inodes to those of the file system.
    inos: HashMap<Ino, Ino>,
    /// Directories, as numbered by the model; some may have been removed.
    dirs: Vec<Ino>,
    files: Vec<Ino>,
    random: fastrand::Rng,
    names_max: u32,
    now: i64,
}

/// Returns the kind of result of an operation, without details that differ between implementations.
fn kind<T>(result: &Result<T>) -> String {
    match result {
        Ok(_) => "done".into(),
        Err(error) => format!("{error:?}").split(['(', ' ']).next().unwrap_or_default().into(),
    }
}

impl ModelPair {
    fn new(fs: Ext4, seed: u64, names_max: u32) -> Self {
        let model = Model::new();
        let mut pair = Self {
            fs,
            model,
            inos: HashMap::new(),
            dirs: Vec::new(),
            files: Vec::new(),
            random: fastrand::Rng::with_seed(seed),
            names_max,
            now: 0,
        };
        let top = pair.model.mkdir(pair.model.root(), b"top", &NEW).unwrap();
        pair.inos.insert(top, pair.fs.mkdir(pair.fs.root(), b"top", &NEW).unwrap());
        pair.dirs.push(top);
        pair
    }

    fn name(&mut self) -> Vec<u8> {
        let number = self.random.u32(..self.names_max);
        let mut name = format!("name-{number}-").into_bytes();
        // The length depends only on the number, so that names recur.
        let len = name.len() + (number as usize * 7919) % 97;
        name.resize(if number.is_multiple_of(11) { 255 } else { len }, b'x');
        name
    }

    fn dir(&mut self) -> Ino {
        self.dirs[self.random.usize(..self.dirs.len())]
    }

    fn there(&self, ino: Ino) -> Ino {
        self.inos[&ino]
    }

    #[track_caller]
    fn same<T>(&self, what: &str, model: &Result<T>, fs: &Result<T>) {
        assert_eq!(kind(model), kind(fs), "{what}: {:?}", fs.as_ref().err());
    }

    fn step(&mut self) {
        self.now += 1;
        match self.random.u32(..100) {
            0..35 => self.make(false),
            35..45 => self.make(true),
            45..52 => self.link(),
            52..72 => self.remove(false),
            72..80 => self.remove(true),
            _ => self.rename(),
        }
    }

    fn make(&mut self, is_dir: bool) {
        let (dir, name) = (self.dir(), self.name());
        let there = self.there(dir);
        let new = vfs::NewInode { parent_time: later(self.now), ..NEW };
        let [model, fs] =
            [(&self.model as &dyn FileSystem, dir), (&self.fs, there)].map(|(fs, dir)| {
                if is_dir { fs.mkdir(dir, &name, &new) } else { fs.create(dir, &name, &new) }
            });
        self.same("make", &model, &fs);
        if let (Ok(model), Ok(fs)) = (model, fs) {
            self.inos.insert(model, fs);
            if is_dir { self.dirs.push(model) } else { self.files.push(model) }
        }
    }

    fn link(&mut self) {
        let (dir, name) = (self.dir(), self.name());
        let Some(&file) = self.random.choice(&self.files) else { return };
        let over = self.random.bool();
        let link = |fs: &dyn FileSystem, file, dir| {
            let time = later(self.now);
            if over {
                fs.link_over(file, dir, &name, time)
            } else {
                fs.link(file, dir, &name, time)
            }
        };
        let model = link(&self.model, file, dir);
        let fs = link(&self.fs, self.there(file), self.there(dir));
        // The inode number of a deleted file may belong to another file in the file system under test.
        if self.model.attributes(file).is_ok() {
            self.same("link", &model, &fs);
        } else if fs.is_ok() {
            self.fs.unlink(self.there(dir), &name, later(self.now)).unwrap();
        }
    }

    fn remove(&mut self, is_dir: bool) {
        let dir = self.dir();
        let names = entries_or_none(&self.model, dir);
        let name = match self.random.choice(&names) {
            Some((name, _)) if self.random.u32(..10) > 0 => name.clone(),
            _ => self.name(),
        };
        let (there, time) = (self.there(dir), later(self.now));
        let [model, fs] =
            [(&self.model as &dyn FileSystem, dir), (&self.fs, there)].map(|(fs, dir)| {
                if is_dir { fs.rmdir(dir, &name, time) } else { fs.unlink(dir, &name, time) }
            });
        self.same("remove", &model, &fs);
    }

    fn rename(&mut self) {
        let (from, to) = (self.dir(), self.dir());
        let to = if self.random.bool() { from } else { to };
        let names = entries_or_none(&self.model, from);
        let Some((old, _)) = self.random.choice(&names).cloned() else { return };
        let new = match self.random.choice(entries_or_none(&self.model, to)) {
            Some((name, _)) if self.random.bool() => name,
            _ => self.name(),
        };
        let modes = [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange];
        let mode = modes[self.random.usize(..3)];
        let time = later(self.now);
        let model = self.model.rename((from, &old), (to, &new), mode, time);
        let there = (self.there(from), self.there(to));
        let fs = self.fs.rename((there.0, &old), (there.1, &new), mode, time);
        self.same("rename", &model, &fs);
    }

    /// Forgets removed inodes, and compares the remaining ones.
    fn compare(&mut self) {
        let known = |ino: &Ino| self.model.attributes(*ino).is_ok();
        self.dirs.retain(known);
        self.files.retain(known);
        for &dir in &self.dirs {
            let there = self.inos[&dir];
            let expected = entries(&self.model, dir);
            let expected: Vec<_> =
                expected.into_iter().map(|(name, ino)| (name, self.inos[&ino])).collect();
            assert_eq!(expected, entries(&self.fs, there));
            for (name, ino) in &expected {
                assert_eq!(self.fs.lookup(there, name).unwrap(), *ino);
            }
            let parent = self.model.lookup(dir, b"..").unwrap();
            if let Some(parent) = self.inos.get(&parent) {
                assert_eq!(self.fs.lookup(there, b"..").unwrap(), *parent);
            }
        }
        for &ino in self.dirs.iter().chain(&self.files) {
            let expected = self.model.attributes(ino).unwrap();
            let found = self.fs.attributes(self.inos[&ino]).unwrap();
            let of = |a: &vfs::Attributes| (a.file_type, a.links, a.mtime, a.ctime);
            assert_eq!(of(&expected), of(&found), "{ino}");
        }
    }
}

fn entries_or_none(fs: &dyn FileSystem, dir: Ino) -> Vec<(Vec<u8>, Ino)> {
    if fs.attributes(dir).is_ok() { entries(fs, dir) } else { Vec::new() }
}

fn run(image: &ImageFile, seed: u64, steps: usize, names_max: u32) -> Model {
    let mut pair = ModelPair::new(image.open(), seed, names_max);
    for step in 1..=steps {
        pair.step();
        // Inode numbers of removed directories are reused, so the directories must be forgotten soon.
        let known = |ino: &Ino| pair.model.attributes(*ino).is_ok();
        pair.dirs.retain(known);
        pair.files.retain(known);
        if step % (steps / 4) == 0 {
            pair.compare();
        }
    }
    pair.compare();
    image.close(pair.fs);
    pair.model
}

/// Asserts that the kernel shows the same tree as the model.
fn check_with_kernel(image: &ImageFile, model: &Model) {
    let mount = KernelMount::new(&image.path, &MountOptions::read_only("ext4"));
    let tree = Tree::of(mount.path());
    let expected = model.entries();
    for (path, ino, file_type) in expected.iter() {
        let node = tree.node(path);
        assert_eq!(node.kind == testkit::NodeKind::Directory, *file_type == FileType::Directory);
        assert_eq!(node.nlink, u64::from(model.attributes(*ino).unwrap().links));
    }
    // The model does not contain the root and lost+found.
    assert_eq!(tree.nodes.len(), expected.len() + 2);
}

#[test]
fn few_names_collide_often() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Mount("ext4"));
    for (seed, (block_size, features)) in [
        (1024, ""),
        (4096, ""),
        (1024, "^dir_index"),
        (4096, "^metadata_csum,^dir_index,^filetype"),
    ]
    .into_iter()
    .enumerate()
    {
        let image = ImageFile::ext4(
            block_size,
            if features.is_empty() { "dir_index" } else { features },
            32,
        );
        let model = run(&image, seed as u64, 6_000, 40);
        check_with_kernel(&image, &model);
    }
}

#[test]
fn large_directories_split_and_shrink() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Mount("ext4"));
    for (seed, block_size) in [(7, 1024), (8, 4096)] {
        let image = ImageFile::ext4(block_size, "dir_index", 64);
        let model = run(&image, seed, 12_000, 6_000);
        check_with_kernel(&image, &model);
    }
}

/// An index with two levels below the root: long names in small blocks.
#[test]
fn deep_indexes_keep_their_names() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    let image = ImageFile::ext4(1024, "dir_index,large_dir", 128);
    let fs = image.open();
    let dir = fs.mkdir(fs.root(), b"deep", &NEW).unwrap();
    let name = |n: u32| format!("{n:->200}").into_bytes();
    let count = 50_000;
    let file = fs.create(dir, b"file", &NEW).unwrap();
    for n in 0..count {
        fs.link(file, dir, &name(n), None).unwrap();
    }
    for n in (0..count).filter(|n| n % 3 > 0) {
        fs.unlink(dir, &name(n), None).unwrap();
    }
    for n in 0..count {
        assert_eq!(fs.lookup(dir, &name(n)).is_ok(), n % 3 == 0);
    }
    assert!(matches!(fs.unlink(dir, &name(1), None), Err(Error::NotFound)));
    let size = fs.attributes(dir).unwrap().size;
    for n in (0..count).filter(|n| n % 3 > 0) {
        fs.link(file, dir, &name(n), None).unwrap();
    }
    let grown = fs.attributes(dir).unwrap().size;
    assert!(grown < size + size / 4, "{size} to {grown}: the room of removed names serves again");
    image.close(fs);
}
