//! Output, exit statuses and destinations.

use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

use super::{contents, done, said};

/// Makes an image, and removes files with difficult names.
fn image(dir: &Path) {
    fs::create_dir_all(dir.join("tree/a")).unwrap();
    fs::create_dir_all(dir.join("tree/b")).unwrap();
    for (at, name) in ["a/same", "b/same", "a/..x", "a/line\nbreak", "b/stays"].iter().enumerate() {
        fs::write(dir.join("tree").join(name), contents(at as u64, 3000)).unwrap();
    }
    done(dir, "build tree image --size 32M");
    for path in ["/a/same", "/b/same", "/a/..x", "/a/line\nbreak"] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_diskwright"));
        let status = command.current_dir(dir).args(["rm", "image", path]).status().unwrap();
        assert!(status.success(), "{path}");
    }
}

#[test]
fn a_table_has_a_line_for_each_file_and_escapes_names() {
    let home = testkit::scratch();
    image(home.path());
    let text = done(home.path(), "deleted image");
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!(header, ["INODE", "TYPE", "SIZE", "DELETED", "CERTAINTY", "SOURCE", "PATH"]);
    assert!(text.contains("/a/line\\nbreak\n"), "{text}");
    assert!(text.contains("/b/same") && !text.contains("/b/stays"), "{text}");
}

#[test]
fn a_destination_must_be_empty_and_is_never_left() {
    let home = testkit::scratch();
    let dir = home.path();
    image(dir);
    fs::create_dir(dir.join("full")).unwrap();
    fs::write(dir.join("full/mine"), "mine").unwrap();
    let (status, _, messages) = said(dir, "deleted image --extract full");
    assert_eq!(status, 4, "{messages}");
    assert_eq!(fs::read_dir(dir.join("full")).unwrap().count(), 1);
    // A link to a directory that is not empty is refused, too.
    symlink("full", dir.join("link")).unwrap();
    assert_eq!(said(dir, "deleted image --extract link").0, 4);
    done(dir, "deleted image --extract out");
    let names: Vec<_> =
        fs::read_dir(dir.join("out")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    for entry in fs::read_dir(dir.join("out/files")).unwrap() {
        let entry = entry.unwrap();
        assert!(entry.file_type().unwrap().is_file(), "{entry:?}");
        let name = entry.file_name().into_string().unwrap();
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || "._-+".contains(c)), "{name}");
    }
    // A second extraction does not replace the first.
    assert_eq!(said(dir, "deleted image --extract out").0, 4);
}

#[test]
fn an_image_without_deletions_has_none() {
    for options in ["--size 32M", "--fs xfs --small --size 64M"] {
        let home = testkit::scratch();
        let dir = home.path();
        fs::create_dir_all(dir.join("tree/d")).unwrap();
        for number in 0..300 {
            fs::write(dir.join(format!("tree/d/name-{number}")), contents(number, 50)).unwrap();
        }
        done(dir, &format!("build tree image {options}"));
        let text = done(dir, "deleted image --free-blocks");
        assert_eq!(text.lines().count(), 1, "{options}: {text}");
    }
}

/// Damage is reported or has no effect. It never ends the search early.
#[test]
fn damaged_images_are_searched() {
    for options in ["--size 16M", "--fs xfs --small --size 64M"] {
        let home = testkit::scratch();
        let dir = home.path();
        fs::create_dir_all(dir.join("tree/d")).unwrap();
        for number in 0..60 {
            fs::write(dir.join(format!("tree/d/name-{number}")), contents(number, 9000)).unwrap();
        }
        done(dir, &format!("build tree image {options}"));
        done(dir, "rm image /d/name-3 /d/name-33");
        let sound = fs::read(dir.join("image")).unwrap();
        let (pieces, _) = sound.as_chunks::<64>();
        let has_contents = |at: &usize| pieces[*at] != [pieces[*at][0]; 64];
        let interesting: Vec<usize> = (0..pieces.len()).filter(has_contents).collect();
        let damaged = dir.join("damaged");
        for seed in 0..testkit::effort(24, 60, 2000) {
            let mut random = fastrand::Rng::with_seed(seed);
            // Nearly all of the image is a hole.
            testkit::copy_image(&dir.join("image"), &damaged);
            let file = fs::File::options().write(true).open(&damaged).unwrap();
            for _ in 0..random.usize(1..20) {
                let piece = interesting[random.usize(..interesting.len())];
                let at = piece * 64 + random.usize(..64);
                file.write_all_at(&[random.u8(..)], at as u64).unwrap();
            }
            let before = testkit::digest(&damaged);
            let (status, ..) = said(dir, "deleted damaged --json --free-blocks --norecovery");
            assert!(matches!(status, 0 | 3), "{options}, seed {seed}: status {status}");
            assert_eq!(testkit::digest(&damaged), before, "{options}, seed {seed}");
        }
    }
}
