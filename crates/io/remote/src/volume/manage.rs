//! Snapshots, clones and other operations on whole volumes.

use std::time::{Duration, SystemTime};

use crate::place::runtime::{block_on, random_uuid};
use futures_util::{StreamExt, TryStreamExt};
use object_store::ObjectStore;
use object_store::path::Path;
use slatedb::admin::CloneSourceSpec;
use slatedb::config::CheckpointOptions;
use slatedb::{Checkpoint, CheckpointCreateResult, VersionedManifest};
use uuid::Uuid;

use crate::volume::blocks::recorded_epoch;
use crate::volume::marker::{self, Marker};
use crate::volume::names::{check_free, find};
use crate::volume::{
    GarbageCount, Location, Options, Volume, VolumeError, bulk, database, garbage, pins,
};

/// A named earlier state of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Its name.
    pub name: String,
    /// Creation time, by the clock of the machine that created it.
    pub time: SystemTime,
}

/// Creates a snapshot in constant time. A volume that is open elsewhere, or was not closed, may have writes only in its
/// log. Then this fails unless `take_over` is set, which opens the volume here and fences its writer.
///
/// # Errors
/// If there is no volume, the name is taken or invalid, or the bucket is inaccessible.
pub fn snapshot(at: &Location, name: &str, take_over: bool) -> Result<(), VolumeError> {
    block_on(async {
        Marker::read(at).await?;
        check_free(at, name).await
    })?;
    settle(at, take_over)?;
    let options = CheckpointOptions { name: Some(name.into()), ..Default::default() };
    block_on(async {
        let made = database::admin(at).create_detached_checkpoint(&options).await?;
        check_settled(at, &made).await
    })
}

/// Returns the snapshots of a volume, oldest first.
///
/// # Errors
/// If there is no volume, or the bucket is inaccessible.
pub fn snapshots(at: &Location) -> Result<Vec<Snapshot>, VolumeError> {
    let found = block_on(async {
        Marker::read(at).await?;
        database::newest_manifest(at).await
    })?;
    let found = found.iter().flat_map(|manifest| manifest.checkpoints());
    let found = found.filter(|checkpoint| !pins::is_pin(checkpoint));
    // Unnamed checkpoints belong to clones and to the garbage collector.
    let named = |it: &Checkpoint| {
        let name = it.name.clone()?;
        Some(Snapshot { name, time: it.create_time.into() })
    };
    let mut snapshots: Vec<_> = found.filter_map(named).collect();
    snapshots.sort_by(|a, b| a.time.cmp(&b.time).then_with(|| a.name.cmp(&b.name)));
    Ok(snapshots)
}

/// Returns the names of the volumes one level below a prefix.
///
/// # Errors
/// If the bucket is inaccessible.
pub fn list(below: &Location) -> Result<Vec<String>, VolumeError> {
    block_on(async {
        let found = below.store.list_with_delimiter(Some(&below.path)).await?;
        let mut names = Vec::new();
        for path in found.common_prefixes {
            let Some(name) = path.filename().map(str::to_owned) else { continue };
            if marker::exists(&Location { path, ..below.clone() }).await? {
                names.push(name);
            }
        }
        Ok(names)
    })
}

/// Creates a volume at `to` with the contents of another volume or one of its snapshots, in constant time. They share
/// objects, so both must be in one bucket. Without a snapshot, `take_over` has the same meaning as in [`snapshot`].
///
/// # Errors
/// If the source does not exist, `to` is in use, or the bucket is inaccessible.
pub fn clone(
    at: &Location,
    snapshot: Option<&str>,
    to: &Location,
    take_over: bool,
) -> Result<(), VolumeError> {
    if bucket(at) != bucket(to) {
        return Err(VolumeError::OtherBucket(bucket(at).to_owned()));
    }
    let (marker, source) = block_on(async {
        let marker = Marker::read(at).await?;
        if marker::exists(to).await? {
            return Err(VolumeError::Exists("a volume"));
        }
        if database::admin(to).read_manifest(None).await?.is_some() {
            return Err(VolumeError::Exists("an incomplete volume"));
        }
        let source = match snapshot {
            Some(name) => Some(find(at, name).await?),
            None => None,
        };
        Ok((marker, source))
    })?;
    if snapshot.is_none() {
        settle(at, take_over)?;
    }
    block_on(copy(at, &marker, source, to))
}

/// Creates a clone of a checkpoint or of the newest tables. The pin is first, so that no collector removes objects that
/// the clone needs.
async fn copy(
    at: &Location,
    marker: &Marker,
    source: Option<Uuid>,
    to: &Location,
) -> Result<(), VolumeError> {
    let (path, uuid) = (database::path(at), random_uuid());
    if !marker.has_bulk() {
        let source = match source {
            Some(checkpoint) => CloneSourceSpec::with_checkpoint(path, checkpoint),
            None => CloneSourceSpec::new(path),
        };
        database::admin(to).create_clone_builder_from_source(source).build().await?;
        return marker.of_clone(uuid, &at.path, None).write(to).await;
    }
    let pin = pins::create(at, source, uuid, &to.path).await?;
    if source.is_none() {
        check_settled(at, &pin).await?;
    }
    let source = CloneSourceSpec::with_checkpoint(path, pin.id);
    database::admin(to).create_clone_builder_from_source(source).build().await?;
    // The epoch must be that of the copied state: the clone's own writers have the next ones.
    let reader = database::open_to_read(to, marker, None, &Options::default()).await?;
    let epoch = recorded_epoch(&reader).await;
    reader.close().await?;
    marker.of_clone(uuid, &at.path, epoch?).write(to).await
}

/// Removes bulk objects of earlier epochs without references. An object must have been found without references by a
/// run that is at least `age` ago. The volume may be open elsewhere; the objects of that writer are not removed. With
/// `take_over`, the volume is first opened here, which fences the writer and ends its epoch, and is compacted.
///
/// # Errors
/// If the volume does not exist, it is damaged, a snapshot is removed at the same time, or the bucket is inaccessible.
pub fn collect(at: &Location, age: Duration, take_over: bool) -> Result<GarbageCount, VolumeError> {
    let marker = block_on(Marker::read(at))?;
    if !marker.has_bulk() {
        return Ok(GarbageCount::default());
    }
    if take_over {
        let volume = Volume::open(at, &Options::default())?;
        volume.start_epoch()?;
        volume.compact()?;
        volume.close()?;
    }
    block_on(garbage::collect_earlier(at, &marker, age))
}

/// Removes a volume with its snapshots, or the remains of one. Its clones need its objects and must be removed first.
///
/// # Errors
/// If nothing is there, clones exist, or the bucket is inaccessible.
pub fn delete(at: &Location) -> Result<(), VolumeError> {
    block_on(async {
        let admin = database::admin(at);
        let marker = match Marker::read(at).await {
            Ok(marker) => Some(marker),
            Err(VolumeError::NotFound) => None,
            // A damaged volume can be deleted, too.
            Err(error) if error.is_damage() => None,
            Err(error) => return Err(error),
        };
        let manifest = database::newest_manifest(at).await?;
        if manifest.is_none() && !marker::exists(at).await? {
            return Err(VolumeError::NotFound);
        }
        // A clone keeps a checkpoint in its origin that has neither a name nor an expiry time.
        let is_of_clone = |kept: &Checkpoint| kept.name.is_none() && kept.expire_time.is_none();
        for checkpoint in manifest.iter().flat_map(|it| it.checkpoints()) {
            if is_of_clone(checkpoint) || pins::is_used(at, checkpoint).await? {
                return Err(VolumeError::Exists("a clone of this volume"));
            }
        }
        let of_database = |path: &str| path.strip_suffix("/db").map(Path::from);
        let origins = manifest.iter().flat_map(|it| it.external_dbs());
        let mut origins: Vec<_> = origins.filter_map(|it| of_database(&it.path)).collect();
        origins.extend(
            marker.iter().flat_map(|it| it.origins.last()).map(|it| Path::from(it.path.as_str())),
        );
        Marker::remove(at).await?;
        remove_objects(at).await?;
        admin.delete_db(true).await?;
        for origin in origins {
            pins::remove(at, origin, marker.as_ref()).await?;
        }
        Ok(())
    })
}

/// Removes all bulk objects of a volume, and the lists of the garbage collector.
async fn remove_objects(at: &Location) -> Result<(), VolumeError> {
    for below in [bulk::OBJECTS, bulk::GARBAGE] {
        let prefix = at.path.clone().join(below);
        let paths = at.store.list(Some(&prefix)).map_ok(|meta| meta.location).boxed();
        let mut removed = at.store.delete_stream(paths);
        while let Some(result) = removed.next().await {
            match result {
                Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// Ensures that all synced writes are in tables, as after closing the volume.
fn settle(at: &Location, take_over: bool) -> Result<(), VolumeError> {
    let manifest = block_on(database::newest_manifest(at))?.ok_or(VolumeError::NotFound)?;
    if block_on(is_settled(at, &manifest))? {
        return Ok(());
    }
    if !take_over {
        return Err(VolumeError::NotSettled);
    }
    Volume::open(at, &Options::default())?.close()
}

/// Removes a new checkpoint and fails if the log has later writes. The manifest of the checkpoint was the newest one,
/// because its put was conditional. A manifest that was read before could be an older one.
async fn check_settled(at: &Location, made: &CheckpointCreateResult) -> Result<(), VolumeError> {
    let admin = database::admin(at);
    let is_settled = match admin.read_manifest(Some(made.manifest_id)).await {
        Ok(Some(manifest)) => is_settled(at, &manifest).await,
        // The database keeps the manifest of a checkpoint. The volume was deleted.
        Ok(None) => Err(VolumeError::NotFound),
        Err(error) => Err(error.into()),
    };
    if let Ok(true) = is_settled {
        return Ok(());
    }
    admin.delete_checkpoint(made.id).await?;
    is_settled.and(Err(VolumeError::NotSettled))
}

/// Checks whether the log has no writes after a manifest.
async fn is_settled(at: &Location, manifest: &VersionedManifest) -> Result<bool, VolumeError> {
    let first = manifest.next_wal_sst_id().max(manifest.replay_after_wal_id() + 1);
    Ok(!database::has_log_from(at, first).await?)
}

/// Returns the part of an address that identifies the bucket.
fn bucket(at: &Location) -> &str {
    let address = at.address.with_secrets();
    let rest = address.find("://").map_or(0, |at| at + 3);
    let end = address[rest..].find(['/', '?', '#']).map_or(address.len(), |at| rest + at);
    &address[..end]
}
