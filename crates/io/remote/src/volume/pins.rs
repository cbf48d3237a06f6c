//! Pins: checkpoints of a volume that keep the bulk objects that its clones share.
//!
//! SlateDB also has a checkpoint for each clone, but deletes it when the clone has rewritten all shared tables. The new
//! tables still refer to bulk objects of the origin.

use object_store::path::Path;
use slatedb::config::CheckpointOptions;
use slatedb::{Checkpoint, CheckpointCreateResult};
use uuid::Uuid;

use crate::volume::marker::{self, Marker};
use crate::volume::{Location, VolumeError, database};

/// Start of the name of a pin. The identity and the path of the clone follow. Names of snapshots have no colon.
const PREFIX: &str = "clone:";

/// Returns whether a checkpoint is a pin.
pub(crate) fn is_pin(checkpoint: &Checkpoint) -> bool {
    checkpoint.name.as_deref().is_some_and(|name| name.starts_with(PREFIX))
}

/// Creates the pin for a clone at `to`, of a checkpoint or of the newest state.
pub(crate) async fn create(
    at: &Location,
    source: Option<Uuid>,
    clone: Uuid,
    to: &Path,
) -> Result<CheckpointCreateResult, VolumeError> {
    let name = Some(format!("{PREFIX}{clone}:{to}"));
    let options = CheckpointOptions { name, source, ..Default::default() };
    Ok(database::admin(at).create_detached_checkpoint(&options).await?)
}

/// Returns whether a checkpoint is the pin of a clone that exists. The rest of an interrupted clone has only a pin.
pub(crate) async fn is_used(at: &Location, checkpoint: &Checkpoint) -> Result<bool, VolumeError> {
    let name = checkpoint.name.as_deref().unwrap_or_default();
    let Some((_, path)) = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once(':')) else {
        return Ok(false);
    };
    let clone = Location { path: Path::from(path), ..at.clone() };
    Ok(marker::exists(&clone).await? || database::newest_manifest(&clone).await?.is_some())
}

/// Removes the pins of a deleted clone from its origin. `marker` is its marker, if it had one.
pub(crate) async fn remove(
    at: &Location,
    origin: Path,
    marker: Option<&Marker>,
) -> Result<(), VolumeError> {
    let origin = Location { path: origin, ..at.clone() };
    let admin = database::admin(&origin);
    let manifest = database::newest_manifest(&origin).await?;
    for checkpoint in manifest.iter().flat_map(|manifest| manifest.checkpoints()) {
        let name = checkpoint.name.as_deref().unwrap_or_default();
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        let is_ours = match (marker, rest.split_once(':')) {
            (Some(marker), Some((clone, _))) => clone == marker.uuid.to_string(),
            (None, Some((_, path))) => path == at.path.as_ref(),
            (_, None) => false,
        };
        if is_ours {
            admin.delete_checkpoint(checkpoint.id).await?;
        }
    }
    Ok(())
}
