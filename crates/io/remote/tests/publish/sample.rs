//! Images of a few chunks, and assertions about stores.

use std::sync::Arc;
use std::time::Duration;

use disk::{BlockDevice, MemoryDevice};
use object_store::ObjectStore;
use object_store::path::Path;
use remote::place::store::Location;
use remote::publish::{
    Digest, Error, Facts, Manifest, NoPublishReports, Options, Patience, SweepOptions, Swept,
    UploadReport,
};

use crate::publish::store::Watched;

pub(crate) const CHUNK: usize = 4096;

/// Returns image contents with one chunk per letter: equal letters are equal chunks, a dot is zeros.
pub(crate) fn contents(letters: &str) -> Vec<u8> {
    let chunk = |letter: u8| {
        let mut random = fastrand::Rng::with_seed(letter.into());
        (0..CHUNK).map(move |_| if letter == b'.' { 0 } else { random.u8(1..9) })
    };
    letters.bytes().flat_map(chunk).collect()
}

/// Returns a device with these contents.
pub(crate) fn image(letters: &str) -> Arc<dyn BlockDevice> {
    device(&contents(letters))
}

pub(crate) fn device(bytes: &[u8]) -> Arc<dyn BlockDevice> {
    let device = MemoryDevice::new(bytes.len() as u64);
    device.write_at(0, bytes).unwrap();
    Arc::new(device)
}

pub(crate) fn location(store: impl ObjectStore, path: &str) -> Location {
    Location {
        store: Arc::new(store),
        path: Path::from(path),
        address: format!("watched://{path}").as_str().into(),
    }
}

/// Returns limits without waiting; marks become stale after an hour.
pub(crate) fn impatient() -> Patience {
    let (stale, renew) = (Duration::from_secs(3600), Duration::from_secs(300));
    Patience { stale, renew, wait: Duration::ZERO, poll: Duration::from_millis(1) }
}

pub(crate) fn options() -> Options {
    Options { chunk_bytes: CHUNK as u32, requests: 3, patience: impatient(), ..Options::default() }
}

pub(crate) fn publish_as(
    store: &Watched,
    letters: &str,
    name: &str,
) -> Result<UploadReport, Error> {
    let location = location(store.clone(), "images");
    remote::publish::publish(
        image(letters),
        &location,
        name,
        Facts::default(),
        &options(),
        &NoPublishReports,
    )
}

pub(crate) fn sweep(store: &Watched, hours: u64) -> Result<Swept, Error> {
    sweep_with(store, hours, impatient())
}

pub(crate) fn sweep_with(store: &Watched, hours: u64, patience: Patience) -> Result<Swept, Error> {
    let older_than = Duration::from_secs(hours * 3600);
    let options = SweepOptions { older_than, patience, ..SweepOptions::default() };
    remote::publish::sweep(&location(store.clone(), "images"), &options)
}

/// Reads the whole image of a name.
pub(crate) fn read(store: &Watched, name: &str) -> Result<Vec<u8>, Error> {
    let image = remote::publish::open(&location(store.clone(), &format!("images/names/{name}")))?;
    let chunks = image.manifest().chunks();
    remote::place::runtime::block_on(image.read(0..chunks)).map(|chunks| chunks.concat())
}

/// Asserts that every name has its manifest, and every manifest all its chunks.
pub(crate) fn assert_whole(store: &Watched, when: &str) {
    assert_names_whole(store, when);
    for (path, body) in store.objects("/manifests/") {
        assert_eq!(path.filename().unwrap(), Digest::of(&body).to_string());
        assert_chunks(store, &body, when);
    }
}

/// Asserts that every name has its manifest, with all its chunks.
pub(crate) fn assert_names_whole(store: &Watched, when: &str) {
    for (path, body) in store.objects("/names/") {
        let digest = std::str::from_utf8(&body[8..72]).unwrap();
        let manifests = store.objects(&format!("/manifests/{digest}"));
        assert_eq!(manifests.len(), 1, "{when}: {path} names a manifest that is missing");
        assert_chunks(store, &manifests[0].1, when);
    }
}

fn assert_chunks(store: &Watched, manifest: &[u8], when: &str) {
    let chunks: Vec<String> =
        store.objects("/chunks/").iter().map(|(path, _)| path.filename().unwrap().into()).collect();
    for digest in Manifest::parse(manifest).unwrap().digests() {
        assert!(chunks.contains(&digest.to_string()), "{when}: {digest} is named, and missing");
    }
}
