//! cp into an image, out of one, and within one.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;

use testkit::{
    Format, Ignore, Mke2fs, MkfsXfs, Sample, Tree, assert_same, judge, require, sample_tree,
};

use crate::edit::common::{OWN_XFS, mount, on_each_image, own_image, paths, run};

use crate::program::{fails, ok};

#[test]
fn a_tree_of_everything_goes_in_and_out() {
    require!(Root);
    require_images!();
    for name in ["mke2fs", "own", "mkfs.xfs", "own-xfs"] {
        let dir = testkit::scratch();
        let dir = dir.path();
        let image = dir.join("a.img");
        match name {
            "own" => drop(own_image(dir, "a.img", "")),
            "own-xfs" => drop(own_image(dir, "a.img", OWN_XFS)),
            "mkfs.xfs" => MkfsXfs::default().create(&image, 64 << 20),
            _ => Mke2fs::new("ext4").block_size(4096).inode_size(256).create(&image, 64 << 20),
        }
        let is_xfs = Format::of(&image) == Format::Xfs;
        let sample = if is_xfs { Sample::for_xfs() } else { Sample::default() };
        let tree = dir.join("tree");
        fs::create_dir(&tree).unwrap();
        sample_tree(&tree, &Sample { wide_names: 700, ..sample });
        ok(dir, "cp -a tree a.img:/");
        ok(dir, "cp -a a.img:/tree a.img:/again");
        judge(&image);
        ok(dir, "cp -a a.img:/again out");
        // The kernel's XFS lists ACLs a second time.
        let ignore = Ignore { xattr_prefixes: vec![b"trusted.SGI_ACL_"], ..Ignore::default() };
        let source = Tree::of(&tree);
        assert_same(&source, &Tree::of(dir.join("out")), &ignore);
        let mounted = mount(&image);
        assert_same(&source, &Tree::of(mounted.path().join("tree")), &ignore);
        assert_same(&source, &Tree::of(mounted.path().join("again")), &ignore);
    }
}

#[test]
fn destinations_have_the_meaning_of_cp() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("mkfs.xfs"), Tool("xfs_repair"));
    on_each_image(|dir| {
        for (name, contents) in [("one", "1"), ("two", "2")] {
            fs::write(dir.join(name), contents).unwrap();
        }
        fs::create_dir_all(dir.join("d/sub")).unwrap();
        fs::write(dir.join("d/sub/f"), "f").unwrap();
        symlink("one", dir.join("soft")).unwrap();
        ok(dir, "mkdir a.img /x");
        ok(dir, "cp one two a.img:/x");
        ok(dir, "cp one a.img:x/named");
        ok(dir, "cp soft a.img:/followed");
        ok(dir, "cp -r soft a.img:/kept");
        ok(dir, "cp -r d a.img:/new");
        ok(dir, "cp -r d a.img:/new");
        ok(dir, "ln -s a.img x /link-to-x");
        ok(dir, "cp two a.img:/link-to-x/three");
        ok(dir, "ln -s a.img x/one /link-to-one");
        ok(dir, "cp two a.img:/link-to-one");
        fs::create_dir(dir.join("out")).unwrap();
        ok(dir, "cp a.img:/x/one a.img:/x/three out");
        ok(dir, "cp a.img:/x/one out/named");
        ok(dir, "cp -r a.img:/new out");
        for (path, contents) in [("one", "2"), ("three", "2"), ("named", "2"), ("new/d/sub/f", "f")]
        {
            assert_eq!(fs::read_to_string(dir.join("out").join(path)).unwrap(), contents, "{path}");
        }
        let expected = "/ /followed /kept /link-to-one /link-to-x /lost+found /new /new/d /new/d/sub \
                        /new/d/sub/f /new/sub /new/sub/f /x /x/named /x/one /x/three /x/two";
        assert_eq!(paths(dir, "a.img"), expected.split_whitespace().collect::<Vec<_>>());
        assert_eq!(ok(dir, "cat a.img /followed /x/one /x/named /x/three"), "1212");
    });
}

#[test]
fn holes_stay_holes() {
    require_images!();
    on_each_image(|dir| {
        let file = fs::File::create(dir.join("sparse")).unwrap();
        file.set_len(3 << 30).unwrap();
        file.write_all_at(&[5; 5000], 1 << 30).unwrap();
        ok(dir, "cp sparse a.img:/sparse");
        ok(dir, "cp a.img:/sparse a.img:/again");
        ok(dir, "cp a.img:/again back");
        let mounted = mount(&dir.join("a.img"));
        for place in [mounted.path().join("sparse"), mounted.path().join("again"), dir.join("back")]
        {
            let file = fs::File::open(place).unwrap();
            let found = file.metadata().unwrap();
            assert_eq!(found.len(), 3 << 30);
            assert!(found.blocks() < 200, "{} sectors", found.blocks());
            let mut data = vec![0; 6000];
            file.read_exact_at(&mut data, (1 << 30) - 500).unwrap();
            assert!(data[500..5500].iter().all(|&b| b == 5) && data[..500] == [0; 500]);
        }
    });
}

/// Within an XFS image, copies share blocks with their sources, unless that is not wanted.
#[test]
fn copies_within_an_image_share_blocks() {
    require!(Tool("xfs_repair"));
    let dir = testkit::scratch();
    let dir = dir.path();
    let image = own_image(dir, "a.img", OWN_XFS);
    fs::create_dir(dir.join("tree")).unwrap();
    let bytes: Vec<u8> = (0..5_000_001_u32).map(|at| (at % 251) as u8).collect();
    fs::write(dir.join("tree/large"), &bytes).unwrap();
    fs::write(dir.join("tree/small"), "small").unwrap();
    fs::write(dir.join("tree/empty"), "").unwrap();
    ok(dir, "cp -r tree a.img:/");
    let free = || {
        let told: serde_json::Value = serde_json::from_str(&ok(dir, "info --json a.img")).unwrap();
        told["blocks_free"].as_u64().unwrap() * 4096
    };
    let shared = |arguments: &str| {
        let told = ok(dir, &format!("cp --json {arguments}"));
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        told["shared"].as_u64().unwrap()
    };
    let before = free();
    assert!(shared("-a a.img:/tree a.img:/auto") > 5_000_000);
    assert!(shared("-r --reflink a.img:/tree a.img:/always") > 5_000_000);
    assert!(before - free() < 200_000, "{} bytes", before - free());
    assert_eq!(shared("-r --reflink=never a.img:/tree a.img:/never"), 0);
    assert!(before - free() > 5_000_000);
    for tree in ["auto", "always", "never"] {
        ok(dir, &format!("cp a.img:/{tree}/large out"));
        assert!(fs::read(dir.join("out")).unwrap() == bytes, "{tree}");
    }
    assert_eq!(shared("tree/large a.img:/host"), 0);
    assert!(fails(dir, "cp --reflink tree/large a.img:/host", 1).contains("same image"));
    assert!(fails(dir, "cp --reflink a.img:/host out", 2).contains("within an image"));
    testkit::judge(&image);
    require!(Tool("mke2fs"));
    let image = own_image(dir, "b.img", "");
    ok(dir, "cp tree/large b.img:/large");
    assert_eq!(ok(dir, "cp --json b.img:/large b.img:/copy").matches("\"shared\":0").count(), 1);
    assert!(fails(dir, "cp --reflink b.img:/large b.img:/other", 3).contains("sharing blocks"));
    assert!(!ok(dir, "ls b.img /").contains("other"));
    testkit::judge(&image);
}

#[test]
fn without_preserve_attributes_have_defaults() {
    require_images!();
    on_each_image(|dir| {
        fs::write(dir.join("f"), "1").unwrap();
        set_mode(&dir.join("f"), 0o4751);
        ok(dir, "cp f a.img:/plain");
        ok(dir, "cp --owner 5:6 f a.img:/owned");
        ok(dir, "cp -p f a.img:/kept");
        fs::write(dir.join("f"), "replaced").unwrap();
        ok(dir, "chmod a.img 600 /owned");
        ok(dir, "setfattr -n user.a -v 1 a.img /owned");
        ok(dir, "ln a.img /owned /other");
        ok(dir, "cp f a.img:/owned");
        ok(dir, "cp a.img:/kept out");
        assert_eq!(fs::metadata(dir.join("out")).unwrap().mode() & 0o7000, 0);
        let mounted = mount(&dir.join("a.img"));
        let about = |name: &str| {
            let found = fs::metadata(mounted.path().join(name)).unwrap();
            (found.mode() & 0o7777, found.uid(), found.gid(), found.len(), found.nlink())
        };
        let user = fs::metadata(dir.join("f")).unwrap();
        assert_eq!(about("plain"), (0o751, 0, 0, 1, 1));
        assert_eq!(about("kept"), (0o4751, user.uid(), user.gid(), 1, 1));
        assert_eq!(about("owned"), (0o600, 5, 6, 8, 1), "as what it replaced");
        assert_eq!(about("other"), (0o600, 5, 6, 1, 1), "the other name keeps the old file");
        assert!(ok(dir, "dump a.img inode /owned").contains("user.a"));
    });
}

fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn files_that_cannot_be_copied_are_reported() {
    require!(Tool("e2fsck"), Tool("mkfs.xfs"), Tool("xfs_repair"), Tool("mke2fs"));
    on_each_image(|dir| {
        fs::create_dir(dir.join("d")).unwrap();
        fs::write(dir.join("f"), "1").unwrap();
        ok(dir, "cp f a.img:/f");
        assert!(fails(dir, "cp d a.img:/", 2).contains("use -r"));
        assert!(fails(dir, "cp a.img:/lost+found x", 2).contains("use -r"));
        assert!(fails(dir, "cp missing a.img:/", 4).contains("cannot copy missing"));
        assert!(fails(dir, "cp a.img:/missing x", 1).contains("/missing: no such file"));
        assert!(fails(dir, "cp f a.img:/no/where", 1).contains("no such file"));
        assert!(fails(dir, "cp f a.img:/f/x", 1).contains("not a directory"));
        assert!(fails(dir, "cp f f a.img:/g", 1).contains("/g: no such file"));
        assert!(fails(dir, "cp -r d a.img:/f", 1).contains("not a directory"));
        assert!(fails(dir, "cp a.img:/f a.img:/f", 1).contains("the same file"));
        assert!(fails(dir, "cp -r a.img:/ a.img:/x", 1).contains("into itself"));
        assert!(fails(dir, "cp missing f a.img:/lost+found", 4).contains("missing"));
        assert_eq!(paths(dir, "a.img"), ["/", "/f", "/lost+found"]);
        // A name before a colon is an image only if the file exists.
        assert!(fails(dir, "cp f b.img:/x", 2).contains("IMAGE:PATH"));
    });
}

#[test]
fn streams_are_copied_and_reports_are_json() {
    require!(Tool("e2fsck"), Tool("mkfs.xfs"), Tool("xfs_repair"), Tool("mke2fs"));
    on_each_image(|dir| {
        fs::write(dir.join("f"), vec![3; 100_000]).unwrap();
        let mut command = crate::program::diskwright();
        command.current_dir(dir).args(["cp", "--json", "/dev/stdin", "a.img:/f"]);
        let output = command.stdin(fs::File::open(dir.join("f")).unwrap()).output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            report,
            serde_json::json!({"files": 1, "bytes": 100_000, "shared": 0, "left_out": 0})
        );
        let back = run(dir, &["cp", "a.img:/f", "/dev/stdout"]);
        assert!(back.stdout == fs::read(dir.join("f")).unwrap());
    });
}

/// `/proc` reports a size of 0 for its files: only reading shows their contents.
#[test]
fn a_file_of_unknown_size_is_copied_to_its_end() {
    require_images!();
    let random = Path::new("/proc/sys/kernel/random");
    let symbols = Path::new("/proc/kallsyms");
    let (Ok(boot_id), Ok(symbols)) = (fs::read(random.join("boot_id")), fs::read(symbols)) else {
        eprintln!("SKIPPED: no {} or {}", random.display(), symbols.display());
        return;
    };
    on_each_image(|dir| {
        ok(dir, "cp /proc/sys/kernel/random/boot_id a.img:/one");
        ok(dir, "cp /proc/kallsyms a.img:/large");
        ok(dir, "cp -r /proc/sys/kernel/random a.img:/tree");
        ok(dir, "cp a.img:/one one");
        assert_eq!(fs::read(dir.join("one")).unwrap(), boot_id);
        ok(dir, "cp a.img:/large large");
        assert!(fs::read(dir.join("large")).unwrap() == symbols);
        ok(dir, "cp -r a.img:/tree tree");
        assert_eq!(fs::read(dir.join("tree/boot_id")).unwrap(), boot_id);
        assert_eq!(fs::read_to_string(dir.join("tree/uuid")).unwrap().len(), 37);
        // A file whose size differs from the reported one is named in the error, and no part of it
        // is kept.
        let enabled = "/sys/kernel/mm/transparent_hugepage/enabled";
        if Path::new(enabled).exists() {
            let said = fails(dir, &format!("cp {enabled} a.img:/shorter"), 4);
            assert!(said.contains(enabled), "{said}");
            assert!(!paths(dir, "a.img").contains(&"/shorter".to_owned()));
        }
    });
}
