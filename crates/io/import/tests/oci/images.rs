//! Selection among several images, and their storage.

use std::fs;
use std::path::Path;

use import::oci::ImageOptions;
use serde_json::{Value, json};

use super::common::{
    PACKINGS, Packing, blob, digest, dir, file, image, layout, load, options, pack, refused, tar,
};
use super::model::lines;
use crate::common::collect;

/// Creates a layout of one file whose name identifies the image.
fn named(path: &Path, name: &str, architecture: &str) -> Value {
    image(path, &[(tar(&[file(name, "")]), Packing::Gzip)], architecture)
}

#[track_caller]
fn content(reference: &str, options: &ImageOptions) -> String {
    let image = load(reference, options).unwrap();
    let items = collect(&mut image.source()).unwrap();
    items.last().unwrap().path.clone()
}

fn with(mut descriptor: Value, key: &str, value: Value) -> Value {
    descriptor[key] = value;
    descriptor
}

fn tagged(descriptor: Value, name: &str) -> Value {
    let annotations = json!({ "org.opencontainers.image.ref.name": name });
    with(descriptor, "annotations", annotations)
}

fn platform(descriptor: Value, architecture: &str, variant: Option<&str>) -> Value {
    let mut platform = json!({ "os": "linux", "architecture": architecture });
    if let Some(variant) = variant {
        platform["variant"] = variant.into();
    }
    with(descriptor, "platform", platform)
}

#[test]
fn images_are_chosen_by_name_and_digest() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let (one, two) = (named(path, "one", "amd64"), named(path, "two", "amd64"));
    let second = two["digest"].as_str().unwrap().to_owned();
    layout(path, &[tagged(one, "v1"), tagged(two, "docker.io/x:v2")]);
    let (options, oci) = (options(path), format!("oci:{}", path.display()));
    assert_eq!(content(&format!("{oci}:v1"), &options), "one");
    assert_eq!(content(&format!("{oci}:docker.io/x:v2"), &options), "two");
    assert_eq!(content(&format!("{oci}@{second}"), &options), "two");
    let said = refused(&oci, &options);
    assert!(said.contains("several images") && said.contains("\"v1\""), "{said}");
    let said = refused(&format!("{oci}:v3"), &options);
    assert!(said.contains("does not contain image \"v3\"") && said.contains("x:v2"), "{said}");
    let missing = digest(b"nothing");
    assert!(refused(&format!("{oci}@{missing}"), &options).contains(&missing));
}

#[test]
fn platforms_are_chosen_in_nested_indexes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let images = [
        platform(named(path, "arm64", "arm64"), "arm64", Some("v8")),
        platform(named(path, "arm6", "arm"), "arm", Some("v6")),
        platform(named(path, "arm7", "arm"), "arm", Some("v7")),
        platform(blob(path, b"{}", "application/vnd.oci.image.manifest.v1+json"), "unknown", None),
    ];
    let index = json!({ "schemaVersion": 2, "manifests": images });
    let index = serde_json::to_vec(&index).unwrap();
    let index = blob(path, &index, "application/vnd.oci.image.index.v1+json");
    layout(path, &[tagged(index, "latest")]);
    let oci = format!("oci:{}:latest", path.display());
    let of = |platform: &str| ImageOptions {
        platform: Some(platform.parse().unwrap()),
        ..options(path)
    };
    assert_eq!(content(&oci, &of("linux/arm64")), "arm64");
    assert_eq!(content(&oci, &of("linux/arm/v7")), "arm7");
    assert_eq!(content(&oci, &of("linux/arm")), "arm6");
    let said = refused(&oci, &of("linux/s390x"));
    assert!(said.contains("linux/s390x") && said.contains("linux/arm/v7"), "{said}");
    layout(path, &[named(path, "only", "riscv64")]);
    let oci = format!("oci:{}", path.display());
    assert_eq!(content(&oci, &options(path)), "only");
    assert!(refused(&oci, &of("linux/amd64")).contains("linux/riscv64"));
}

/// Creates an archive of a directory's files, in this order.
fn archive_of(directory: &Path, names: &[String]) -> Vec<u8> {
    let members: Vec<_> = names
        .iter()
        .map(|name| {
            let data = fs::read(directory.join(name)).unwrap();
            super::common::member(name, super::common::MemberKind::File(data))
        })
        .collect();
    tar(&members)
}

fn files_in(directory: &Path) -> Vec<String> {
    let mut names = vec!["oci-layout".to_owned(), "index.json".to_owned()];
    for blob in fs::read_dir(directory.join("blobs/sha256")).unwrap() {
        names.push(format!("blobs/sha256/{}", blob.unwrap().file_name().to_str().unwrap()));
    }
    names.sort();
    names
}

#[test]
fn archives_of_layouts_are_read_in_any_order_and_packing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let layers = [
        (tar(&[dir("d"), file("d/plain", "data")]), Packing::Plain),
        (tar(&[file("d/zstd", "more")]), Packing::Zstd),
    ];
    layout(path, &[tagged(image(path, &layers, "amd64"), "v1")]);
    let expected = {
        let image = load(&format!("oci:{}", path.display()), &options(path)).unwrap();
        lines(&collect(&mut image.source()).unwrap())
    };
    let names = files_in(path);
    let reversed: Vec<_> = names.iter().rev().cloned().collect();
    for names in [names, reversed] {
        let plain = archive_of(path, &names);
        for packing in super::common::PACKINGS {
            let archive = path.join("archive");
            fs::write(&archive, pack(&plain, packing)).unwrap();
            let reference = format!("oci-archive:{}:v1", archive.display());
            let image = load(&reference, &options(path)).unwrap();
            assert_eq!(lines(&collect(&mut image.source()).unwrap()), expected);
            assert!(String::from_utf8_lossy(image.config()).contains("A=b"));
        }
    }
}

/// The old format of `docker save`, before layouts: a directory per layer, with links between them.
fn docker_archive(tags: &[&str]) -> Vec<u8> {
    let layers = [tar(&[file("a", "1")]), tar(&[file("b", "2")]), tar(&[file("b", "2")])];
    let diff_ids: Vec<_> = layers.iter().map(|layer| digest(layer)).collect();
    let config = json!({
        "architecture": "amd64", "os": "linux", "rootfs": { "type": "layers", "diff_ids": diff_ids },
    });
    let config = serde_json::to_vec(&config).unwrap();
    let config_name = format!("{}.json", digest(&config).replace("sha256:", ""));
    let manifest = json!([{
        "Config": config_name, "RepoTags": tags,
        "Layers": ["0/layer.tar", "1/layer.tar", "2/layer.tar"],
    }]);
    let bytes = |path: &str, data: &[u8]| {
        super::common::member(path, super::common::MemberKind::File(data.to_vec()))
    };
    tar(&[
        bytes("0/layer.tar", &layers[0]),
        bytes("1/layer.tar", &pack(&layers[1], Packing::Gzip)),
        super::common::symlink("2/layer.tar", "../1/layer.tar"),
        bytes(&config_name, &config),
        bytes("manifest.json", &serde_json::to_vec(&manifest).unwrap()),
    ])
}

#[test]
fn archives_of_docker_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let archive = directory.path().join("saved.tar");
    fs::write(&archive, docker_archive(&["web:latest", "web:1"])).unwrap();
    let options = options(directory.path());
    let docker = format!("docker-archive:{}", archive.display());
    for name in ["", ":web", ":web:1", ":web:latest"] {
        let image = load(&format!("{docker}{name}"), &options).unwrap();
        let found = lines(&collect(&mut image.source()).unwrap());
        assert!(found[1].starts_with("a: file \"1\"") && found[2].starts_with("b: file \"2\""));
    }
    let said = refused(&format!("{docker}:web:2"), &options);
    assert!(said.contains("web:latest, web:1"), "{said}");
    assert!(
        refused(&format!("oci-archive:{}", archive.display()), &options).contains("oci-layout")
    );
}

/// `umoci insert` writes such layers, and all unpackers accept them.
#[test]
fn layers_may_end_without_the_marker_of_an_archive() {
    for packing in PACKINGS {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let mut unmarked = tar(&[file("a", "data")]);
        unmarked.truncate(unmarked.len() - 1024);
        let layers = [(tar(&[file("b", "")]), packing), (unmarked, packing), (Vec::new(), packing)];
        layout(path, &[image(path, &layers, "amd64")]);
        assert_eq!(content(&format!("oci:{}", path.display()), &options(path)), "b");
    }
}
