//! The program on XFS images: its output, and recovery after a crash.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use testkit::{
    Ignore, KernelMount, MkfsXfs, MountOptions, Sample, Tree, assert_same, require, sample_tree,
    scratch, xfs_repair,
};

/// Runs a command line on the image. `IMAGE` stands for its path.
fn run(image: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_diskwright"));
    let image = image.to_str().unwrap();
    command.args(line.split_whitespace().map(|word| if word == "IMAGE" { image } else { word }));
    command.output().unwrap()
}

#[track_caller]
fn ok(image: &Path, line: &str) -> String {
    let output = run(image, line);
    assert_eq!(output.status.code(), Some(0), "{line}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn json(image: &Path, line: &str) -> Value {
    serde_json::from_str(&ok(image, line)).unwrap()
}

/// Creates a tree with a file of several names.
fn source(dir: &Path) -> PathBuf {
    let source = dir.join("source");
    fs::create_dir_all(source.join("a/b/c")).unwrap();
    fs::write(source.join("a/file"), "contents").unwrap();
    for name in ["a/other", "a/b/c/third", "top"] {
        fs::hard_link(source.join("a/file"), source.join(name)).unwrap();
    }
    std::os::unix::fs::symlink("top", source.join("link")).unwrap();
    fs::create_dir(source.join("many")).unwrap();
    for n in 0..3000 {
        File::create(source.join(format!("many/a rather long name {n}"))).unwrap();
    }
    source
}

/// Creates an image of the source.
fn image(dir: &Path, options: &str) -> PathBuf {
    let (source, image) = (source(dir), dir.join("a.img"));
    let line = format!("build --fs xfs --label xfs-label {options} SOURCE IMAGE");
    ok(&image, line.replace("SOURCE", source.to_str().unwrap()).trim());
    image
}

#[test]
fn info_agrees_with_mkfs() {
    let dir = scratch();
    let image = image(dir.path(), "--block-size 1K --dir-block-size 4K");
    let info = json(&image, "info --json IMAGE");
    assert_eq!(
        (&info["format"], &info["label"], &info["state"], &info["block_size"]),
        (&"xfs".into(), &"xfs-label".into(), &"clean".into(), &1024.into())
    );
    let names = |at: usize| info["features"][at]["names"].to_string();
    for name in ["bigtime", "nrext64", "exchange", "parent", "sparse", "ftype"] {
        assert!(names(1).contains(&format!("{name:?}")), "{name} in {}", names(1));
    }
    for name in ["finobt", "rmapbt", "reflink", "inobtcount"] {
        assert!(names(2).contains(&format!("{name:?}")), "{name} in {}", names(2));
    }
    let text = ok(&image, "info IMAGE");
    assert!(text.contains("directory block size:         4096\n"), "{text}");
}

#[test]
fn paths_come_from_parents_or_from_a_search() {
    for (options, scanned) in [("", false), ("--features ^parent", true)] {
        let dir = scratch();
        let image = image(dir.path(), options);
        let inode = json(&image, "ls --json IMAGE /top")["inode"].as_u64().unwrap();
        let output = run(&image, &format!("paths IMAGE {inode}"));
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let expected = "/a/b/c/third\n/a/file\n/a/other\n/top\n";
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said.contains("searched"), scanned, "{said}");
        let answer = json(&image, &format!("paths --json IMAGE {inode}"));
        assert_eq!(
            (&answer["scanned"], &answer["paths"][1]["path"]),
            (&scanned.into(), &"/a/file".into())
        );
        let nothing = run(&image, "paths IMAGE 99999999");
        assert_eq!(nothing.status.code(), Some(1), "{nothing:?}");
    }
}

#[test]
fn paths_are_those_the_kernel_gave() {
    require!(Mount("xfs"), Tool("mkfs.xfs"));
    let dir = scratch();
    let image = dir.path().join("a.img");
    MkfsXfs::default().create(&image, 300 << 20);
    let mount = KernelMount::new(&image, &MountOptions::read_write("xfs"));
    let at = |name: &str| mount.path().join(name);
    fs::write(at("file"), "x").unwrap();
    let mut expected = BTreeSet::from(["/file".to_owned()]);
    for n in 0..700 {
        let parent = format!("d{}", n % 7);
        fs::create_dir_all(at(&parent)).unwrap();
        let name = format!("{parent}/{n}-{}", "n".repeat(n % 180));
        fs::hard_link(at("file"), at(&name)).unwrap();
        if n % 3 == 0 {
            fs::rename(at(&name), at(&format!("{parent}/moved-{n}"))).unwrap();
            expected.insert(format!("/{parent}/moved-{n}"));
        } else {
            expected.insert(format!("/{name}"));
        }
    }
    let inode = fs::metadata(at("file")).unwrap().ino();
    mount.unmount();
    let found = ok(&image, &format!("paths IMAGE {inode}"));
    assert_eq!(found.lines().map(str::to_owned).collect::<BTreeSet<_>>(), expected);
}

#[test]
fn structures_are_shown() {
    let dir = scratch();
    let image = image(dir.path(), "");
    let dump = |what: &str| json(&image, &format!("dump --json IMAGE {what}"));
    let superblock = dump("superblock");
    assert_eq!(
        (&superblock["magicnum"], &superblock["checksum_state"], &superblock["fname"]),
        (&"0x58465342".into(), &"right".into(), &"xfs-label".into())
    );
    let group = dump("group 1");
    assert_eq!(group, dump("ag 1"));
    for header in ["agf", "agi", "agfl"] {
        assert_eq!(
            (&group[header]["seqno"], &group[header]["checksum_state"]),
            (&1.into(), &"right".into())
        );
    }
    let inode = dump("inode /many");
    assert_eq!((&inode["type"], &inode["checksum_state"]), (&"directory".into(), &"right".into()));
    assert_eq!(inode["parents"][0]["name"], "many");
    assert_eq!(dump(&format!("inode {}", inode["inode"])), inode);
    assert_eq!(dump("inode /link")["target"], "top");
    let block = dump(&format!("block {}", inode["runs"][0]["block"]));
    assert_eq!(block["kind"], "directory data");
    assert_eq!(block["header"]["owner"], inode["inode"]);
    let directory = dump("directory /many");
    let names = directory["entries"].as_array().unwrap();
    assert!(names.iter().any(|entry| entry["name"] == "a rather long name 7"), "{directory}");
    for (what, status) in [
        ("group 1000", 1),
        ("inode 99999999999", 1),
        ("inode /nothing", 1),
        ("block 18446744073709551615", 1),
        ("directory /link", 1),
    ] {
        let output = run(&image, &format!("dump IMAGE {what}"));
        assert_eq!(output.status.code(), Some(status), "{what}: {output:?}");
        assert!(output.stdout.is_empty(), "{what}");
    }
}

#[test]
fn damage_is_shown_and_named() {
    let dir = scratch();
    let image = image(dir.path(), "");
    let inode = json(&image, "dump --json IMAGE inode /a");
    let at = inode["block"].as_u64().unwrap() * 4096 + inode["offset"].as_u64().unwrap();
    let file = File::options().read(true).write(true).open(&image).unwrap();
    // The owner, at byte 8 of the inode.
    file.write_all_at(&[0, 0, 0, 9], at + 8).unwrap();
    let shown = run(&image, &format!("dump --json IMAGE inode {}", inode["inode"]));
    assert_eq!(shown.status.code(), Some(3));
    let damaged: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(damaged["uid"], 9);
    assert!(damaged["problems"][0].as_str().unwrap().contains("checksum"), "{damaged}");
    let listed = run(&image, "ls IMAGE /a");
    assert_eq!(listed.status.code(), Some(3), "{listed:?}");
    assert!(String::from_utf8_lossy(&listed.stderr).contains("run diskwright check"), "{listed:?}");
    // The label, in the superblock.
    file.write_all_at(b"damaged", 108).unwrap();
    let shown = run(&image, "dump IMAGE superblock");
    assert_eq!(shown.status.code(), Some(3));
    assert!(String::from_utf8(shown.stdout).unwrap().contains("damaged"));
}

/// Number of files that [`crashed`] unlinks.
const REMOVED: u64 = 167;

/// Creates a tree by the kernel's driver, with an unlinked open file. Copies the image from under
/// the mount, in the state that a crash would leave.
fn crashed(dir: &Path, copies: &[&Path]) {
    let image = dir.join("kernel.img");
    MkfsXfs::default().create(&image, 300 << 20);
    let mount = KernelMount::new(&image, &MountOptions::read_write("xfs"));
    sample_tree(mount.path(), &Sample { wide_names: 300, huge_sparse: false, ..Sample::for_xfs() });
    rustix::fs::syncfs(File::open(mount.path()).unwrap()).unwrap();
    // Later changes are only in the log.
    for n in 0..500 {
        fs::write(mount.path().join(format!("a rather long name {n}")), format!("{n}")).unwrap();
    }
    for n in (0..500).step_by(3) {
        fs::remove_file(mount.path().join(format!("a rather long name {n}"))).unwrap();
    }
    let open = File::create(mount.path().join("open")).unwrap();
    open.set_len(1 << 20).unwrap();
    fs::remove_file(mount.path().join("open")).unwrap();
    rustix::fs::syncfs(File::open(mount.path()).unwrap()).unwrap();
    for copy in copies {
        testkit::copy_image(&image, copy);
    }
    drop(open);
    mount.unmount();
}

fn state(image: &Path) -> (Value, Value) {
    let info = json(image, "info --json IMAGE");
    (info["state"].clone(), info["needs_recovery"].clone())
}

#[test]
fn recovery_in_memory_and_on_disk_agrees_with_the_kernel() {
    require!(Mount("xfs"), Tool("mkfs.xfs"), Tool("xfs_repair"), Root);
    let dir = scratch();
    let [ours, theirs] = ["a.img", "b.img"].map(|name| dir.path().join(name));
    crashed(dir.path(), &[&ours, &theirs]);
    let expected = {
        let mount = KernelMount::new(&theirs, &MountOptions::read_write("xfs"));
        Tree::of(mount.path())
    };
    // The kernel lists ACLs a second time.
    let ignore = Ignore { xattr_prefixes: vec![b"trusted.SGI_ACL_"], ..Ignore::default() };
    let before = fs::read(&ours).unwrap();
    assert_eq!(state(&ours), ("the log must be replayed".into(), true.into()));
    let out = dir.path().join("out");
    ok(&ours, &format!("extract IMAGE {}", out.display()));
    assert_same(&expected, &Tree::of(&out), &ignore);
    assert!(fs::read(&ours).unwrap() == before, "reading has changed the image");

    let report = json(&ours, "recover --json IMAGE");
    let count = |name: &str| report[name].as_u64().unwrap_or_else(|| panic!("{name}: {report}"));
    assert!(count("transactions") > 0 && count("items_replayed") > 100, "{report}");
    // The open file, and unlinked files that the kernel had not yet freed in the background.
    assert!((1..=1 + REMOVED).contains(&count("orphans_freed")), "{report}");
    xfs_repair(&ours);
    assert_eq!(state(&ours), ("clean".into(), false.into()));
    let nothing = run(&ours, "recover IMAGE");
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("nothing to recover"), "{nothing:?}");
    let mount = KernelMount::new(&ours, &MountOptions::read_only("xfs"));
    assert_same(&expected, &Tree::of(mount.path()), &ignore);
}

#[test]
fn every_change_recovers_first() {
    require!(Mount("xfs"), Tool("mkfs.xfs"), Tool("xfs_repair"), Root);
    let dir = scratch();
    let image = dir.path().join("a.img");
    crashed(dir.path(), &[&image]);
    ok(&image, "mkdir IMAGE /new");
    xfs_repair(&image);
    let names = run(&image, "find IMAGE /").stdout;
    let names = String::from_utf8_lossy(&names);
    assert_eq!(names.lines().filter(|name| name.contains("/a rather long name")).count(), 333);
    assert!(names.lines().any(|name| name == "/new"));
}

#[test]
fn the_log_is_shown() {
    require!(Mount("xfs"), Tool("mkfs.xfs"), Root);
    let dir = scratch();
    let image = dir.path().join("a.img");
    crashed(dir.path(), &[&image]);
    let log = json(&image, "dump --json IMAGE journal");
    assert_eq!(log["is_clean"], false, "{log}");
    let records = log["log"].as_array().unwrap();
    let transactions = records.iter().flat_map(|record| record["transactions"].as_array().unwrap());
    let items: Vec<&Value> =
        transactions.flat_map(|one| one["items"].as_array().unwrap()).collect();
    let kinds: BTreeSet<&str> = items.iter().map(|item| item["kind"].as_str().unwrap()).collect();
    assert!(kinds.is_superset(&BTreeSet::from(["buffer", "inode"])), "{kinds:?}");
    assert!(items.iter().any(|item| item["contents"] == "agi" && item["daddr"] == 2), "no agi");
    let text = ok(&image, "dump IMAGE journal");
    assert!(text.contains("kind=inode inode="));
}

#[test]
fn a_clean_log_has_a_mark() {
    let dir = scratch();
    let image = image(dir.path(), "");
    ok(&image, "mkdir IMAGE /new");
    let log = json(&image, "dump --json IMAGE journal");
    assert_eq!((&log["is_clean"], &log["log"][0]["kind"]), (&true.into(), &"unmount".into()));
    assert_eq!(log["log"].as_array().unwrap().len(), 1, "{log}");
}

#[test]
fn the_state_of_an_external_log_is_unknown() {
    require!(Tool("mkfs.xfs"));
    let dir = scratch();
    let (image, log) = (dir.path().join("a.img"), dir.path().join("log"));
    File::create(&log).unwrap().set_len(64 << 20).unwrap();
    let place = format!("-l logdev={},size=64m", log.display());
    MkfsXfs::default().options(&place).create(&image, 300 << 20);
    let info = json(&image, "info --stale --json IMAGE");
    assert!(info["state"].to_string().contains("another device"), "{info}");
    assert_eq!(info["needs_recovery"], true);
}

#[test]
fn every_layout_of_a_source_has_a_uuid_of_its_own() {
    let dir = scratch();
    let (source, image) = (source(dir.path()), dir.path().join("a.img"));
    let mut seen = BTreeSet::new();
    let layouts = [
        "",
        "--size 300M",
        "--size 400M",
        "--free 300M",
        "--block-size 1K",
        "--inode-size 1K",
        "--dir-block-size 8K",
        "--ag-count 2",
        "--ag-size 64M",
        "--log-size 80M",
        "--features ^rmapbt",
    ];
    for options in layouts {
        let line = format!("build --fs xfs --force {options} SOURCE IMAGE");
        ok(&image, line.replace("SOURCE", source.to_str().unwrap()).trim());
        let uuid = json(&image, "info --json IMAGE")["uuid"].to_string();
        assert!(seen.insert(uuid), "{options}: seen before");
    }
}

#[test]
fn names_that_differ_in_case_and_duplicates_are_distinguished() {
    let dir = scratch();
    let (source, image) = (dir.path().join("source"), dir.path().join("a.img"));
    fs::create_dir_all(source.join("sub")).unwrap();
    fs::write(source.join("sub/Name"), "1").unwrap();
    fs::write(source.join("sub/name"), "2").unwrap();
    let line = format!("build --fs xfs --features ascii-ci {} IMAGE", source.display());
    let output = run(&image, &line);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("sub/name: ") && said.contains("case from Name"), "{said}");
}
