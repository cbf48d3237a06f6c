//! `diff` of container images, archives and manifests.

use std::fs::{self, File};
use std::path::Path;

use serde_json::{Value, json};
use testkit::require;

use super::rules::{layout, oracle_digest};
use super::tarball::{Member, dir, file, link, tar};
use crate::edit::common::run;
use crate::layers::common::{FORMATS, assert_equal, build, make};
use crate::program::{diskwright, fails, ok};

/// Runs `diff`, which must find differences. Returns its output.
#[track_caller]
fn differences(dir: &Path, line: &str) -> String {
    let output = run(dir, &line.split_whitespace().collect::<Vec<_>>());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*said), (Some(1), ""), "{line}");
    String::from_utf8(output.stdout).unwrap()
}

fn lower() -> Vec<Member> {
    vec![dir("d"), file("d/x", "1"), file("f", "old"), file("gone", ""), link("l", "f")]
}

fn upper() -> Vec<Member> {
    vec![file("f", "new"), file(".wh.gone", ""), file("d/y", "2")]
}

/// Returns an archive in the form that `docker save` wrote before layouts.
fn docker_archive(layers: &[Vec<u8>]) -> Vec<u8> {
    let diff_ids: Vec<_> =
        layers.iter().map(|layer| format!("sha256:{}", oracle_digest(layer))).collect();
    let config = json!({
        "architecture": "amd64", "os": "linux", "rootfs": { "type": "layers", "diff_ids": diff_ids },
    });
    let names: Vec<_> = (0..layers.len()).map(|number| format!("{number}/layer.tar")).collect();
    let manifest = json!([{ "Config": "c.json", "RepoTags": ["web:latest"], "Layers": names }]);
    let member = |name: &str, bytes: Vec<u8>| Member::File(name.into(), bytes);
    let mut members: Vec<_> =
        names.iter().zip(layers).map(|(name, layer)| member(name, layer.clone())).collect();
    members.push(member("c.json", serde_json::to_vec(&config).unwrap()));
    members.push(member("manifest.json", serde_json::to_vec(&manifest).unwrap()));
    tar(&members)
}

/// Creates a layout of the lower layer alone and one of both, and archives of both.
fn containers(home: &Path) {
    let layers = [tar(&lower()), tar(&upper())];
    layout(&home.join("lowest"), &layers[..1]);
    layout(&home.join("all"), &layers);
    fs::write(home.join("saved.tar"), docker_archive(&layers)).unwrap();
    packed(home, &["-czf", "all.tgz", "-C", "all", "."]);
}

const EXPECTED: &str = "A /d/y\nM /f: contents\nD /gone\nM /l: links\n";

#[test]
fn a_container_image_as_a_side_equals_its_build() {
    require!(Tool("tar"));
    let home = testkit::scratch();
    let home = home.path();
    containers(home);
    let names = ["oci:all", "oci-archive:all.tgz", "docker-archive:saved.tar:web"];
    for format in FORMATS {
        build(home, "oci:all", "all.img", &format!("{format} --force"));
        for name in names {
            assert_equal(home, name, "all.img");
            assert_equal(home, "all.img", name);
            assert_equal(home, names[0], name);
        }
        let told = differences(home, "diff oci:lowest all.img --ignore times,owner");
        assert_eq!(told, EXPECTED, "{format}");
    }
    let told = differences(home, "diff oci:lowest oci:all");
    assert!(told.contains("M /f: owner 2:7 → 0:7, mtime "), "{told}");
    let whole = differences(home, "diff oci:lowest oci:all --json --ignore times,owner");
    let whole: Value = serde_json::from_str(&whole).unwrap();
    let paths: Vec<_> =
        whole["changes"].as_array().unwrap().iter().map(|change| &change["path"]).collect();
    assert_eq!(paths, ["/d/y", "/f", "/gone", "/l"]);
    assert_eq!(
        (&whole["added"], &whole["removed"], &whole["modified"]),
        (&1.into(), &1.into(), &2.into())
    );
    let input = File::open(home.join("all.tgz")).unwrap();
    let line = ["diff", "oci-archive:-", "oci:all"];
    let output = diskwright().args(line).current_dir(home).stdin(input).output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
}

#[test]
fn a_layer_between_container_images_turns_one_into_the_other() {
    require!(Tool("e2fsck"), Tool("xfs_repair"), Tool("tar"));
    let home = testkit::scratch();
    let home = home.path();
    containers(home);
    ok(home, "diff oci:lowest docker-archive:saved.tar -o layer.tar.zst");
    for format in FORMATS {
        build(home, "oci:lowest", "a.img", &format!("{format} --force"));
        ok(home, "apply layer.tar.zst a.img");
        testkit::judge(home.join("a.img"));
        assert_equal(home, "a.img", "oci:all");
        // The reverse, from the image.
        ok(home, "diff a.img oci:lowest -o back.tar --force");
        ok(home, "apply back.tar a.img");
        assert_equal(home, "oci:lowest", "a.img");
    }
}

/// Creates a tree with properties that archives store: several names, holes, links, fractions of
/// seconds.
fn tree(home: &Path) {
    let root = home.join("a");
    make(&root, &["dir/kept", "dir/sub/", "other"]);
    fs::hard_link(root.join("other"), root.join("dir/again")).unwrap();
    std::os::unix::fs::symlink("../other", root.join("dir/link")).unwrap();
    let sparse = File::create(root.join("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"end", 3 << 20).unwrap();
    sparse.set_len(5 << 20).unwrap();
}

fn packed(home: &Path, options: &[&str]) {
    let mut command = testkit::command("tar");
    let status = command.args(options).current_dir(home).status().unwrap();
    assert!(status.success(), "{options:?}");
}

#[test]
fn archives_are_sides_whatever_their_form() {
    require!(Tool("tar"), Tool("gzip"), Tool("zstd"));
    let home = testkit::scratch();
    let home = home.path();
    tree(home);
    for options in [
        &["--format=posix", "--sparse", "-cf"][..],
        &["--format=gnu", "-cf"],
        &["--format=posix", "-czf"],
        &["--format=posix", "--sparse", "--zstd", "-cf"],
    ] {
        packed(home, &[options, &["x.tar", "-C", "a", "."]].concat());
        assert_equal(home, "a", "x.tar");
        assert_equal(home, "x.tar", "a");
        let input = File::open(home.join("x.tar")).unwrap();
        let line = ["diff", "-", "a"];
        let output = diskwright().args(line).current_dir(home).stdin(input).output().unwrap();
        assert!(output.status.success() && output.stdout.is_empty(), "{options:?}: {output:?}");
    }
    for format in FORMATS {
        build(home, "x.tar", "x.img", &format!("{format} --force"));
        assert_equal(home, "x.img", "x.tar");
    }
    fs::write(home.join("a/other"), "OTHER").unwrap();
    fs::remove_file(home.join("a/dir/kept")).unwrap();
    let told = differences(home, "diff x.tar a --ignore times");
    assert_eq!(told, "M /dir/again: contents\nD /dir/kept\n");
    ok(home, "diff x.tar a -o layer.tar");
    ok(home, "apply layer.tar x.img");
    assert_equal(home, "x.img", "a");
}

/// A directory that exists only as part of paths has no modification time.
#[test]
fn directories_that_an_archive_does_not_list_have_no_time() {
    require!(Tool("tar"));
    let home = testkit::scratch();
    let home = home.path();
    tree(home);
    packed(home, &["-cf", "part.tar", "-C", "a", "dir/kept", "other"]);
    build(home, "part.tar", "part.img", FORMATS[0]);
    assert_equal(home, "part.tar", "part.img");
    ok(home, "chmod part.img 0700 /dir");
    assert_eq!(differences(home, "diff part.tar part.img"), "M /dir: mode 0755 → 0700\n");
}

#[test]
fn a_manifest_is_a_side() {
    let home = testkit::scratch();
    let home = home.path();
    make(&home.join("a"), &["dir/kept", "other"]);
    let manifest = "#mtree\n. type=dir\n./dir type=dir\n./dir/kept type=file\n./other type=file\n";
    fs::write(home.join("list"), manifest).unwrap();
    assert_equal(home, "mtree:list:a", "a");
    fs::write(home.join("list"), manifest.replace("./other type=file\n", "")).unwrap();
    assert_eq!(differences(home, "diff mtree:list:a a"), "A /other\n");
}

#[test]
fn sides_that_cannot_be_are_refused_by_name() {
    let home = testkit::scratch();
    let home = home.path();
    containers(home);
    make(&home.join("a"), &["x"]);
    let refused = |line: &str, status: i32, words: &[&str]| {
        let said = fails(home, line, status);
        for word in words {
            assert!(said.contains(word), "{line}: {word:?} is missing: {said}");
        }
    };
    refused("diff - -", 2, &["standard input"]);
    refused("diff oci-archive:- -", 2, &["standard input"]);
    refused("diff a a --platform linux/amd64", 2, &["requires a container image"]);
    refused("diff oci: a", 2, &["has no file name"]);
    refused("diff oci:nothing a", 4, &["nothing"]);
    refused("diff oci:all:v7 a", 1, &["does not contain image \"v7\""]);
    refused("diff a oci:all --platform linux/arm64", 1, &["linux/amd64"]);
    fs::write(home.join("twice.tar"), tar(&[file("f", "1"), file("f", "2")])).unwrap();
    refused("diff twice.tar a", 3, &["twice.tar", "\"f\"", "listed more than once"]);
    fs::write(home.join("lost.tar"), tar(&[link("f", "nowhere")])).unwrap();
    refused("diff a lost.tar", 3, &["lost.tar", "\"nowhere\"", "hard link"]);
    fs::write(home.join("below.tar"), tar(&[file("f", ""), file("f/x", "")])).unwrap();
    refused("diff below.tar a", 3, &["below.tar", "\"f/x\"", "not a directory"]);
    fs::write(home.join("climb.tar"), tar(&[file("d/../../f", "")])).unwrap();
    refused("diff climb.tar a", 3, &["climb.tar", "\"..\""]);
    let whole = tar(&[file("f", &"much ".repeat(5000))]);
    fs::write(home.join("cut.tar"), &whole[..9000]).unwrap();
    refused("diff cut.tar a", 3, &["cut.tar", "ends in the middle"]);
    fs::write(home.join("bz.tar"), b"BZh91AY&SY").unwrap();
    refused("diff bz.tar a", 3, &["bz.tar", "bzip2"]);
}

#[test]
fn layers_that_decompress_beyond_the_limit_are_refused() {
    require!(Tool("gzip"));
    let home = testkit::scratch();
    let home = home.path();
    make(&home.join("a"), &["x"]);
    fs::write(home.join("bomb.tar"), tar(&[Member::File("f".into(), vec![0; 3 << 20])])).unwrap();
    let packed = testkit::command("gzip").arg("bomb.tar").current_dir(home).status().unwrap();
    assert!(packed.success());
    let said = fails(home, "diff bomb.tar.gz a --layer-limit 2M", 3);
    assert!(said.contains("bomb.tar.gz") && said.contains("--layer-limit"), "{said}");
    assert_eq!(differences(home, "diff bomb.tar.gz a --ignore times,owner,mode"), "D /f\nA /x\n");
}
