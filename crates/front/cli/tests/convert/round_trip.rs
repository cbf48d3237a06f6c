//! Conversion to the other format and back loses nothing.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use testkit::{Tree, require, scratch};

use super::common::{convert, files};
use crate::build::common::{build, common_sample, judge, mount, sample_in, succeed};
use crate::program::diskwright;

/// Creates an image of a sample tree with flags, projects and creation times. Also returns the
/// tree.
fn sample_image(home: &Path, options: &str) -> (PathBuf, Tree) {
    let (source, _) = sample_in(home, &common_sample());
    for name in ["immutable", "appended", "quiet", "fast"] {
        fs::write(source.join(name), name).unwrap();
    }
    fs::hard_link(source.join("immutable"), source.join("same")).unwrap();
    fs::create_dir_all(source.join("project/below")).unwrap();
    fs::write(source.join("project/below/file"), "x").unwrap();
    let image = home.join("first.img");
    build(&source, &image, options);
    let run = |words: &str| {
        let words = words.split(' ').map(|word| match word {
            "IMAGE" => image.to_str().unwrap(),
            other => other,
        });
        succeed(diskwright().args(words));
    };
    run("chattr IMAGE +A /fast");
    run("chattr IMAGE +Sd /quiet");
    run("chattr -R -p 70000 IMAGE +d /project");
    run("chattr IMAGE +P /project");
    run("chattr IMAGE +a /appended");
    run("mkdir IMAGE /made-later");
    run("chattr IMAGE +i /immutable /made-later");
    let tree = Tree::of(mount(&image).path());
    (image, tree)
}

fn round_trip(options: &str, there: &str, back: &str) {
    crate::require_all_formats!(Root);
    let directory = scratch();
    let home = directory.path();
    let (first, tree) = sample_image(home, options);
    let before = fs::read(&first).unwrap();
    let expected = files(&first);
    assert!(expected.values().any(|file| file.attributes.project_id == 70000));
    let (second, third) = (home.join("second.img"), home.join("third.img"));
    for (from, to, options) in [(&first, &second, there), (&second, &third, back)] {
        let told = succeed(convert(from, to, options).arg("--json"));
        let told: Value = serde_json::from_slice(&told.stdout).unwrap();
        assert_eq!(told["left_out"], Value::Null, "{options}");
        judge(to, &tree);
        let found = files(to);
        for (path, file) in &expected {
            assert_eq!(found.get(path), Some(file), "{}", String::from_utf8_lossy(path));
        }
        assert_eq!(found.len(), expected.len());
    }
    assert!(before == fs::read(&first).unwrap(), "the old image was written");
    // The result does not depend on the number of threads.
    let other = home.join("other.img");
    let epoch = |threads: &str| {
        let mut command = convert(&first, &other, there);
        command.env("SOURCE_DATE_EPOCH", "1500000000").args(["--force", "--threads", threads]);
        succeed(&mut command);
        fs::read(&other).unwrap()
    };
    assert!(epoch("1") == epoch("3"));
}

#[test]
fn ext4_to_xfs_and_back() {
    round_trip("--fs ext4 -O project --free 8M", "--fs xfs", "--fs ext4");
}

#[test]
fn xfs_to_ext4_and_back() {
    round_trip("--fs xfs", "--fs ext4 --size min", "--fs xfs --size min");
}

#[test]
fn attributes_lost_in_conversion_are_reported() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    let directory = scratch();
    let home = directory.path();
    let source = home.join("source");
    fs::create_dir_all(source.join("d")).unwrap();
    for name in ["d/a", "d/b", "hinted"] {
        fs::write(source.join(name), vec![7; 100_000]).unwrap();
    }
    fs::write(source.join("empty"), "").unwrap();
    let (xfs, ext4) = (home.join("x.img"), home.join("e.img"));
    build(&source, &xfs, "--fs xfs --small");
    let run = |words: &[&str], image: &Path| {
        let words = words.iter().map(|word| match *word {
            "IMAGE" => image.to_str().unwrap(),
            other => other,
        });
        succeed(diskwright().arg("chattr").args(words))
    };
    run(&["IMAGE", "+nodefrag", "/d/a", "/d/b"], &xfs);
    run(&["--extsize", "64K", "IMAGE", "/empty", "/d"], &xfs);
    let told = succeed(convert(&xfs, &ext4, "--fs ext4").arg("--json"));
    let said = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(said.contains("not stored for 2 files: flag nodefrag"), "{said}");
    let told: Value = serde_json::from_slice(&told.stdout).unwrap();
    let expected = serde_json::json!({ "flag nodefrag": 2, "extent size hint": 2 });
    assert_eq!(told["left_out"], expected);
    testkit::judge(&ext4);
    // Conversion to the same format keeps it.
    let again = home.join("again.img");
    let told = succeed(&mut convert(&xfs, &again, ""));
    assert!(!String::from_utf8_lossy(&told.stderr).contains("not stored"));
    testkit::judge(&again);
    assert_eq!(files(&again), files(&xfs));
    run(&["IMAGE", "+t", "/hinted"], &ext4);
    let told = succeed(&mut convert(&ext4, &again, "--fs xfs --small --force"));
    let said = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(said.contains("not stored for 1 files: flag notail"), "{said}");
}
