//! Lost, crossed or circular names and directories, created by debugfs.

use std::path::Path;

use testkit::{Mke2fs, require, scratch};

use super::tree::ReachableTree;
use super::{apply, describe, plan};
use crate::check::victim::{is_explained, judge};

/// Creates an image with directories and files, three levels deep, and one large directory.
fn image(work: &Path, features: &str) -> Vec<u8> {
    let tree = work.join("tree");
    std::fs::create_dir_all(tree.join("a/b/c")).unwrap();
    std::fs::create_dir_all(tree.join("many")).unwrap();
    for number in 0..2000 {
        std::fs::write(tree.join(format!("many/a-name-of-some-length-{number}")), b"").unwrap();
    }
    for name in ["a/file", "a/b/file", "a/b/c/file", "top", "other"] {
        std::fs::write(tree.join(name), name.repeat(3000)).unwrap();
    }
    let place = work.join("made");
    let mke2fs = Mke2fs::new("ext4").block_size(1024).inode_count(4096);
    mke2fs.features(features).populate(&tree).create(&place, 24 << 20);
    crate::check::sound::settle(&place);
    std::fs::read(&place).unwrap()
}

/// Changes an image by debugfs commands.
fn debugfs(place: &Path, image: &[u8], commands: &[&str]) -> Vec<u8> {
    std::fs::write(place, image).unwrap();
    for command in commands {
        let output = testkit::command("debugfs").args(["-w", "-R", command]).arg(place).output();
        assert!(output.expect("debugfs").status.success(), "{command}");
    }
    std::fs::read(place).unwrap()
}

/// Returns the inode of a path before the damage.
fn ino(place: &Path, path: &str) -> u64 {
    let output =
        testkit::command("debugfs").args(["-R", &format!("stat {path}")]).arg(place).output();
    let text = String::from_utf8_lossy(&output.expect("debugfs").stdout).into_owned();
    let number = text.split_whitespace().nth(1).expect("a number");
    number.parse().expect("a number")
}

/// Repairs an image, asserts that it is sound, and returns its tree.
fn repaired(image: &[u8], what: &str) -> ReachableTree {
    let made = plan(image).expect("an image that can be repaired");
    let text = format!("{what}\n{}", describe(&made));
    assert!(made.left.is_empty(), "{text}");
    let after = apply(image, &made.steps);
    if let Some(remarks) = judge(&after).filter(|text| !is_explained(text)) {
        panic!("{text}{remarks}");
    }
    let again = plan(&after).expect("a sound image");
    assert!(again.steps.is_empty() && again.findings.is_empty(), "{text}{}", describe(&again));
    ReachableTree::of(&after).expect("a tree")
}

/// Returns the inode at a path.
fn at(tree: &ReachableTree, path: &[&str]) -> Option<u64> {
    path.iter().try_fold(2, |directory, name| {
        tree.names.get(&(directory, name.as_bytes().to_vec())).copied()
    })
}

/// Asserts that every inode survives with its contents, under any name.
fn assert_all_there(before: &ReachableTree, after: &ReachableTree, what: &str) {
    let lost: Vec<_> = before
        .inodes
        .iter()
        .filter(|(ino, held)| !after.inodes.get(ino).is_some_and(|now| held.is_same(now, true)))
        .map(|(ino, _)| *ino)
        .collect();
    assert!(lost.is_empty(), "{what}: {lost:?}");
}

/// An image with its tree and a work directory.
struct Bench {
    work: tempfile::TempDir,
    image: Vec<u8>,
    before: ReachableTree,
}

impl Bench {
    fn new(features: &str) -> Self {
        let work = scratch();
        let image = image(work.path(), features);
        let before = ReachableTree::of(&image).expect("a sound image");
        Self { work, image, before }
    }

    fn place(&self) -> std::path::PathBuf {
        self.work.path().join("image")
    }

    fn ino(&self, path: &str) -> u64 {
        std::fs::write(self.place(), &self.image).unwrap();
        ino(&self.place(), path)
    }

    fn damaged(&self, commands: &[&str]) -> Vec<u8> {
        debugfs(&self.place(), &self.image, commands)
    }

    fn repaired(&self, commands: &[&str]) -> ReachableTree {
        let damaged = self.damaged(commands);
        repaired(&damaged, &format!("{commands:?}"))
    }
}

#[test]
fn directories_and_files_without_names_are_found_again() {
    require!(Tool("debugfs"), Tool("mke2fs"), Tool("e2fsck"));
    for features in ["^has_journal", "^has_journal,^metadata_csum", "^has_journal,^extents,^64bit"]
    {
        let bench = Bench::new(features);
        let (b, file, top) = (bench.ino("/a/b"), bench.ino("/a/file"), bench.ino("/top"));
        let commands = ["unlink /a/b", "unlink /a/file", "unlink /top"];
        let after = bench.repaired(&commands);
        assert_all_there(&bench.before, &after, features);
        assert_eq!(at(&after, &["a", "b"]), Some(b), "the name is still to be read: {features}");
        assert_eq!(at(&after, &["lost+found", &format!("#{file}")]), Some(file));
        assert_eq!(at(&after, &["lost+found", &format!("#{top}")]), Some(top));
    }
}

#[test]
fn cycles_are_broken() {
    require!(Tool("debugfs"), Tool("mke2fs"), Tool("e2fsck"));
    let bench = Bench::new("^has_journal");
    let a = bench.ino("/a");
    let after = bench.repaired(&["link /a /a/b/c/a", "unlink /a"]);
    assert_all_there(&bench.before, &after, "a circle");
    assert_eq!(after.names.values().filter(|ino| **ino == a).count(), 1);
}

#[test]
fn the_right_name_of_a_directory_is_kept() {
    require!(Tool("debugfs"), Tool("mke2fs"), Tool("e2fsck"));
    let bench = Bench::new("^has_journal");
    let c = bench.ino("/a/b/c");
    let after = bench.repaired(&["link /a/b/c /another", "link /a/b/c /a/third"]);
    assert_all_there(&bench.before, &after, "several names");
    assert_eq!(at(&after, &["a", "b", "c"]), Some(c));
    assert_eq!(after.names.values().filter(|ino| **ino == c).count(), 1);
}

#[test]
fn lost_found_and_the_root_are_recreated() {
    require!(Tool("debugfs"), Tool("mke2fs"), Tool("e2fsck"));
    for features in ["^has_journal", "^has_journal,^metadata_csum", "^has_journal,^extents,^64bit"]
    {
        let bench = Bench::new(features);
        let after = bench.repaired(&["rmdir /lost+found", "unlink /top"]);
        assert!(at(&after, &["lost+found"]).is_some());
        let top = bench.ino("/top");
        assert_eq!(at(&after, &["lost+found", &format!("#{top}")]), Some(top));
        let after = bench.repaired(&["clri <2>"]);
        let kept = |ino: &u64| *ino != 2;
        let lost: Vec<_> = bench
            .before
            .inodes
            .iter()
            .filter(|(ino, held)| {
                kept(ino) && !after.inodes.get(ino).is_some_and(|now| held.is_same(now, true))
            })
            .collect();
        assert!(lost.is_empty(), "{features}: {lost:?}");
        let after = bench.repaired(&["clri <11>"]);
        assert!(at(&after, &["lost+found"]).is_some());
    }
}

#[test]
fn large_directories_lose_no_name() {
    require!(Tool("debugfs"), Tool("mke2fs"), Tool("e2fsck"));
    for features in ["^has_journal", "^has_journal,^metadata_csum", "^has_journal,^dir_index"] {
        let bench = Bench::new(features);
        let size = 1024;
        let many = bench.ino("/many");
        let layout = crate::common::layout::ImageStructures::of(&bench.image);
        let blocks: Vec<_> = layout
            .structures
            .iter()
            .filter(|structure| structure.ino.0 == many)
            .map(|structure| (structure.kind, layout.block_range(structure.block)))
            .collect();
        for (kind, range) in blocks.iter().step_by(9) {
            let mut image = bench.image.clone();
            // The header of an entry in the middle of a block, or of the index.
            image[range.start + size / 2..range.start + size / 2 + 12].fill(0xff);
            let what = format!("{features} {kind:?}");
            let after = repaired(&image, &what);
            let names = after.names.keys().filter(|(directory, _)| *directory == many).count();
            // The damaged entry may be lost, and another whose name contained it.
            assert!(names >= 2000 - 3, "{what}: {names}");
            assert_all_there(&bench.before, &after, &what);
        }
    }
}

#[test]
fn files_that_share_blocks_get_copies() {
    require!(Tool("debugfs"), Tool("mke2fs"), Tool("e2fsck"));
    for features in ["^has_journal", "^has_journal,^metadata_csum", "^has_journal,^extents,^64bit"]
    {
        let bench = Bench::new(features);
        let layout = crate::common::layout::ImageStructures::of(&bench.image);
        let [from, to] =
            ["/a/file", "/top"].map(|path| layout.slot_range(vfs::Ino(bench.ino(path))));
        let mut image = bench.image.clone();
        // Copies size, blocks and map of another file.
        for range in [0x4..0x8, 0x1c..0x20, 0x28..0x64] {
            image.copy_within(
                from.start + range.start..from.start + range.end,
                to.start + range.start,
            );
        }
        layout.seal(&mut image);
        let after = repaired(&image, features);
        let (file, top) = (bench.ino("/a/file"), bench.ino("/top"));
        assert_eq!(after.inodes[&file], bench.before.inodes[&file], "{features}");
        assert_eq!(after.inodes[&top].contents, after.inodes[&file].contents, "{features}");
        assert_eq!(at(&after, &["top"]), Some(top));
    }
}
