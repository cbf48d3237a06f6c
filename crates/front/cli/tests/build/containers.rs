//! Container images as sources, checked with the kernel's view of the resulting images.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use testkit::{Ignore, Tree, assert_same, require, scratch};

use crate::build::common::{
    FORMATS, build, build_command, common_sample, fail, judge_but, mount, names_in,
    same_every_time, sample_in, succeed, tar, without_sockets,
};

use crate::program::diskwright;
use crate::require_all_formats;

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn blob(layout: &Path, bytes: &[u8], media_type: &str) -> Value {
    let digest = digest(bytes);
    let path = layout.join("blobs").join(digest.replace(':', "/"));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
    json!({ "mediaType": media_type, "digest": digest, "size": bytes.len() })
}

/// Creates a layout with layers, each packed by a given program.
fn layout(path: &Path, layers: &[(&Path, &str)]) {
    let mut descriptors = Vec::new();
    let mut diff_ids = Vec::new();
    for &(layer, packer) in layers {
        diff_ids.push(digest(&fs::read(layer).unwrap()));
        let packed = match packer {
            "" => fs::read(layer).unwrap(),
            packer => succeed(testkit::command(packer).arg("-qc").arg(layer)).stdout,
        };
        let suffix = if packer.is_empty() { String::new() } else { format!("+{packer}") };
        let media_type = format!("application/vnd.oci.image.layer.v1.tar{suffix}");
        descriptors.push(blob(path, &packed, &media_type));
    }
    let config = json!({
        "architecture": "amd64", "os": "linux",
        "rootfs": { "type": "layers", "diff_ids": diff_ids },
    });
    let config = serde_json::to_vec(&config).unwrap();
    let config = blob(path, &config, "application/vnd.oci.image.config.v1+json");
    let manifest = json!({ "schemaVersion": 2, "config": config, "layers": descriptors });
    let manifest = serde_json::to_vec(&manifest).unwrap();
    let manifest = blob(path, &manifest, "application/vnd.oci.image.manifest.v1+json");
    let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
    fs::write(path.join("index.json"), serde_json::to_vec(&index).unwrap()).unwrap();
    fs::write(path.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
}

fn oci(layout: &Path) -> PathBuf {
    format!("oci:{}", layout.display()).into()
}

/// Creates a layout of a sample and a change to it. Also returns the resulting tree.
fn sample_layout(home: &Path) -> (PathBuf, Tree) {
    let (source, _) = sample_in(home, &common_sample());
    let (extra, lower, upper) = (source.join("extra"), home.join("0.tar"), home.join("1.tar"));
    fs::create_dir_all(extra.join("dir/inner")).unwrap();
    for name in ["gone", "file", "kept", "dir/inner/x"] {
        fs::write(extra.join(name), name.repeat(9000)).unwrap();
    }
    tar(&source, &lower, &[]);
    fs::remove_file(extra.join("gone")).unwrap();
    fs::remove_file(extra.join("file")).unwrap();
    fs::remove_dir_all(extra.join("dir")).unwrap();
    fs::write(extra.join("dir"), "a file now").unwrap();
    fs::create_dir(extra.join("file")).unwrap();
    fs::write(extra.join("file/inside"), "new").unwrap();
    fs::hard_link(extra.join("file/inside"), extra.join("link")).unwrap();
    let whiteouts = home.join("whiteouts");
    fs::create_dir_all(whiteouts.join("extra")).unwrap();
    fs::write(whiteouts.join("extra/.wh.gone"), "").unwrap();
    let mut command = testkit::command("tar");
    command.args(["--create", "--format=posix", "--no-recursion", "--file"]).arg(&upper);
    command.arg("--directory").arg(&source).args(["extra", "extra/dir", "extra/file"]);
    command.args(["extra/file/inside", "extra/link", "extra/kept"]);
    succeed(command.arg("--directory").arg(&whiteouts).arg("extra/.wh.gone"));
    let path = home.join("layout");
    fs::create_dir(&path).unwrap();
    layout(&path, &[(&lower, "zstd"), (&upper, "gzip")]);
    (path, without_sockets(&Tree::of(&source)))
}

/// Properties that a tar archive does not preserve: GNU tar stores no further names of fifos, and
/// reading changes times.
fn ignored() -> Ignore {
    Ignore { atime: true, ctime: true, ..Ignore::default() }
}

fn expected(tree: &Tree) -> Tree {
    let mut tree = tree.clone();
    for node in tree.nodes.values_mut().filter(|node| node.kind == testkit::NodeKind::Fifo) {
        (node.nlink, node.link_leader) = (1, None);
    }
    tree
}

#[test]
fn the_kernel_shows_the_flattened_tree() {
    require_all_formats!(Tool("tar"), Tool("gzip"), Tool("zstd"), Root);
    let directory = scratch();
    let (layout, tree) = sample_layout(directory.path());
    for format in FORMATS {
        let image = directory.path().join("image");
        build(&oci(&layout), &image, &format!("{format} --force"));
        judge_but(&image, &expected(&tree), &ignored());
    }
}

#[test]
fn layers_kept_apart_are_the_lower_directories_of_an_overlay() {
    require_all_formats!(Tool("tar"), Tool("gzip"), Tool("zstd"), Root, Mount("overlay"));
    let directory = scratch();
    let (layout, tree) = sample_layout(directory.path());
    for format in FORMATS {
        let image = directory.path().join("image");
        build(&oci(&layout), &image, &format!("{format} --force --overlay"));
        testkit::judge(&image);
        let mounted = mount(&image);
        let merged = directory.path().join("merged");
        fs::create_dir_all(&merged).unwrap();
        let lower = format!("lowerdir={0}/1:{0}/0", mounted.path().display());
        let mut command = testkit::command("mount");
        succeed(command.args(["-t", "overlay", "overlay", "-o", &lower]).arg(&merged));
        let found = Tree::of(&merged);
        testkit::unmount_from(&merged);
        let mut ignore = ignored();
        ignore.xattr_prefixes.extend([&b"trusted.SGI_ACL_"[..], b"trusted.overlay."]);
        // An overlay mount counts no subdirectories and hides its own attributes.
        ignore.directory_nlink = true;
        ignore.lost_found = true;
        assert_same(&expected(&tree), &found, &ignore);
    }
}

/// Creates a layout with one small layer.
fn small_layout(home: &Path) -> PathBuf {
    let (source, archive, path) = (home.join("s"), home.join("s.tar"), home.join("layout"));
    fs::create_dir_all(source.join("d")).unwrap();
    fs::create_dir(&path).unwrap();
    for n in 0..50_u8 {
        fs::write(source.join(format!("d/{n}")), vec![n; usize::from(n) * 1000]).unwrap();
    }
    tar(&source, &archive, &[]);
    layout(&path, &[(&archive, "gzip"), (&archive, "")]);
    path
}

#[test]
fn archives_threads_and_standard_input_give_the_same_image() {
    require!(Tool("tar"), Tool("gzip"), Tool("e2fsck"));
    let directory = scratch();
    let home = directory.path();
    let layout = small_layout(home);
    let (first, second, config) = (home.join("1.img"), home.join("2.img"), home.join("c.json"));
    let options = format!("--config {}", config.display());
    succeed(&mut same_every_time(&oci(&layout), &first, &options));
    testkit::judge(&first);
    let found: Value = serde_json::from_slice(&fs::read(&config).unwrap()).unwrap();
    assert_eq!(found["rootfs"]["diff_ids"].as_array().unwrap().len(), 2);
    let same = |what: &str| {
        assert!(fs::read(&first).unwrap() == fs::read(&second).unwrap(), "{what}");
        fs::remove_file(&second).unwrap();
    };
    succeed(&mut same_every_time(&oci(&layout), &second, "--threads 1"));
    same("one thread");
    let archive = home.join("layout.tar");
    tar(&layout, &archive, &[]);
    let from = PathBuf::from(format!("oci-archive:{}", archive.display()));
    succeed(&mut same_every_time(&from, &second, ""));
    same("an archive");
    let mut command = same_every_time(Path::new("oci-archive:-"), &second, "");
    succeed(command.stdin(Stdio::from(File::open(&archive).unwrap())));
    same("standard input");
}

#[test]
fn refused_builds_leave_no_file() {
    require!(Tool("tar"), Tool("gzip"));
    let directory = scratch();
    let home = directory.path();
    let layout = small_layout(home);
    let before = names_in(home);
    let image = home.join("image");
    let config = home.join("config");
    let with_config = format!("--config {}", config.display());
    let said = fail(&mut build_command(&oci(&layout), &image, "--layer-limit 10K"), 3);
    assert!(said.contains("--layer-limit") && said.contains("blobs/sha256/"), "{said}");
    let other = PathBuf::from(format!("oci:{}:no", layout.display()));
    fail(&mut build_command(&other, &image, &with_config), 1);
    let said = fail(&mut build_command(&oci(&layout), &image, "--platform linux/arm64"), 1);
    assert!(said.contains("linux/amd64"), "{said}");
    let small = format!("{with_config} --size 300K");
    fail(&mut build_command(&oci(&layout), &image, &small), 4);
    let said = fail(&mut build_command(&home.join("s"), &image, "--overlay"), 2);
    assert!(said.contains("--overlay requires a container image"), "{said}");
    fail(&mut build_command(Path::new("oci:"), &image, ""), 2);
    fail(diskwright().args(["build", "oci:x"]).arg(&image).arg("--config").arg(&image), 2);
    assert_eq!(names_in(home), before);
}
