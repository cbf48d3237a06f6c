//! Directories that no file system creates: with duplicate names, `..`, or names that contain a
//! slash or NUL. Commands must report them, and must not extract such entries.

use std::fs;
use std::path::Path;

use testkit::{Format, scratch};

use super::common::run;

use super::tamper::{FORMATS, build, change_inode, file_mode, rename};
use crate::program::{fails, ok};

/// Commands that walk directories. `rm` comes last.
const COMMANDS: [&str; 9] = [
    "ls -lR a.img",
    "ls a.img /pub",
    "ls --json a.img /pub",
    "find a.img",
    "find a.img /pub --name nothing",
    "cp -r a.img:/pub out",
    "extract a.img out.tar",
    "chmod -R a.img 755 /pub",
    "rm -r a.img /pub",
];

/// Creates `pub` with `names`, and directories that sort before and after it.
fn source(dir: &Path) -> std::path::PathBuf {
    let source = dir.join("source");
    for name in ["before", "pub", "zz-after"] {
        fs::create_dir_all(source.join(name)).unwrap();
        fs::write(source.join(name).join("fine"), name).unwrap();
    }
    source
}

/// Asserts that each command ends with status 3 and reports the reason.
fn all_commands_say(dir: &Path, said: &str) {
    for command in COMMANDS {
        let _ = fs::remove_dir_all(dir.join("out"));
        let _ = fs::remove_file(dir.join("out.tar"));
        let told = fails(dir, command, 3);
        assert!(told.contains(said), "{command}: {told}");
    }
}

/// Extracts with `--keep-going`. Returns the paths in the directory and those in the archive.
fn extracted(dir: &Path, said: &str) -> [Vec<String>; 2] {
    let told = fails(dir, "extract --keep-going a.img out", 3);
    assert!(told.contains(said), "{told}");
    let told = fails(dir, "extract --keep-going a.img out.tar", 3);
    assert!(told.contains(said), "{told}");
    let json = run(dir, &["extract", "--keep-going", "--json", "--force", "a.img", "out.tar"]);
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(report["unreadable"], 1, "{report}");
    let tree = testkit::Tree::of(dir.join("out"));
    let tree = tree.nodes.keys().map(|path| String::from_utf8(path.clone()).unwrap()).collect();
    let mut archive = import::open(&dir.join("out.tar"), &import::Options::default()).unwrap();
    let mut paths = Vec::new();
    while let Some(entry) = archive.next_entry().unwrap() {
        paths.push(String::from_utf8(entry.path).unwrap());
    }
    [tree, paths]
}

#[test]
fn a_duplicate_name_is_damage_and_only_the_first_is_extracted() {
    for (format, options) in FORMATS {
        for many in [0, 300] {
            println!("{format}, {many} other names");
            let dir = scratch();
            let source = source(dir.path());
            let outside = dir.path().join("outside");
            fs::create_dir(&outside).unwrap();
            std::os::unix::fs::symlink(&outside, source.join("pub/the-twin-a")).unwrap();
            fs::create_dir(source.join("pub/the-twin-b")).unwrap();
            fs::write(source.join("pub/the-twin-b/escaped"), "").unwrap();
            for number in 0..many {
                fs::write(source.join(format!("pub/another name {number}")), "").unwrap();
            }
            let image = build(dir.path(), options);
            rename(&image, "the-twin-b", "the-twin-a");
            for paths in extracted(dir.path(), "a second entry with this name") {
                let twins = paths.iter().filter(|path| path.contains("twin")).count();
                assert_eq!(twins, 1, "{paths:?}");
                for path in ["before/fine", "pub/fine", "zz-after/fine"] {
                    assert!(paths.iter().any(|found| found == path), "{path} in {paths:?}");
                }
                assert!(!paths.iter().any(|path| path.contains("escaped")), "{paths:?}");
            }
            all_commands_say(dir.path(), "a second entry with this name");
            assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        }
    }
}

#[test]
fn wrong_names_are_reported_and_counted() {
    for (format, options) in FORMATS {
        for (from, to, said) in [
            ("x1", "..", "a second entry"),
            ("name-with-slash", "name/with-slash", " name"),
            ("name-with-a-nul", "name-with\0a-nul", " name"),
        ] {
            println!("{format}: {from}");
            let dir = scratch();
            let source = source(dir.path());
            fs::write(source.join("pub").join(from), "").unwrap();
            let image = build(dir.path(), options);
            if from == "x1" {
                rename_short(&image, from, to);
            } else {
                rename(&image, from, to);
            }
            for paths in extracted(dir.path(), said) {
                for path in ["before/fine", "zz-after/fine"] {
                    assert!(paths.iter().any(|found| found == path), "{path} in {paths:?}");
                }
                assert!(!paths.iter().any(|path| path.contains("slash") || path.contains("nul")));
            }
            all_commands_say(dir.path(), said);
        }
    }
}

/// Renames an entry whose name is too short to be found alone. Searches it together with the
/// adjacent fields of its entry.
fn rename_short(image: &Path, from: &str, to: &str) {
    let [from, to] = match Format::of(image) {
        // Length and type precede the name.
        Format::Ext => [from, to].map(|name| format!("\u{2}\u{1}{name}")),
        // The type follows the name.
        Format::Xfs => [from, to].map(|name| format!("{name}\u{1}\0")),
    };
    rename(image, &from, &to);
}

#[test]
fn a_root_that_is_not_a_directory_is_damage() {
    for (format, options) in FORMATS {
        let dir = scratch();
        source(dir.path());
        let image = build(dir.path(), options);
        println!("{format}: a file");
        let (at, mode) = file_mode(&image);
        let sound = fs::read(&image).unwrap();
        change_inode(dir.path(), "/", at, &mode);
        rootless(dir.path(), "damaged");
        println!("{format}: no type, not in use, or a version that there is not");
        let damages: &[(usize, &[u8])] = match Format::of(&image) {
            Format::Ext => &[(0, &[0, 0]), (26, &[0, 0]), (40, &[0xff; 20])],
            Format::Xfs => &[(2, &[0, 0]), (4, &[1]), (4, &[9]), (5, &[7])],
        };
        for (at, with) in damages {
            fs::write(&image, &sound).unwrap();
            change_inode(dir.path(), "/", *at, with);
            rootless(dir.path(), "damaged");
        }
    }
}

/// Asserts that an image without a root directory rejects commands and changes, and that its
/// information can still be shown.
fn rootless(dir: &Path, said: &str) {
    let image = dir.join("a.img");
    let before = fs::read(&image).unwrap();
    for command in [
        "ls a.img",
        "ls -lR a.img",
        "find a.img",
        "cat a.img /pub/fine",
        "extract a.img out",
        "extract --keep-going a.img out.tar",
        "cp -r a.img:/ out",
        "mkdir a.img /new",
        "chmod -R a.img 755 /",
        "rm -r a.img /pub",
        "recover a.img",
        "mount a.img .",
        "mount -o ro a.img .",
        "mount --stale a.img .",
    ] {
        let told = fails(dir, command, 3);
        assert!(told.contains(said), "{command}: {told}");
    }
    assert!(fs::read(&image).unwrap() == before, "nothing was written");
    assert!(ok(dir, "info --json a.img").contains("block_size"));
}
