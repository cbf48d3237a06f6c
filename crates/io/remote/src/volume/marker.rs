//! The marker object, which identifies a prefix as a volume and states its size.

use std::time::Duration;

use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::place::runtime::random_uuid;
use crate::volume::{Location, VolumeError};

/// Name of the marker below a volume's prefix.
const NAME: &str = "diskwright-volume.json";
/// Version of volumes whose data is in the database only. They are opened, but not created.
const VERSION_LOG: u32 = 1;
/// Version of volumes with bulk objects.
const VERSION_BULK: u32 = 2;
/// Maximum size of a marker. Valid markers are much smaller.
const BYTES_MAX: u64 = 64 << 10;

/// Number of attempts of a request, and the pause between two.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);

/// Block size in bytes: the block size of file systems. Larger blocks would enlarge the log, smaller ones the tables.
pub(crate) const BLOCK_BYTES: u32 = 4096;
const BLOCK_BYTES_MAX: u32 = 1 << 20;
/// Maximum size of a volume, limited by file offsets.
pub(crate) const LEN_MAX: u64 = 1 << 62;

/// Contents of a marker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Marker {
    version: u32,
    /// Identity of this volume; a clone has its own.
    pub(crate) uuid: Uuid,
    pub(crate) len: u64,
    pub(crate) block_bytes: u32,
    /// Volumes that this one was cloned from and may share objects with, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) origins: Vec<CloneOrigin>,
}

/// A volume whose bulk objects a clone shares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CloneOrigin {
    /// Its path in the bucket.
    pub(crate) path: String,
    /// Largest epoch of the shared objects.
    pub(crate) epoch: u64,
}

impl Marker {
    pub(crate) fn new(len: u64) -> Result<Self, VolumeError> {
        if len == 0 || !len.is_multiple_of(BLOCK_BYTES.into()) || len > LEN_MAX {
            return Err(VolumeError::Size { len, block_bytes: BLOCK_BYTES, max: LEN_MAX });
        }
        Ok(Self {
            version: VERSION_BULK,
            uuid: random_uuid(),
            len,
            block_bytes: BLOCK_BYTES,
            origins: Vec::new(),
        })
    }

    /// Returns the marker of a clone of the volume at `path`, whose copied state has the recorded epoch `epoch`.
    pub(crate) fn of_clone(&self, uuid: Uuid, path: &Path, epoch: Option<u64>) -> Self {
        let mut origins = self.origins.clone();
        if self.has_bulk() {
            // Without a record, the copied state has no bulk objects.
            origins.push(CloneOrigin { path: path.to_string(), epoch: epoch.unwrap_or(0) });
        }
        Self { uuid, origins, ..self.clone() }
    }

    /// Returns whether the volume may have bulk objects.
    pub(crate) const fn has_bulk(&self) -> bool {
        self.version >= VERSION_BULK
    }

    fn parse(bytes: &[u8]) -> Result<Self, VolumeError> {
        /// The field that all versions have.
        #[derive(Deserialize)]
        struct Any {
            version: u32,
        }
        let damaged = |error| VolumeError::Damaged(format!("its marker {NAME}: {error}"));
        let Any { version } = serde_json::from_slice(bytes).map_err(damaged)?;
        if !(VERSION_LOG..=VERSION_BULK).contains(&version) {
            return Err(VolumeError::Version { found: version, known: VERSION_BULK });
        }
        let marker: Self = serde_json::from_slice(bytes).map_err(damaged)?;
        let Self { len, block_bytes, .. } = marker;
        if !block_bytes.is_power_of_two() || !(512..=BLOCK_BYTES_MAX).contains(&block_bytes) {
            let what =
                format!("its marker {NAME} has an invalid block size of {block_bytes} bytes");
            return Err(VolumeError::Damaged(what));
        }
        if len == 0 || len > LEN_MAX || !len.is_multiple_of(block_bytes.into()) {
            return Err(VolumeError::Damaged(format!(
                "its marker {NAME} has an invalid size of {len} bytes"
            )));
        }
        if !marker.origins.is_sorted_by_key(|origin| origin.epoch) {
            return Err(VolumeError::Damaged(format!("its marker {NAME} has unordered origins")));
        }
        Ok(marker)
    }

    /// Reads the marker of a volume.
    pub(crate) async fn read(at: &Location) -> Result<Self, VolumeError> {
        let found = match again(|| async { at.store.get(&name(at)).await }).await {
            Err(object_store::Error::NotFound { .. }) => return Err(VolumeError::NotFound),
            found => found?,
        };
        if found.meta.size > BYTES_MAX {
            let what = format!("its marker {NAME} has {} bytes", found.meta.size);
            return Err(VolumeError::Damaged(what));
        }
        Self::parse(&found.bytes().await?)
    }

    /// Creates the marker, which makes the prefix a volume. Of two concurrent calls one fails. Fails if the store ignores the
    /// condition of a put, because two machines could then write the volume.
    pub(crate) async fn write(&self, at: &Location) -> Result<(), VolumeError> {
        let bytes = serde_json::to_vec_pretty(self).map_err(std::io::Error::from)?;
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let put =
            || async { at.store.put_opts(&name(at), bytes.clone().into(), options.clone()).await };
        match again(put).await {
            // A store that ignores the condition overwrites the marker again.
            Ok(_) => match again(put).await {
                Ok(_) => {
                    Self::remove(at).await?;
                    Err(VolumeError::NoConditions)
                }
                Err(object_store::Error::AlreadyExists { .. }) => Ok(()),
                Err(error) => Err(error.into()),
            },
            // The marker may be from this call, if the response to an earlier attempt was lost.
            Err(object_store::Error::AlreadyExists { .. }) => match Self::read(at).await? {
                found if found.uuid == self.uuid => Ok(()),
                _ => Err(VolumeError::Exists("a volume")),
            },
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) async fn remove(at: &Location) -> Result<(), VolumeError> {
        match again(|| async { at.store.delete(&name(at)).await }).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Checks whether there is a volume, with one request.
///
/// # Errors
/// If the bucket is inaccessible.
pub fn is_volume(at: &Location) -> Result<bool, VolumeError> {
    crate::place::runtime::block_on(exists(at))
}

pub(crate) async fn exists(at: &Location) -> Result<bool, VolumeError> {
    match again(|| async { at.store.head(&name(at)).await }).await {
        Ok(_) => Ok(true),
        Err(object_store::Error::NotFound { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Retries a request after transport errors, as the database does. Its [`WalReader`](slatedb::WalReader) does not.
pub(crate) async fn again<T, E: Transient, F>(request: impl Fn() -> F) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
{
    for _ in 1..TRIES {
        match request().await {
            Err(error) if error.is_transient() => tokio::time::sleep(PAUSE).await,
            answer => return answer,
        }
    }
    request().await
}

/// An error of a request that may succeed if it is repeated.
pub(crate) trait Transient {
    fn is_transient(&self) -> bool;
}

impl Transient for object_store::Error {
    fn is_transient(&self) -> bool {
        matches!(self, Self::Generic { .. })
    }
}

impl Transient for slatedb::Error {
    fn is_transient(&self) -> bool {
        self.kind() == slatedb::ErrorKind::Unavailable
    }
}

fn name(at: &Location) -> Path {
    at.path.clone().join(NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_that_cannot_be_true_are_refused() {
        let marker = Marker::new(1 << 40).unwrap();
        let text = serde_json::to_string(&marker).unwrap();
        assert_eq!(Marker::parse(text.as_bytes()).unwrap(), marker);
        for (from, to, told) in [
            ("\"version\":2", "\"version\":3", "versions up to 2"),
            ("\"version\":2", "\"version\":0", "versions up to 2"),
            ("4096", "4095", "size of 4095 bytes"),
            ("1099511627776", "1099511627777", "size of 1099511627777 bytes"),
            ("1099511627776", "0", "size of 0 bytes"),
            ("{", "[", "its marker"),
        ] {
            let error = Marker::parse(text.replace(from, to).as_bytes()).unwrap_err();
            assert!(error.to_string().contains(told), "{error}");
            assert!(error.is_damage());
        }
        let old = text.replace("\"version\":2", "\"version\":1");
        assert!(!Marker::parse(old.as_bytes()).unwrap().has_bulk());
        for len in [0, 1000, u64::MAX] {
            assert!(matches!(Marker::new(len), Err(VolumeError::Size { .. })));
        }
    }

    #[test]
    fn clones_refer_to_their_origins() {
        let first = Marker::new(1 << 20).unwrap();
        let path = Path::from("a/first");
        let clone = first.of_clone(Uuid::new_v4(), &path, Some(3));
        assert_ne!(clone.uuid, first.uuid);
        let later = clone.of_clone(Uuid::new_v4(), &Path::from("clone"), Some(5));
        let epochs: Vec<_> = later.origins.iter().map(|it| (it.path.as_str(), it.epoch)).collect();
        assert_eq!(epochs, [("a/first", 3), ("clone", 5)]);
        let text = serde_json::to_string(&later).unwrap();
        assert_eq!(Marker::parse(text.as_bytes()).unwrap(), later);
        let swapped = text.replace(":3}", ":9}");
        let error = Marker::parse(swapped.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("unordered origins"), "{error}");
    }
}
