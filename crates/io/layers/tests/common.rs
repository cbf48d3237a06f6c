//! Images, and views of them.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use diskwright_layers::{Access, LayerError, LayerOptions, Member, Passphrase, Stack, resolve};
use sha2::{Digest, Sha256};

/// Passphrase of all encrypted images.
pub(crate) const PASSPHRASE: &[u8] = b"correct horse";

/// Returns the bytes of an image.
pub(crate) fn bytes(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/images/{name}.gz"));
    let packed = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(&*packed).read_to_end(&mut bytes).unwrap();
    bytes
}

/// Returns a device with these bytes.
pub(crate) fn device(bytes: &[u8]) -> Arc<dyn BlockDevice> {
    let device = MemoryDevice::new(bytes.len() as u64);
    device.write_at(0, bytes).unwrap();
    Arc::new(device)
}

/// Returns an image as a member.
pub(crate) fn member(name: &str) -> Member {
    Member::new(name, device(&bytes(name)))
}

/// Returns options with the passphrase.
pub(crate) fn with_passphrase() -> LayerOptions {
    LayerOptions::new().passphrase(Passphrase::new(PASSPHRASE.to_vec()))
}

/// Opens images for reading: the first one with the others as members.
pub(crate) fn open(names: &[&str], options: &LayerOptions) -> Result<Stack, LayerError> {
    let mut members: Vec<Member> = names.iter().map(|name| member(name)).collect();
    let image = members.remove(0);
    resolve(image, members, options, None, Access::Read)
}

/// Opens bytes for reading.
pub(crate) fn open_bytes(bytes: &[u8], options: &LayerOptions) -> Result<Stack, LayerError> {
    resolve(Member::new("image", device(bytes)), Vec::new(), options, None, Access::Read)
}

/// Returns the error of an attempt to open images.
pub(crate) fn refused(opened: Result<Stack, LayerError>) -> String {
    match opened {
        Ok(stack) => panic!("opened behind {:?}", stack.layers),
        Err(error) => error.to_string(),
    }
}

/// Returns the SHA-256 of a device, read in parts of different sizes.
pub(crate) fn digest(device: &dyn BlockDevice) -> String {
    let (mut hasher, mut at, mut sizes) =
        (Sha256::new(), 0, [65536, 1, 511, 4096, 99_999].iter().cycle());
    while at < device.len() {
        let len = sizes.next().unwrap().to_owned().min(device.len() - at);
        let mut part = vec![0; len as usize];
        device.read_at(at, &mut part).unwrap();
        hasher.update(&part);
        at += len;
    }
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
