//! Flattens arbitrary bytes as layers of a container image, or parses them as its manifest. Errors are fine; panics,
//! hangs and unbounded memory are bugs.
#![no_main]

use std::fs;

use import::oci::{ContainerImage, ImageOptions, Limits, Reference};
use import::{Source, TarHeader};
use libfuzzer_sys::fuzz_target;
use sha2::{Digest, Sha256};

/// Maximum decompressed size of a layer, and maximum memory for names, in bytes.
const BYTES_MAX: u64 = 16 << 20;

fn member(archive: &mut Vec<u8>, name: &str, data: &[u8]) {
    let mut header = TarHeader::new(b'0', name.as_bytes(), data.len() as u64);
    archive.extend_from_slice(header.finish());
    archive.extend_from_slice(data);
    archive.resize(archive.len().next_multiple_of(512), 0);
}

/// Returns an archive as `docker save` writes it, with valid digests of its layers.
fn of_layers(input: &[u8], overlay: &mut bool) -> Vec<u8> {
    let (mut archive, mut names, mut ids) = (Vec::new(), Vec::new(), Vec::new());
    let (&[count, kind], data) = input.split_first_chunk().unwrap_or((&[1, 0], &[]));
    *overlay = kind & 1 == 1;
    let count = usize::from(count % 3) + 1;
    for layer in data.chunks((data.len() / count).next_multiple_of(512).max(512)) {
        let hex: String = Sha256::digest(layer).iter().map(|byte| format!("{byte:02x}")).collect();
        names.push(format!("\"{}\"", names.len()));
        ids.push(format!("\"sha256:{hex}\""));
        member(&mut archive, &(names.len() - 1).to_string(), layer);
    }
    let (names, ids) = (names.join(","), ids.join(","));
    let config = format!(
        r#"{{"architecture":"amd64","os":"linux","rootfs":{{"type":"layers","diff_ids":[{ids}]}}}}"#
    );
    member(&mut archive, "c", config.as_bytes());
    let manifest = format!(r#"[{{"Config":"c","RepoTags":null,"Layers":[{names}]}}]"#);
    member(&mut archive, "manifest.json", manifest.as_bytes());
    archive
}

/// Returns an archive whose documents are arbitrary bytes.
fn of_documents(input: &[u8]) -> Vec<u8> {
    let mut archive = Vec::new();
    member(&mut archive, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#);
    for name in ["index.json", "manifest.json", "c"] {
        member(&mut archive, name, input);
    }
    archive
}

fuzz_target!(|input: &[u8]| {
    let Some((&kind, rest)) = input.split_first() else { return };
    let mut is_overlay = false;
    let mut archive = if kind == 0 { of_documents(rest) } else { of_layers(rest, &mut is_overlay) };
    archive.resize(archive.len() + 1024, 0);
    let home = std::env::temp_dir();
    let path = home.join(format!("container-{}", std::process::id()));
    fs::write(&path, archive).expect("room for a small file");
    let limits =
        Limits { layer_bytes: Some(BYTES_MAX), names_bytes: BYTES_MAX, archive_bytes: BYTES_MAX };
    let options = ImageOptions { platform: None, is_overlay, beside: home, threads: 1, limits };
    for transport in ["docker-archive", "oci-archive"] {
        let reference = format!("{transport}:{}", path.display());
        let Some(Ok(reference)) = Reference::parse(&reference) else { continue };
        let Ok(image) = ContainerImage::load(&reference, &options) else { continue };
        let mut source = image.source();
        while source.next_entry().expect("a tree in memory").is_some() {}
    }
});
