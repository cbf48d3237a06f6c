//! Generated layers and images.
#![allow(unreachable_pub)]

use std::fs;
use std::io::Write;
use std::path::Path;

use import::TarHeader;
use import::oci::{ContainerImage, ImageOptions, Limits, Reference};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::common::{TreeItem, collect};

/// An entry of a layer.
#[derive(Clone, Debug)]
pub struct Member {
    pub path: Vec<u8>,
    pub kind: MemberKind,
    pub mode: u16,
    pub owner: (u32, u32),
    pub mtime: i64,
    pub xattrs: Vec<(String, Vec<u8>)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberKind {
    Directory,
    File(Vec<u8>),
    Symlink(Vec<u8>),
    Hardlink(Vec<u8>),
    Char(u32, u32),
    Fifo,
}

pub fn member(path: impl AsRef<[u8]>, kind: MemberKind) -> Member {
    let mode = if kind == MemberKind::Directory { 0o755 } else { 0o644 };
    let path = path.as_ref().to_vec();
    Member { path, kind, mode, owner: (0, 0), mtime: 1_000_000, xattrs: Vec::new() }
}

pub fn dir(path: impl AsRef<[u8]>) -> Member {
    member(path, MemberKind::Directory)
}

pub fn file(path: impl AsRef<[u8]>, data: &str) -> Member {
    member(path, MemberKind::File(data.into()))
}

pub fn symlink(path: &str, target: &str) -> Member {
    member(path, MemberKind::Symlink(target.into()))
}

pub fn link(path: &str, target: &str) -> Member {
    member(path, MemberKind::Hardlink(target.into()))
}

impl Member {
    pub fn owner(mut self, uid: u32, gid: u32) -> Self {
        self.owner = (uid, gid);
        self
    }

    pub fn mode(mut self, mode: u16) -> Self {
        self.mode = mode;
        self
    }

    pub fn xattr(mut self, name: &str, value: &[u8]) -> Self {
        self.xattrs.push((name.into(), value.into()));
        self
    }
}

fn record(records: &mut Vec<u8>, key: &str, value: &[u8]) {
    let payload = key.len() + value.len() + 3;
    let mut len = payload + 1;
    while payload + len.to_string().len() != len {
        len += 1;
    }
    records.extend_from_slice(format!("{len} {key}=").as_bytes());
    records.extend_from_slice(value);
    records.push(b'\n');
}

fn padded(tar: &mut Vec<u8>, data: &[u8]) {
    tar.extend_from_slice(data);
    tar.resize(tar.len().next_multiple_of(512), 0);
}

/// Returns a layer as an uncompressed tar.
pub fn tar(members: &[Member]) -> Vec<u8> {
    let mut tar = Vec::new();
    for member in members {
        let mut records = Vec::new();
        record(&mut records, "path", &member.path);
        record(&mut records, "uid", member.owner.0.to_string().as_bytes());
        record(&mut records, "gid", member.owner.1.to_string().as_bytes());
        for (name, value) in &member.xattrs {
            record(&mut records, &format!("SCHILY.xattr.{name}"), value);
        }
        let (flag, data, target): (_, &[u8], &[u8]) = match &member.kind {
            MemberKind::Directory => (b'5', b"", b""),
            MemberKind::File(data) => (b'0', data, b""),
            MemberKind::Symlink(target) => (b'2', b"", target),
            MemberKind::Hardlink(target) => (b'1', b"", target),
            MemberKind::Char(..) => (b'3', b"", b""),
            MemberKind::Fifo => (b'6', b"", b""),
        };
        if !target.is_empty() {
            record(&mut records, "linkpath", target);
        }
        tar.extend_from_slice(TarHeader::new(b'x', b"pax", records.len() as u64).finish());
        padded(&mut tar, &records);
        let mut header = TarHeader::new(flag, b"name", data.len() as u64);
        header.set_permissions(member.mode);
        header.set_mtime(member.mtime);
        if let MemberKind::Char(major, minor) = member.kind {
            header.set_device(major, minor);
        }
        tar.extend_from_slice(header.finish());
        padded(&mut tar, data);
    }
    tar.resize(tar.len() + 1024, 0);
    tar
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    Plain,
    Gzip,
    Zstd,
}

pub const PACKINGS: [Packing; 3] = [Packing::Plain, Packing::Gzip, Packing::Zstd];

pub fn pack(tar: &[u8], packing: Packing) -> Vec<u8> {
    match packing {
        Packing::Plain => tar.to_vec(),
        Packing::Gzip => {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(tar).unwrap();
            encoder.finish().unwrap()
        }
        Packing::Zstd => structured_zstd::encoding::compress_to_vec(
            tar,
            structured_zstd::encoding::CompressionLevel::Fastest,
        ),
    }
}

pub fn media_type(packing: Packing) -> String {
    let suffix = match packing {
        Packing::Plain => "",
        Packing::Gzip => "+gzip",
        Packing::Zstd => "+zstd",
    };
    format!("application/vnd.oci.image.layer.v1.tar{suffix}")
}

pub fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// Writes a blob into a layout, and returns its descriptor.
pub fn blob(layout: &Path, bytes: &[u8], media_type: &str) -> Value {
    let digest = digest(bytes);
    let path = layout.join("blobs").join(digest.replace(':', "/"));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
    json!({ "mediaType": media_type, "digest": digest, "size": bytes.len() })
}

pub fn blob_path(layout: &Path, descriptor: &Value) -> std::path::PathBuf {
    layout.join("blobs").join(descriptor["digest"].as_str().unwrap().replace(':', "/"))
}

/// Writes the blobs of an image for a platform, and returns the manifest's descriptor.
pub fn image(layout: &Path, layers: &[(Vec<u8>, Packing)], architecture: &str) -> Value {
    let diff_ids: Vec<_> = layers.iter().map(|(tar, _)| digest(tar)).collect();
    let config = json!({
        "architecture": architecture, "os": "linux", "config": { "Env": ["A=b"] },
        "rootfs": { "type": "layers", "diff_ids": diff_ids },
    });
    let layers: Vec<_> = layers
        .iter()
        .map(|(tar, packing)| blob(layout, &pack(tar, *packing), &media_type(*packing)))
        .collect();
    manifest(layout, &config, &layers)
}

/// Writes configuration and manifest; returns the manifest's descriptor.
pub fn manifest(layout: &Path, config: &Value, layers: &[Value]) -> Value {
    let media_type = "application/vnd.oci.image.config.v1+json";
    let config = blob(layout, &serde_json::to_vec(config).unwrap(), media_type);
    let manifest = json!({ "schemaVersion": 2, "config": config, "layers": layers });
    let media_type = "application/vnd.oci.image.manifest.v1+json";
    blob(layout, &serde_json::to_vec(&manifest).unwrap(), media_type)
}

/// Creates a layout of manifests.
pub fn layout(layout: &Path, manifests: &[Value]) {
    fs::write(layout.join("oci-layout"), br#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    let index = json!({ "schemaVersion": 2, "manifests": manifests });
    fs::write(layout.join("index.json"), serde_json::to_vec(&index).unwrap()).unwrap();
}

/// Creates a layout of one image whose layers use all compressions.
pub fn layout_of(path: &Path, layers: &[Vec<Member>]) {
    let packings = PACKINGS.iter().cycle();
    let layers: Vec<_> = layers.iter().map(|members| tar(members)).zip(packings.copied()).collect();
    let manifest = image(path, &layers, "amd64");
    layout(path, &[manifest]);
}

pub fn options(beside: &Path) -> ImageOptions {
    ImageOptions {
        platform: None,
        is_overlay: false,
        beside: beside.to_owned(),
        threads: 2,
        limits: Limits::default(),
    }
}

pub fn load(
    reference: &str,
    options: &ImageOptions,
) -> Result<ContainerImage, import::SourceError> {
    ContainerImage::load(&Reference::parse(reference).unwrap().unwrap(), options)
}

/// Returns the flattened tree of a layout.
pub fn flatten(path: &Path, is_overlay: bool) -> Result<Vec<TreeItem>, import::SourceError> {
    let options = ImageOptions { is_overlay, ..options(path) };
    let image = load(&format!("oci:{}", path.display()), &options)?;
    collect(&mut image.source())
}

/// Returns the error of an image, which must not load.
#[track_caller]
pub fn refused(reference: &str, options: &ImageOptions) -> String {
    match load(reference, options) {
        Ok(_) => panic!("{reference} was accepted"),
        Err(error) => {
            assert!(error.is_archive_fault(), "{error}");
            error.to_string()
        }
    }
}
