//! Snapshot names.

use uuid::Uuid;

use crate::volume::{Location, VolumeError, database};

/// Maximum length of a snapshot name in bytes.
const NAME_BYTES_MAX: usize = 100;

/// Fails if a snapshot name is invalid or taken.
pub(crate) async fn check_free(at: &Location, name: &str) -> Result<(), VolumeError> {
    let may_have = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(may_have) {
        return Err(VolumeError::SnapshotName(name.into()));
    }
    match find(at, name).await {
        Err(VolumeError::NoSnapshot(_)) => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(VolumeError::SnapshotExists(name.into())),
    }
}

/// Returns the database's identifier of a snapshot.
pub(crate) async fn find(at: &Location, name: &str) -> Result<Uuid, VolumeError> {
    let manifest = database::newest_manifest(at).await?.ok_or(VolumeError::NotFound)?;
    let found = manifest.checkpoints().iter().find(|kept| kept.name.as_deref() == Some(name));
    found.map(|kept| kept.id).ok_or_else(|| VolumeError::NoSnapshot(name.into()))
}
