//! Body files, compared with those of `fls -m`.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use testkit::Mke2fs;

use super::done;

fn make_image(dir: &Path, block_size: u32) {
    let tree = dir.join("tree");
    fs::create_dir_all(tree.join("d/deep/deeper")).unwrap();
    fs::write(tree.join("d/deep/file"), "contents").unwrap();
    fs::write(tree.join("empty"), "").unwrap();
    std::os::unix::fs::symlink("d/deep", tree.join("link")).unwrap();
    std::os::unix::fs::symlink("x".repeat(200), tree.join("long-link")).unwrap();
    for number in 0..200 {
        fs::write(tree.join(format!("d/entry-{number}")), vec![1; number]).unwrap();
    }
    fs::set_permissions(tree.join("empty"), fs::Permissions::from_mode(0o4711)).unwrap();
    Mke2fs::new("ext4").block_size(block_size).populate(&tree).create(&dir.join("image"), 32 << 20);
}

/// Returns the lines of files in use. `fls` has no line for the root and two for a directory of orphans. It shows no
/// targets of links that are not in the inode.
fn lines(body: &str) -> BTreeSet<String> {
    let is_common = |line: &&str| {
        let fields: Vec<&str> = line.split('|').collect();
        assert_eq!(fields.len(), 11, "{line}");
        fields[1] != "/"
            && !["$OrphanFiles", "(deleted", "/long-link"]
                .iter()
                .any(|part| fields[1].contains(part))
    };
    body.lines().filter(is_common).map(str::to_owned).collect()
}

#[test]
fn a_body_file_is_that_of_fls() {
    require!(Tool("mke2fs"), Tool("fls"));
    for block_size in [1024, 4096] {
        let home = testkit::scratch();
        let dir = home.path();
        make_image(dir, block_size);
        let before = testkit::digest(&dir.join("image"));
        let ours = done(dir, "timeline image");
        assert_eq!(before, testkit::digest(&dir.join("image")));
        let output = testkit::command("fls")
            .args(["-r", "-m", "/"])
            .arg(dir.join("image"))
            .output()
            .unwrap();
        let theirs = String::from_utf8(output.stdout).unwrap();
        let (ours, theirs) = (lines(&ours), lines(&theirs));
        let missing: Vec<_> = theirs.difference(&ours).take(5).collect();
        let more: Vec<_> = ours.difference(&theirs).take(5).collect();
        assert!(missing.is_empty() && more.is_empty(), "missing {missing:#?}\nmore {more:#?}");
        assert!(ours.len() > 200);
    }
}

/// Runs `mactime` on a body file, and returns its table.
fn mactime(dir: &Path, body: &str) -> String {
    fs::write(dir.join("body"), body).unwrap();
    let mut command = testkit::command("mactime");
    let output = command.args(["-d", "-y", "-b"]).arg(dir.join("body")).output().unwrap();
    assert!(output.status.success(), "{:?}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn mactime_reads_a_body_file_with_deleted_files() {
    require!(Tool("mke2fs"), Tool("debugfs"), Tool("mactime"));
    let home = testkit::scratch();
    let dir = home.path();
    make_image(dir, 4096);
    testkit::debugfs_write(&dir.join("image"), "rm /d/entry-7");
    let table = mactime(dir, &done(dir, "timeline image --deleted"));
    for name in ["/d/entry-6", "/d/entry-7 (deleted)", "/d"] {
        assert!(table.contains(&format!("\"{name}\"")), "{name} in {table}");
    }
}

#[test]
fn bodies_of_xfs_have_deleted_names() {
    require!(Tool("mactime"));
    let home = testkit::scratch();
    let dir = home.path();
    fs::create_dir_all(dir.join("tree/d")).unwrap();
    for number in 0..20 {
        fs::write(dir.join(format!("tree/d/name-{number}")), "contents").unwrap();
    }
    done(dir, "build tree image --fs xfs --small --size 64M");
    done(dir, "rm image /d/name-3");
    let body = done(dir, "timeline image --deleted");
    assert!(body.lines().any(|line| line.starts_with("0|/d/name-3 (deleted)|")), "{body}");
    let table = mactime(dir, &body);
    assert!(table.contains("\"/d/name-2\"") && !table.contains("\"/d/name-3\""), "{table}");
}
