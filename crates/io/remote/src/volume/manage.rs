//! Snapshots, clones and other operations on whole volumes.

use std::sync::Arc;
use std::time::SystemTime;

use crate::place::runtime::block_on;
use object_store::ObjectStore;
use slatedb::admin::CloneSourceSpec;
use slatedb::config::CheckpointOptions;
use slatedb::{Checkpoint, WalReader};

use crate::volume::marker::{self, Marker};
use crate::volume::names::{check_free, find};
use crate::volume::{Location, Options, Volume, VolumeError, database};

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
    block_on(database::admin(at).create_detached_checkpoint(&options))?;
    Ok(())
}

/// Returns the snapshots of a volume, oldest first.
///
/// # Errors
/// If there is no volume, or the bucket is inaccessible.
pub fn snapshots(at: &Location) -> Result<Vec<Snapshot>, VolumeError> {
    let found = block_on(async {
        Marker::read(at).await?;
        Ok::<_, VolumeError>(database::admin(at).list_checkpoints(None).await?)
    })?;
    // Unnamed checkpoints belong to clones.
    let named = |it: Checkpoint| it.name.map(|name| Snapshot { name, time: it.create_time.into() });
    let mut snapshots: Vec<_> = found.into_iter().filter_map(named).collect();
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
        let path = database::path(at);
        let source = match snapshot {
            Some(name) => CloneSourceSpec::with_checkpoint(path, find(at, name).await?),
            None => CloneSourceSpec::new(path),
        };
        Ok((marker, source))
    })?;
    if snapshot.is_none() {
        settle(at, take_over)?;
    }
    block_on(async {
        database::admin(to).create_clone_builder_from_source(source).build().await?;
        marker.of_clone().write(to).await
    })
}

/// Removes a volume with its snapshots, or the remains of one. Its clones need its objects and must be removed first.
///
/// # Errors
/// If nothing is there, clones exist, or the bucket is inaccessible.
pub fn delete(at: &Location) -> Result<(), VolumeError> {
    block_on(async {
        let admin = database::admin(at);
        let is_marked = marker::exists(at).await?;
        let manifest = admin.read_manifest(None).await?;
        if !is_marked && manifest.is_none() {
            return Err(VolumeError::NotFound);
        }
        // A clone keeps a checkpoint in its origin that has neither a name nor an expiry time.
        let is_of_clone = |kept: &Checkpoint| kept.name.is_none() && kept.expire_time.is_none();
        if manifest.is_some_and(|it| it.checkpoints().iter().any(is_of_clone)) {
            return Err(VolumeError::Exists("a clone of this volume"));
        }
        Marker::remove(at).await?;
        admin.delete_db(true).await?;
        Ok(())
    })
}

/// Ensures that all synced writes are in tables, as after closing the volume.
fn settle(at: &Location, take_over: bool) -> Result<(), VolumeError> {
    if block_on(is_settled(at))? {
        return Ok(());
    }
    if !take_over {
        return Err(VolumeError::NotSettled);
    }
    Volume::open(at, &Options::default())?.close()
}

/// Checks whether the log has no writes after the latest manifest.
async fn is_settled(at: &Location) -> Result<bool, VolumeError> {
    let manifest = database::admin(at).read_manifest(None).await?.ok_or(VolumeError::NotFound)?;
    let log = WalReader::new(database::path(at), Arc::clone(&at.store));
    let after = manifest.next_wal_sst_id().max(manifest.replay_after_wal_id() + 1);
    for file in log.list(after..).await? {
        // Opening a volume writes an empty log object.
        if file.iterator().await?.next().await?.is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the part of an address that identifies the bucket.
fn bucket(at: &Location) -> &str {
    let address = at.address.with_secrets();
    let rest = address.find("://").map_or(0, |at| at + 3);
    let end = address[rest..].find(['/', '?', '#']).map_or(address.len(), |at| rest + at);
    &address[..end]
}
