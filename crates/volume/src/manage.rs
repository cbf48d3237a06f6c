//! Snapshots, clones, and what else is done to volumes as a whole.

use std::sync::Arc;
use std::time::SystemTime;

use object_store::ObjectStore;
use place::runtime::block_on;
use slatedb::admin::CloneSourceSpec;
use slatedb::config::CheckpointOptions;
use slatedb::{Checkpoint, WalReader};

use crate::marker::{self, Marker};
use crate::names::{check_free, find};
use crate::{Location, Options, Volume, VolumeError, database};

/// A volume as it was once.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Its name.
    pub name: String,
    /// When it was made, by the clock of who made it.
    pub time: SystemTime,
}

/// Keeps a volume as it is under a name, at once, whatever its size. One that is open elsewhere, or was not closed, may
/// hold what is in its log only: that is refused unless `take_over` opens the volume here, which fences whoever has it.
///
/// # Errors
/// If there is no volume, the name is taken or is none, or the bucket cannot be used.
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

/// The snapshots of a volume, the oldest first.
///
/// # Errors
/// If there is no volume, or the bucket cannot be used.
pub fn snapshots(at: &Location) -> Result<Vec<Snapshot>, VolumeError> {
    let found = block_on(async {
        Marker::read(at).await?;
        Ok::<_, VolumeError>(database::admin(at).list_checkpoints(None).await?)
    })?;
    // Those without a name keep what clones need.
    let named = |it: Checkpoint| it.name.map(|name| Snapshot { name, time: it.create_time.into() });
    let mut snapshots: Vec<_> = found.into_iter().filter_map(named).collect();
    snapshots.sort_by(|a, b| a.time.cmp(&b.time).then_with(|| a.name.cmp(&b.name)));
    Ok(snapshots)
}

/// The names of volumes one level below a prefix.
///
/// # Errors
/// If the bucket cannot be used.
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

/// Makes a volume at `to` that begins as another one, or a snapshot of it, is: at once, whatever its size. They share
/// objects, so both lie in one bucket. Without a snapshot, `take_over` is as of [`snapshot`].
///
/// # Errors
/// If there is no such volume or snapshot, or something at `to`, or the bucket cannot be used.
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
            return Err(VolumeError::Exists("what is left of a volume"));
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

/// Removes a volume with its snapshots, or what is left of one. Clones of it must go first: they need its objects.
///
/// # Errors
/// If nothing is there, clones are, or the bucket cannot be used.
pub fn delete(at: &Location) -> Result<(), VolumeError> {
    block_on(async {
        let admin = database::admin(at);
        let is_marked = marker::exists(at).await?;
        let manifest = admin.read_manifest(None).await?;
        if !is_marked && manifest.is_none() {
            return Err(VolumeError::NotFound);
        }
        // A clone keeps a checkpoint without a name and an end in its origin.
        let is_of_clone = |kept: &Checkpoint| kept.name.is_none() && kept.expire_time.is_none();
        if manifest.is_some_and(|it| it.checkpoints().iter().any(is_of_clone)) {
            return Err(VolumeError::Exists("a clone that needs this volume"));
        }
        Marker::remove(at).await?;
        admin.delete_db(true).await?;
        Ok(())
    })
}

/// Sees to it that all that was synced is in tables, as of a volume that was closed.
fn settle(at: &Location, take_over: bool) -> Result<(), VolumeError> {
    if block_on(is_settled(at))? {
        return Ok(());
    }
    if !take_over {
        return Err(VolumeError::NotSettled);
    }
    Volume::open(at, &Options::default())?.close()
}

/// Whether the log has nothing that came after the latest manifest.
async fn is_settled(at: &Location) -> Result<bool, VolumeError> {
    let manifest = database::admin(at).read_manifest(None).await?.ok_or(VolumeError::NotFound)?;
    let log = WalReader::new(database::path(at), Arc::clone(&at.store));
    let after = manifest.next_wal_sst_id().max(manifest.replay_after_wal_id() + 1);
    for file in log.list(after..).await? {
        // Who opens a volume writes an empty one.
        if file.iterator().await?.next().await?.is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The part of an address that names the bucket.
fn bucket(at: &Location) -> &str {
    let address = at.address.with_secrets();
    let rest = address.find("://").map_or(0, |at| at + 3);
    let end = address[rest..].find(['/', '?', '#']).map_or(address.len(), |at| rest + at);
    &address[..end]
}
