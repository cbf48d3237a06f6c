//! Layers that are damaged, inconsistent or do not fit: a precise error, and an unchanged image.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use testkit::{Mke2fs, digest, require};

use super::tarball::{Member, dir, file, link, tar};
use crate::edit::common::run;
use crate::layers::common::{FORMATS, assert_equal, build, make};
use crate::program::{fails, ok};

/// Runs a test for each format, in a directory with an image of a few files.
fn on_each_format(test: impl Fn(&Path)) {
    for format in FORMATS {
        let home = testkit::scratch();
        make(&home.path().join("a"), &["d/x", "f"]);
        build(home.path(), "a", "a.img", format);
        test(home.path());
    }
}

/// Applies a layer, which must be rejected and leave the image unchanged byte for byte. Returns the
/// messages.
#[track_caller]
fn refused(dir: &Path, layer: &[u8], options: &str) -> String {
    fs::write(dir.join("layer.tar"), layer).unwrap();
    let before = digest(&dir.join("a.img"));
    let said = fails(dir, &format!("apply layer.tar a.img {options}"), 3);
    assert!(said.contains("layer.tar"), "{said}");
    assert!(digest(&dir.join("a.img")) == before, "{said}");
    said
}

fn packed(program: &str, bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    use std::process::Stdio;
    let mut command = testkit::command(program);
    let mut child = command.arg("-c").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let bytes = bytes.to_vec();
    let writer = std::thread::spawn(move || input.write_all(&bytes).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output.stdout
}

#[test]
fn layers_that_are_cut_short_or_garbled_change_nothing() {
    require!(Tool("gzip"), Tool("zstd"));
    on_each_format(|dir| {
        let mut random = fastrand::Rng::with_seed(3);
        let noise: String = std::iter::repeat_with(|| random.alphanumeric()).take(50_000).collect();
        let whole = tar(&[file("d/x", "new"), file("large", &noise), file(".wh.f", "")]);
        for layer in [whole.clone(), packed("gzip", &whole), packed("zstd", &whole)] {
            for share in [1, 5, 9] {
                refused(dir, &layer[..layer.len() * share / 10], "");
            }
            refused(dir, &layer[..layer.len() - 1024.min(layer.len() / 4)], "");
        }
        let mut garbled = packed("gzip", &whole);
        let middle = garbled.len() / 2;
        garbled[middle] ^= 0x55;
        refused(dir, &garbled, "");
        let said = refused(dir, b"this is no archive at all", "");
        assert!(said.contains("not a tar archive"), "{said}");
        let said = refused(dir, b"BZh91AY&SY", "");
        assert!(said.contains("bzip2"), "{said}");
    });
}

#[test]
fn entries_with_invalid_paths_change_nothing() {
    on_each_format(|dir| {
        let said = |members: &[Member], options: &str| refused(dir, &tar(members), options);
        let good = file("new", "1");
        assert!(said(&[good.clone(), file("a/../../etc/x", "")], "").contains("\"..\""));
        assert!(said(&[good.clone(), link("x", "../x")], "").contains("\"..\""));
        assert!(said(&[good.clone(), file("d/.wh.", "")], "").contains("without a valid name"));
        assert!(said(&[good.clone(), file(".wh.d/x", "")], "").contains("the name of a whiteout"));
        let zeros = Member::File("bomb".into(), vec![0; 3 << 20]);
        let said = said(&[good, zeros], "--layer-limit 2M");
        assert!(said.contains("--layer-limit"), "{said}");
    });
}

/// Failures that occur only when names are created: everything before is rolled back.
#[test]
fn a_layer_that_contradicts_the_image_changes_nothing() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    on_each_format(|home| {
        for (last, word) in [
            (link("x", "nowhere"), "neither in a lower layer"),
            (link("x", "d"), "which is a directory"),
            (file("f/below", ""), "not a directory"),
        ] {
            let before = [file(".wh.f", ""), file("d/x", "new"), dir("many"), file("f", "again")];
            let members: Vec<Member> = before.into_iter().chain([last]).collect();
            fs::write(home.join("layer.tar"), tar(&members)).unwrap();
            let said = fails(home, "apply layer.tar a.img", 3);
            assert!(said.contains(word) && said.contains("layer.tar"), "{said}");
            assert!(!said.contains("entries were applied"), "{said}");
            assert_equal(home, "a", "a.img");
            testkit::judge(home.join("a.img"));
            assert!(ok(home, "info --json a.img").contains("\"needs_recovery\": false"));
        }
        // An immutable file is not changed, and neither is anything else.
        ok(home, "chattr a.img +i /f");
        fs::write(home.join("layer.tar"), tar(&[file("d/x", "new"), file("f", "new")])).unwrap();
        let said = fails(home, "apply layer.tar a.img", 1);
        assert!(said.contains("immutable"), "{said}");
        ok(home, "chattr a.img -i /f");
        assert_equal(home, "a", "a.img");
    });
}

#[test]
fn a_layer_that_does_not_fit_changes_nothing() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    on_each_format(|home| {
        let large = Member::File("large".into(), vec![1; 80 << 20]);
        fs::write(home.join("layer.tar"), tar(&[file(".wh.f", ""), file("d/x", "new"), large]))
            .unwrap();
        let said = fails(home, "apply layer.tar a.img", 4);
        assert!(said.contains("/large: no space left"), "{said}");
        assert_equal(home, "a", "a.img");
        testkit::judge(home.join("a.img"));
    });
    // There is room for the contents, but not for all inodes.
    let home = testkit::scratch();
    let home = home.path();
    make(&home.join("a"), &["d/x", "f"]);
    build(home, "a", "a.img", "--inodes 64");
    let mut members = vec![file(".wh.f", ""), file("d/x", "new")];
    members.extend((0..100).map(|n| dir(&format!("new {n}"))));
    fs::write(home.join("layer.tar"), tar(&members)).unwrap();
    let said = fails(home, "apply layer.tar a.img", 4);
    assert!(said.contains("no free inodes") && !said.contains("entries were applied"), "{said}");
    assert_equal(home, "a", "a.img");
    testkit::judge(home.join("a.img"));
}

/// If `apply` takes more than one checkpoint, the error reports the progress, and every file is
/// complete.
#[test]
fn a_layer_in_several_steps_reports_its_progress() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    let home = testkit::scratch();
    let home = home.path();
    let image = home.join("a.img");
    Mke2fs::new("ext4")
        .block_size(1024)
        .arguments(["-J", "size=1", "-N", "6000"])
        .create(&image, 64 << 20);
    let mut members: Vec<Member> = Vec::new();
    for number in 0..2500 {
        members.push(dir(&format!("d{}", number % 50)));
        members.push(file(&format!("d{}/{number}", number % 50), "whole"));
    }
    members.push(link("last", "nowhere"));
    fs::write(home.join("layer.tar"), tar(&members)).unwrap();
    let said = fails(home, "apply layer.tar a.img", 3);
    assert!(said.contains("5000 of its 5001 entries were applied"), "{said}");
    testkit::judge(&image);
    assert_eq!(ok(home, "find a.img / --type f").lines().count(), 2500);
    assert_eq!(ok(home, "cat a.img /d7/1007"), "whole");
    members.pop();
    fs::write(home.join("layer.tar"), tar(&members)).unwrap();
    let said = ok(home, "apply layer.tar a.img --json");
    assert!(said.contains("\"one_change\":false"), "{said}");
    testkit::judge(&image);
    // Without a journal nothing is atomic, and a message says so.
    build_plain(home);
    let said = ok(home, "apply layer.tar plain.img --json");
    assert!(said.contains("\"one_change\":false"), "{said}");
    testkit::judge(home.join("plain.img"));
}

fn build_plain(home: &Path) {
    make(&home.join("empty"), &["x/"]);
    ok(home, "build empty plain.img --size 64M --inodes 6000 --no-journal");
}

#[test]
fn missing_files_are_named() {
    on_each_format(|dir| {
        assert!(fails(dir, "apply nothing a.img", 4).contains("nothing"));
        fs::write(dir.join("layer.tar"), tar(&[])).unwrap();
        assert!(fails(dir, "apply layer.tar nothing.img", 4).contains("nothing.img"));
        assert!(fails(dir, "apply layer.tar layer.tar", 3).contains("layer.tar"));
        ok(dir, "apply layer.tar a.img");
        assert_equal(dir, "a", "a.img");
    });
}

/// Whiteouts of missing paths, or of paths below a file, hide nothing.
#[test]
fn whiteouts_of_what_is_not_there_change_nothing() {
    on_each_format(|dir| {
        let members =
            [".wh.nothing", "no/.wh.such", "no/.wh..wh..opq", "f/.wh.below", "f/.wh..wh..opq"];
        let members = members.map(|path| file(path, ""));
        fs::write(dir.join("layer.tar"), tar(&members)).unwrap();
        let said = ok(dir, "apply layer.tar a.img --json");
        assert!(said.contains("\"entries\":5,\"removed\":0"), "{said}");
        assert_equal(dir, "a", "a.img");
    });
}

/// Images with garbage are compared and changed, or rejected with the right status, in limited
/// time.
#[test]
fn images_with_garbage_end_with_a_status() {
    on_each_format(|dir| {
        let layer = [file("d/x", "new"), file(".wh.f", ""), file("many/1", "1"), link("l", "d/x")];
        fs::write(dir.join("layer.tar"), tar(&layer)).unwrap();
        fs::rename(dir.join("a.img"), dir.join("good.img")).unwrap();
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..testkit::effort(10, 20, 500) {
            testkit::copy_image(&dir.join("good.img"), &dir.join("a.img"));
            let image = fs::File::options().write(true).open(dir.join("a.img")).unwrap();
            for _ in 0..random.usize(1..40) {
                // Small images have nearly all their metadata here.
                image.write_all_at(&[random.u8(..)], random.u64(..3 << 20)).unwrap();
            }
            for line in [
                "diff good.img a.img",
                "diff a.img good.img -o out.tar --force",
                "apply layer.tar a.img",
            ] {
                let output = run(dir, &line.split_whitespace().collect::<Vec<_>>());
                let said = String::from_utf8_lossy(&output.stderr);
                let status = output.status.code();
                assert!(matches!(status, Some(0 | 1 | 3)), "{line}: {status:?} {said}");
                assert!(!said.contains("panicked"), "{line}: {said}");
            }
        }
    });
}
