//! Images that are inconsistent, escape from their root or grow without end.

use std::fs;
use std::path::Path;

use import::oci::{ImageOptions, Limits};
use serde_json::{Value, json};

use super::common::{
    Member, MemberKind, Packing, blob, blob_path, digest, dir, file, image, layout, layout_of,
    link, manifest, media_type, member, options, pack, refused, symlink, tar,
};

/// Returns the message for a layout, which must be rejected without leaving files next to it.
#[track_caller]
fn said(path: &Path) -> String {
    refused(&format!("oci:{}", path.display()), &options(path))
}

#[track_caller]
fn layers_are_refused(layers: &[Vec<Member>], words: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    layout_of(directory.path(), layers);
    let said = said(directory.path());
    assert!(said.contains("blobs/sha256/"), "no blob is named: {said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is missing: {said}");
    }
}

#[test]
fn entries_with_invalid_paths_are_refused() {
    let one = |entry: Member| layers_are_refused_by(vec![entry]);
    assert!(one(file("a/../../x", "")).contains("\"..\""));
    assert!(one(file("a/.wh...", "")).contains("without a valid name"));
    assert!(one(file(".wh.", "")).contains("without a valid name"));
    assert!(one(file(".wh.a/b", "")).contains("the name of a whiteout"));
    assert!(one(link("a", "../../etc/passwd")).contains("\"..\""));
    layers_are_refused(&[vec![file("a", "")], vec![file("a/b", "")]], &["a/b", "not a directory"]);
    layers_are_refused(&[vec![link("x", "nothing")]], &["\"x\"", "\"nothing\""]);
    layers_are_refused(&[vec![dir("d"), link("x", "d")]], &["which is a directory"]);
    let circle = vec![symlink("l", "m"), symlink("m", "l")];
    layers_are_refused(&[circle, vec![file("l/x", "")]], &["too many symbolic links"]);
    let long = vec![b'a'; 5000];
    layers_are_refused(&[vec![file(long, "")]], &["longer than 4096"]);
    let target = "x/".repeat(3000);
    layers_are_refused(&[vec![symlink("l", &target)]], &["longer than 4096"]);
    // Links make paths longer than any path in the image.
    let deep = ["d"; 1500].join("/");
    let levels = vec![dir(&deep), symlink("l", &deep), dir(format!("{deep}/{deep}"))];
    layers_are_refused(
        &[levels, vec![dir(format!("l/{deep}/{}", ["e"; 500].join("/")))]],
        &["longer"],
    );
}

fn layers_are_refused_by(layer: Vec<Member>) -> String {
    let directory = tempfile::tempdir().unwrap();
    layout_of(directory.path(), &[layer]);
    said(directory.path())
}

/// Creates a layout of one layer with a changed descriptor.
fn described(path: &Path, packed: &[u8], change: impl FnOnce(&mut Value)) {
    let plain = tar(&[file("a", "data")]);
    let mut layer = blob(path, packed, &media_type(Packing::Gzip));
    change(&mut layer);
    let config = json!({
        "architecture": "amd64", "os": "linux",
        "rootfs": { "type": "layers", "diff_ids": [digest(&plain)] },
    });
    let manifest = manifest(path, &config, &[layer]);
    layout(path, &[manifest]);
}

#[test]
fn layers_with_wrong_digests_or_sizes_are_refused() {
    let plain = tar(&[file("a", "data")]);
    let packed = pack(&plain, Packing::Gzip);
    let check = |packed: &[u8], change: &dyn Fn(&mut Value, &Path), words: &[&str]| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        described(path, packed, |layer| change(layer, path));
        let said = said(path);
        for word in words {
            assert!(said.contains(word), "{word:?} is missing: {said}");
        }
    };
    check(&packed, &|layer, _| layer["size"] = 7.into(), &["expected 7 bytes"]);
    let other = |layer: &mut Value, path: &Path| {
        fs::write(blob_path(path, layer), vec![0x1f; layer["size"].as_u64().unwrap() as usize])
            .unwrap();
    };
    check(&packed, &other, &["its media type says gzip"]);
    let flipped = |layer: &mut Value, path: &Path| {
        let blob = blob_path(path, layer);
        let mut bytes = fs::read(&blob).unwrap();
        bytes[20] ^= 1;
        fs::write(blob, bytes).unwrap();
    };
    check(&packed, &flipped, &["wrong digest (expected sha256:"]);
    let says =
        |media: &'static str| move |layer: &mut Value, _: &Path| layer["mediaType"] = media.into();
    check(
        &packed,
        &says("application/vnd.oci.image.layer.v1.tar+zstd"),
        &["says zstd", "are gzip"],
    );
    check(&plain, &|_, _| {}, &["says gzip", "not compressed"]);
    check(&packed, &says("application/vnd.oci.image.layer.v1.tar+gzip+encrypted"), &["encrypted"]);
    check(&packed, &says("application/wasm"), &["application/wasm", "not supported"]);
    let gone = |layer: &mut Value, path: &Path| fs::remove_file(blob_path(path, layer)).unwrap();
    check(&packed, &gone, &["missing", "manifest"]);
    let foreign = |layer: &mut Value, path: &Path| {
        gone(layer, path);
        layer["mediaType"] = "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip".into();
        layer["urls"] = json!(["https://example.com/layer"]);
    };
    check(&packed, &foreign, &["stored elsewhere", "https://example.com/layer"]);
    let fifo = |layer: &mut Value, path: &Path| {
        gone(layer, path);
        fs::create_dir(blob_path(path, layer)).unwrap();
    };
    check(&packed, &fifo, &["not a regular file"]);
    let odd = |layer: &mut Value, _: &Path| layer["digest"] = "sha256:../../../etc/passwd".into();
    check(&packed, &odd, &["a manifest is malformed"]);
    let changed = pack(&tar(&[file("a", "else")]), Packing::Gzip);
    check(&changed, &|_, _| {}, &["wrong digest of the decompressed layer"]);
    let cut = pack(&plain[..1538], Packing::Gzip);
    check(&cut, &|_, _| {}, &["ends in the middle", "\"a\""]);
    let twice = pack(&packed, Packing::Gzip);
    check(&twice, &|_, _| {}, &["not a tar archive"]);
}

#[test]
fn invalid_documents_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    assert!(said(path).contains("oci-layout"));
    layout(path, &[image(path, &[(tar(&[file("a", "")]), Packing::Plain)], "amd64")]);
    for (name, text, word) in [
        ("oci-layout", r#"{"imageLayoutVersion":"2.0.0"}"#, "unsupported version \"2.0.0\""),
        ("oci-layout", "{", "a layout is malformed"),
        ("index.json", "[]", "an index is malformed"),
        ("index.json", r#"{"schemaVersion":2,"manifests":[]}"#, "contain"),
    ] {
        let before = fs::read(path.join(name)).unwrap();
        fs::write(path.join(name), text).unwrap();
        let said = said(path);
        assert!(said.contains(word), "{said}");
        fs::write(path.join(name), before).unwrap();
    }
    let large = fs::File::create(path.join("index.json")).unwrap();
    large.set_len(1 << 40).unwrap();
    assert!(said(path).contains("more than the limit"));
    let config = json!({
        "architecture": "amd64", "os": "linux", "rootfs": { "type": "layers", "diff_ids": [] },
    });
    let layer = blob(path, &tar(&[file("a", "")]), &media_type(Packing::Plain));
    layout(path, &[manifest(path, &config, &[layer])]);
    assert!(said(path).contains("1 layers, but the configuration lists 0"));
    // An index cannot contain itself, but indexes can be nested deeply.
    let mut inner = manifest(path, &config, &[]);
    for _ in 0..20 {
        let index = json!({ "schemaVersion": 2, "manifests": [inner] });
        let index = serde_json::to_vec(&index).unwrap();
        inner = blob(path, &index, "application/vnd.oci.image.index.v1+json");
    }
    layout(path, &[inner]);
    assert!(said(path).contains("more than 8 deep"));
}

/// The manifest and the configuration are blobs like layers.
#[test]
fn manifests_that_name_what_is_missing_or_another_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let manifest = image(path, &[(tar(&[file("a", "")]), Packing::Plain)], "amd64");
    layout(path, std::slice::from_ref(&manifest));
    let place = blob_path(path, &manifest);
    let bytes = fs::read(&place).unwrap();
    let config = serde_json::from_slice::<Value>(&bytes).unwrap()["config"].clone();
    for (descriptor, named_by) in [(&manifest, "index"), (&config, "manifest")] {
        let place = blob_path(path, descriptor);
        let name = descriptor["digest"].as_str().unwrap().replace(':', "/");
        let bytes = fs::read(&place).unwrap();
        let says = |word: &str| {
            let said = said(path);
            assert!(said.contains(&name) && said.contains(word), "{word:?}: {said}");
        };
        fs::remove_file(&place).unwrap();
        says("it is missing, but");
        says(named_by);
        fs::write(&place, &bytes[1..]).unwrap();
        says("wrong size (expected");
        fs::write(&place, bytes.iter().map(|byte| byte ^ 1).collect::<Vec<_>>()).unwrap();
        says("wrong digest (expected sha256:");
        fs::write(&place, &bytes).unwrap();
    }
    assert_eq!(super::common::flatten(path, false).unwrap().len(), 2);
}

#[test]
fn decompression_bombs_are_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let zeros = tar(&[member("zeros", MemberKind::File(vec![0; 20 << 20]))]);
    for packing in super::common::PACKINGS {
        layout(path, &[image(path, &[(zeros.clone(), packing)], "amd64")]);
        let limits = Limits { layer_bytes: Some(10 << 20), ..Limits::default() };
        let options = ImageOptions { limits, ..options(path) };
        let said = refused(&format!("oci:{}", path.display()), &options);
        assert!(said.contains("--layer-limit") && said.contains("10485760"), "{said}");
    }
    let many: Vec<_> = (0..2000).map(|n| file(n.to_string(), "")).collect();
    layout(path, &[image(path, &[(tar(&many), Packing::Zstd)], "amd64")]);
    let limits = Limits { names_bytes: 100_000, ..Limits::default() };
    let said =
        refused(&format!("oci:{}", path.display()), &ImageOptions { limits, ..options(path) });
    assert!(said.contains("more than 100000 bytes of memory"), "{said}");
    // A few entries with long paths imply many directories.
    let deep: Vec<_> = (0..20).map(|n| dir(format!("{n}/{}", ["d"; 2000].join("/")))).collect();
    layout(path, &[image(path, &[(tar(&deep), Packing::Gzip)], "amd64")]);
    let limits = Limits { names_bytes: 1 << 20, ..Limits::default() };
    let said =
        refused(&format!("oci:{}", path.display()), &ImageOptions { limits, ..options(path) });
    assert!(said.contains("more than 1048576 bytes of memory"), "{said}");
    let archive = path.join("archive.gz");
    fs::write(&archive, pack(&zeros, Packing::Gzip)).unwrap();
    let limits = Limits { archive_bytes: 1 << 20, ..Limits::default() };
    let reference = format!("docker-archive:{}", archive.display());
    let said = refused(&reference, &ImageOptions { limits, ..options(path) });
    assert!(said.contains("larger than the limit of 1048576"), "{said}");
    fs::write(&archive, pack(b"no tar at all", Packing::Gzip)).unwrap();
    assert!(refused(&reference, &options(path)).contains("not a tar archive"));
}
