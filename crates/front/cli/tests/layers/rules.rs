//! Layers applied one after the other give the same result as the flattened container image.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use testkit::require;

use super::tarball::{Member, dir, file, link, symlink, tar};
use crate::edit::common::run;
use crate::layers::common::{FORMATS, assert_equal, build, make};
use crate::program::ok;

/// Stores a blob of a layout. Returns its descriptor.
fn blob(layout: &Path, bytes: &[u8], media_type: &str) -> Value {
    let digest = oracle_digest(bytes);
    let path = layout.join("blobs/sha256").join(&digest);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
    json!({ "mediaType": media_type, "digest": format!("sha256:{digest}"), "size": bytes.len() })
}

pub(super) fn oracle_digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Creates the layout of an image with these layers.
pub(super) fn layout(path: &Path, layers: &[Vec<u8>]) {
    let _ = fs::remove_dir_all(path);
    let digests = layers.iter().map(|layer| format!("sha256:{}", oracle_digest(layer)));
    let config = json!({
        "architecture": "amd64", "os": "linux",
        "rootfs": { "type": "layers", "diff_ids": digests.collect::<Vec<_>>() },
    });
    let config = serde_json::to_vec(&config).unwrap();
    let config = blob(path, &config, "application/vnd.oci.image.config.v1+json");
    let kind = "application/vnd.oci.image.layer.v1.tar";
    let layers: Vec<Value> = layers.iter().map(|layer| blob(path, layer, kind)).collect();
    let manifest = json!({ "schemaVersion": 2, "config": config, "layers": layers });
    let manifest = serde_json::to_vec(&manifest).unwrap();
    let manifest = blob(path, &manifest, "application/vnd.oci.image.manifest.v1+json");
    let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
    fs::write(path.join("index.json"), serde_json::to_vec(&index).unwrap()).unwrap();
    fs::write(path.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
}

/// Flattens layers, and applies them one by one to an image of the lowest. Both results must be
/// equal. Returns whether the layers can be applied.
fn alike(dir: &Path, layers: &[Vec<Member>], format: &str) -> bool {
    let tars: Vec<Vec<u8>> = layers.iter().map(|members| tar(members)).collect();
    layout(&dir.join("all"), &tars);
    layout(&dir.join("lowest"), &tars[..1]);
    let words = |line: String| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let program =
        |line: String| run(dir, &words(line).iter().map(String::as_str).collect::<Vec<_>>());
    let size = "--size 16M --force";
    let flat = program(format!("build oci:all flat.img {size} {format}"));
    let lowest = program(format!("build oci:lowest a.img {size} {format}"));
    if !lowest.status.success() {
        assert!(!flat.status.success());
        return false;
    }
    for (number, layer) in tars[1..].iter().enumerate() {
        fs::write(dir.join("layer.tar"), layer).unwrap();
        let applied = program("apply layer.tar a.img".into());
        if !applied.status.success() {
            let said = String::from_utf8_lossy(&applied.stderr);
            assert_eq!(applied.status.code(), Some(3), "{number}: {said}");
            assert_eq!(flat.status.code(), Some(3), "layer {number}: {said}: {layers:?}");
            testkit::judge(dir.join("a.img"));
            return false;
        }
    }
    let said = String::from_utf8_lossy(&flat.stderr);
    assert!(flat.status.success(), "{said}: {layers:?}");
    testkit::judge(dir.join("a.img"));
    let differs = run(dir, &["diff", "flat.img", "a.img"]);
    let told = String::from_utf8_lossy(&differs.stdout);
    assert!(differs.status.success(), "{told}: {layers:?}");
    true
}

fn random_path(random: &mut fastrand::Rng) -> String {
    // Few names are both directories and files, so that most paths exist.
    let mut parts = Vec::new();
    for _ in 0..random.usize(..3) {
        parts.push(random.choice(["a", "b", "l"]).unwrap());
    }
    parts.push(random.choice(["a", "c", "d", "e", "l"]).unwrap());
    parts.join("/")
}

fn random_member(random: &mut fastrand::Rng, number: usize) -> Member {
    let path = random_path(random);
    let beside = |name: &str| match path.rsplit_once('/') {
        Some((parent, last)) => (format!("{parent}/{name}"), last.to_owned()),
        None => (name.to_owned(), path.clone()),
    };
    match random.u8(..16) {
        0..=5 => dir(&path),
        6 | 7 => file(&path, &format!("contents {number}")),
        8 | 9 => {
            let (_, last) = beside("");
            file(&beside(&format!(".wh.{last}")).0, "")
        }
        10 => file(&format!("{path}/.wh..wh..opq"), ""),
        11 => link(&path, &random_path(random)),
        12 | 13 => Member::Fifo(path),
        _ => {
            let targets = ["a", "/b", "../c", "b/c", "nowhere"];
            symlink(&path, random.choice(targets).unwrap())
        }
    }
}

#[test]
fn applying_layers_is_flattening_them() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    let home = testkit::scratch();
    let mut random = fastrand::Rng::with_seed(testkit::effort(5, 5, 6));
    let (mut good, rounds) = (0, testkit::effort(20, 60, 1500));
    for round in 0..rounds {
        let layers: Vec<Vec<Member>> = (0..random.usize(2..4))
            .map(|_| (0..random.usize(..9)).map(|n| random_member(&mut random, n)).collect())
            .collect();
        let format = if round % 8 == 7 { FORMATS[1] } else { FORMATS[0] };
        let format = if format == FORMATS[1] { "--fs xfs --small --size 64M" } else { format };
        good += u64::from(alike(home.path(), &layers, format));
    }
    println!("{good} of {rounds} sets of layers can be applied");
    assert!(good * 4 > rounds);
}

#[test]
fn traps_of_the_specification() {
    require!(Tool("e2fsck"));
    let home = testkit::scratch();
    let lower =
        vec![dir("d"), file("d/x", "1"), link("d/y", "d/x"), symlink("l", "d"), file("f", "2")];
    let good: [Vec<Member>; 8] = [
        // A whiteout hides nothing of its own layer, at any position.
        vec![file("d/x", "new"), file("d/.wh.x", ""), file("d/.wh.y", "")],
        vec![file("d/z", "new"), file("d/.wh..wh..opq", "")],
        // A hard link to a file that its own layer hides.
        vec![file("d/.wh.x", ""), file("d/.wh.y", ""), link("moved", "d/x")],
        // Whiteouts that are hard links to each other.
        vec![file(".wh.f", ""), link("d/.wh.x", ".wh.f")],
        // Changes of type.
        vec![file("d", "a file now"), dir("f"), file("f/inside", "")],
        // Through a link, and instead of it.
        vec![file("l/through", "3")],
        vec![dir("l"), file("l/own", "4"), file("l/.wh.x", "")],
        // Directories without entries, and missing paths.
        vec![file("p/q/r", "5"), file(".wh.nothing", ""), file("no/such/.wh.place", "")],
    ];
    for layer in good {
        assert!(alike(home.path(), &[lower.clone(), layer.clone()], FORMATS[0]), "{layer:?}");
    }
    let bad: [Vec<Member>; 4] = [
        vec![link("x", "nowhere")],
        vec![link("x", "d")],
        vec![file("f/below", "")],
        vec![symlink("m", "n"), symlink("n", "m"), file("m/x", "")],
    ];
    for layer in bad {
        assert!(!alike(home.path(), &[lower.clone(), layer.clone()], FORMATS[0]), "{layer:?}");
    }
}

/// A directory has the same meaning as a tar of it. If opaque markers empty it, files that ext4
/// needs are kept.
#[test]
fn a_directory_is_a_layer() {
    require!(Tool("e2fsck"), Tool("xfs_repair"), Root);
    let home = testkit::scratch();
    let dir = home.path();
    for format in FORMATS {
        make(&dir.join("a"), &["d/x", "d/y", "f", "other"]);
        build(dir, "a", "a.img", &format!("{format} --force"));
        let _ = fs::remove_dir_all(dir.join("layer"));
        make(&dir.join("layer"), &[".wh..wh..opq", "d/y", "new"]);
        ok(dir, "apply layer a.img");
        testkit::judge(dir.join("a.img"));
        fs::remove_file(dir.join("layer/.wh..wh..opq")).unwrap();
        // Removing the marker changed the time of the root.
        let touch = testkit::command("touch").args(["-d", "@1", "layer"]).current_dir(dir).status();
        assert!(touch.unwrap().success());
        ok(dir, "apply layer a.img");
        assert_equal(dir, "layer", "a.img");
    }
}
