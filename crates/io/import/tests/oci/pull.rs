//! Images from a registry, which is a thread of the test that serves a layout.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use import::oci::ImageOptions;
use serde_json::{Value, json};

use super::common::{Member, PACKINGS, dir, file, image, layout_of, link, load, options, tar};
use super::model::lines;
use crate::common::collect;

/// Misbehaviour of a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RegistryFault {
    None,
    /// Truncates a number of responses with a blob in the middle.
    Cut(usize),
    /// The same, but always sends the whole blob.
    CutWithoutRanges(usize),
    /// Sends more bytes than in the descriptor.
    Long,
    /// Sends bytes that do not match the digest.
    Flipped,
    Unauthorized,
    NoBlobs,
}

/// Serves a layout's blobs as the repository `a/b`, and its first manifest as the tag `v1`.
struct Registry {
    address: String,
}

impl Registry {
    fn serve(layout: &Path, fault: RegistryFault) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (layout, cuts) = (layout.to_owned(), Arc::new(AtomicUsize::new(0)));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (layout, cuts) = (layout.clone(), Arc::clone(&cuts));
                std::thread::spawn(move || connection(stream.unwrap(), &layout, fault, &cuts));
            }
        });
        Self { address }
    }

    fn image(&self, name: &str) -> String {
        format!("docker://{}/a/b{name}", self.address)
    }
}

/// Handles the requests of one connection, until the client or a response ends it.
fn connection(stream: TcpStream, layout: &Path, fault: RegistryFault, cuts: &AtomicUsize) {
    let mut requests = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if requests.read_until(b'\n', &mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let head = String::from_utf8(head).unwrap();
        let path = head.split(' ').nth(1).unwrap();
        if !answer(&stream, &head, path, layout, fault, cuts) {
            return;
        }
    }
}

/// Handles a request. Returns whether the connection continues.
fn answer(
    mut stream: &TcpStream,
    head: &str,
    path: &str,
    layout: &Path,
    fault: RegistryFault,
    cuts: &AtomicUsize,
) -> bool {
    let mut send = |status: &str, fields: &str, len: usize, body: &[u8]| {
        let head = format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {len}\r\n\r\n");
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).is_ok()
            && body.len() == len
    };
    if path == "/v2/" {
        return send("200 OK", "", 2, b"{}");
    }
    let (kind, name) = path.strip_prefix("/v2/a/b/").unwrap().split_once('/').unwrap();
    let digest = if name == "v1" { first_manifest(layout) } else { name.to_owned() };
    let Ok(mut bytes) = fs::read(layout.join("blobs").join(digest.replace(':', "/"))) else {
        let body = br#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"not known"}]}"#;
        return send("404 Not Found", "", body.len(), body);
    };
    let fields = format!("Docker-Content-Digest: {digest}\r\n");
    if kind == "manifests" {
        if fault == RegistryFault::Unauthorized {
            return send("401 Unauthorized", "", 0, b"");
        }
        return send("200 OK", &fields, bytes.len(), &bytes);
    }
    match fault {
        RegistryFault::NoBlobs => return send("503 Service Unavailable", "", 0, b""),
        RegistryFault::Long => bytes.push(0),
        RegistryFault::Flipped => bytes[0] ^= 1,
        _ => {}
    }
    let range = head.lines().find_map(|line| {
        let value = line.to_ascii_lowercase().strip_prefix("range: bytes=")?.to_owned();
        value.split('-').next()?.parse::<usize>().ok()
    });
    let is_ranged = !matches!(fault, RegistryFault::CutWithoutRanges(_));
    let from = range.filter(|_| is_ranged);
    let rest = &bytes[from.unwrap_or(0)..];
    let most = match fault {
        RegistryFault::Cut(most) | RegistryFault::CutWithoutRanges(most) => most,
        _ => 0,
    };
    let is_cut = most > 0 && cuts.fetch_add(1, Ordering::SeqCst) < most;
    let sent = if is_cut { &rest[..rest.len() / 2] } else { rest };
    match from {
        Some(_) => send("206 Partial Content", &fields, rest.len(), sent),
        None => send("200 OK", &fields, rest.len(), sent),
    }
}

fn first_manifest(layout: &Path) -> String {
    let index: Value =
        serde_json::from_slice(&fs::read(layout.join("index.json")).unwrap()).unwrap();
    index["manifests"][0]["digest"].as_str().unwrap().to_owned()
}

fn layers() -> [Vec<Member>; 3] {
    [
        vec![dir("d"), file("d/a", &"contents ".repeat(1000)), file("gone", "")],
        vec![link("d/b", "d/a"), file(".wh.gone", "")],
        vec![file("c", &"other ".repeat(5000)).owner(70_000, 1)],
    ]
}

fn tree(reference: &str, beside: &Path) -> Vec<String> {
    let image = load(reference, &options(beside)).unwrap();
    lines(&collect(&mut image.source()).unwrap())
}

fn refused(reference: &str, options: &ImageOptions) -> String {
    load(reference, options).map(drop).unwrap_err().to_string()
}

/// Returns a layout of three layers, and the equivalent directory.
fn made(path: &Path) -> (PathBuf, Vec<String>) {
    let layout = path.join("layout");
    fs::create_dir(&layout).unwrap();
    layout_of(&layout, &layers());
    let expected = tree(&format!("oci:{}", layout.display()), path);
    assert!(expected.len() > 3);
    (layout, expected)
}

#[test]
fn an_image_of_a_registry_is_that_of_the_layout() {
    let directory = tempfile::tempdir().unwrap();
    let (layout, expected) = made(directory.path());
    let registry = Registry::serve(&layout, RegistryFault::None);
    let digest = first_manifest(&layout);
    for name in [":v1".to_owned(), format!("@{digest}")] {
        assert_eq!(tree(&registry.image(&name), directory.path()), expected, "{name}");
    }
    let left: Vec<_> = fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "nothing lies beside the layout: {left:?}");
}

#[test]
fn interrupted_downloads_are_resumed() {
    let directory = tempfile::tempdir().unwrap();
    let (layout, expected) = made(directory.path());
    for fault in [RegistryFault::Cut(3), RegistryFault::CutWithoutRanges(2), RegistryFault::Cut(6)]
    {
        let registry = Registry::serve(&layout, fault);
        assert_eq!(tree(&registry.image(":v1"), directory.path()), expected, "{fault:?}");
    }
}

#[test]
fn platforms_are_chosen_in_the_index_of_a_registry() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let one = |name: &str, architecture: &str| {
        let mut descriptor = image(path, &[(tar(&[file(name, "")]), PACKINGS[0])], architecture);
        descriptor["platform"] = json!({ "os": "linux", "architecture": architecture });
        descriptor
    };
    let index = json!({ "schemaVersion": 2, "manifests": [one("x", "amd64"), one("y", "arm64")] });
    let index = serde_json::to_vec(&index).unwrap();
    let index = super::common::blob(path, &index, "application/vnd.oci.image.index.v1+json");
    super::common::layout(path, &[index]);
    let registry = Registry::serve(path, RegistryFault::None);
    let mut options = options(path);
    for (platform, name) in [("linux/amd64", "x"), ("linux/arm64", "y")] {
        options.platform = Some(platform.parse().unwrap());
        let image = load(&registry.image(":v1"), &options).unwrap();
        assert_eq!(collect(&mut image.source()).unwrap().last().unwrap().path, name);
    }
    options.platform = Some("linux/riscv64".parse().unwrap());
    let said = refused(&registry.image(":v1"), &options);
    assert!(said.contains("linux/riscv64") && said.contains("linux/arm64"), "{said}");
}

#[test]
fn wrong_or_failing_registries_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let (layout, _) = made(directory.path());
    let options = options(directory.path());
    for (fault, name, words) in [
        (RegistryFault::None, ":v2", &["not known"][..]),
        (RegistryFault::Long, ":v1", &["blobs/sha256/", "wrong size (expected"]),
        (RegistryFault::Flipped, ":v1", &["blobs/sha256/", "digest"]),
        (RegistryFault::Unauthorized, ":v1", &["docker login"]),
        (RegistryFault::NoBlobs, ":v1", &["503"]),
        (RegistryFault::Cut(1000), ":v1", &["docker://127.0.0.1:"]),
    ] {
        let registry = Registry::serve(&layout, fault);
        let said = refused(&registry.image(name), &options);
        for word in words {
            assert!(said.contains(word), "{fault:?}: {word:?} is missing: {said}");
        }
    }
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let said = refused(&format!("docker://{nobody}/a:v1"), &options);
    assert!(said.contains("refused"), "{said}");
}
