//! Removes bulk objects that nothing refers to: those of earlier epochs, and those of the writer that collects.
//! `docs/design/volumes.md` has the steps and the reasons for their order.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use serde::Serialize;
use slatedb::config::{CheckpointOptions, CheckpointScope};
use slatedb::{CheckpointCreateResult, DbReader};
use uuid::Uuid;

use crate::place::runtime::random_uuid;
use crate::volume::blocks::{Geometry, Scan, recorded_epoch};
use crate::volume::bulk::{BlockValue, BulkWriter, GARBAGE, OBJECTS, ObjectName};
use crate::volume::marker::{Marker, again};
use crate::volume::{Location, Options, VolumeError, database};

/// Minimum time between the run that finds an object without references and the run that removes it. Views of the
/// volume are usable for this time.
pub const GARBAGE_AGE: Duration = Duration::from_secs(24 * 3600);
/// Lifetime of the collector's checkpoint, which it removes at its end.
const CHECKPOINT_TIME: Duration = Duration::from_secs(24 * 3600);
/// Maximum size of a list of garbage that is read.
const LIST_BYTES_MAX: u64 = 1 << 30;

/// Result of a run of the garbage collector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct GarbageCount {
    /// Number of bulk objects of the volume.
    pub objects: u64,
    /// Number of objects without a reference that remain, because they were not known as such for long enough.
    pub waiting: u64,
    /// Size of the waiting objects in bytes.
    pub waiting_bytes: u64,
    /// Number of removed objects.
    pub removed: u64,
    /// Size of the removed objects in bytes.
    pub removed_bytes: u64,
}

/// Removes bulk objects of earlier epochs without references. An object must have been found without references by a
/// run that is at least `age` ago.
pub(crate) async fn collect_earlier(
    at: &Location,
    marker: &Marker,
    age: Duration,
) -> Result<GarbageCount, VolumeError> {
    // The list is first. It is the second line of defence against an epoch that is newer than the references.
    let objects = list_objects(at).await?;
    let own = database::admin(at).create_detached_checkpoint(&checkpoint_options()).await?;
    let round = Round { at, marker, objects, own, age, writer: None };
    round.run(std::future::ready(Ok(()))).await
}

/// Removes objects as [`collect_earlier`] does, and those of this writer's epoch.
pub(crate) async fn collect_own(
    at: &Location,
    marker: &Marker,
    writer: &BulkWriter,
    age: Duration,
) -> Result<GarbageCount, VolumeError> {
    let epoch = writer.epoch().await?;
    let objects = list_objects(at).await?;
    // Later than the list and before the checkpoint. The batch of any other listed object is in the checkpoint.
    let unsettled = writer.reader.objects.unsettled();
    // It moves the log into tables, so a later checkpoint from outside cannot be older.
    let own = writer.db().create_checkpoint(CheckpointScope::All, &checkpoint_options()).await?;
    let round = Round { at, marker, objects, own, age, writer: Some((epoch, unsettled)) };
    // A fenced writer could have made a checkpoint of the tables of its successor, which may be older than the log.
    round.run(writer.prove_ownership()).await
}

fn checkpoint_options() -> CheckpointOptions {
    CheckpointOptions { lifetime: Some(CHECKPOINT_TIME), ..CheckpointOptions::default() }
}

/// One run of the collector.
struct Round<'a> {
    at: &'a Location,
    marker: &'a Marker,
    objects: BTreeMap<ObjectName, ObjectMeta>,
    own: CheckpointCreateResult,
    age: Duration,
    /// Epoch of the writer that collects, and its objects that may get references.
    writer: Option<(u64, BTreeSet<ObjectName>)>,
}

impl Round<'_> {
    /// Collects, and removes the own checkpoint. `permitted` is awaited before the first removal.
    async fn run(
        &self,
        permitted: impl Future<Output = Result<(), VolumeError>>,
    ) -> Result<GarbageCount, VolumeError> {
        let counted = async {
            let (epoch, referenced) = self.references().await?;
            permitted.await?;
            self.remove_garbage(epoch, &referenced).await
        };
        let counted = counted.await;
        let removed = database::admin(self.at).delete_checkpoint(self.own.id).await;
        let counted = counted?;
        removed?;
        Ok(counted)
    }

    /// Reads the epoch of the own checkpoint, and the references of all checkpoints.
    async fn references(&self) -> Result<(u64, BTreeSet<ObjectName>), VolumeError> {
        let Self { at, marker, own, .. } = self;
        let (epoch, mut referenced) = references(at, marker, own.id).await?;
        let manifest = database::admin(at).read_manifest(Some(own.manifest_id)).await?;
        let manifest = manifest.ok_or(VolumeError::SnapshotRemoved)?;
        let checkpoints = manifest.checkpoints();
        if !checkpoints.iter().any(|checkpoint| checkpoint.id == own.id) {
            return Err(VolumeError::SnapshotRemoved);
        }
        for checkpoint in checkpoints.iter().filter(|checkpoint| checkpoint.id != own.id) {
            match references(at, marker, checkpoint.id).await {
                Ok((_, found)) => referenced.extend(found),
                // A clone of it may exist by now. Its pin is in a later manifest.
                Err(VolumeError::Database(_)) if is_removed(at, checkpoint.id).await? => {
                    return Err(VolumeError::SnapshotRemoved);
                }
                Err(error) => return Err(error),
            }
        }
        // Without a record, no writer ever put an object.
        Ok((epoch.unwrap_or(0), referenced))
    }

    async fn remove_garbage(
        &self,
        epoch: u64,
        referenced: &BTreeSet<ObjectName>,
    ) -> Result<GarbageCount, VolumeError> {
        let is_settled = |name: &ObjectName| {
            let is_own = |(own, unsettled): &(u64, BTreeSet<ObjectName>)| {
                name.epoch == *own && !unsettled.contains(name)
            };
            name.epoch < epoch || self.writer.as_ref().is_some_and(is_own)
        };
        let is_garbage = |name: &ObjectName| is_settled(name) && !referenced.contains(name);
        let garbage: BTreeMap<_, _> =
            self.objects.iter().filter(|(name, _)| is_garbage(name)).collect();
        let names = garbage.keys().map(|name| **name);
        let before = listed_before(self.at, names, self.age).await?;
        let mut count =
            GarbageCount { objects: self.objects.len() as u64, ..GarbageCount::default() };
        for (name, meta) in garbage {
            if !before.contains(name) {
                count.waiting += 1;
                count.waiting_bytes += meta.size;
                continue;
            }
            remove(self.at, &meta.location).await?;
            count.removed += 1;
            count.removed_bytes += meta.size;
        }
        Ok(count)
    }
}

async fn is_removed(at: &Location, checkpoint: Uuid) -> Result<bool, VolumeError> {
    let now = database::newest_manifest(at).await?;
    let mut checkpoints = now.iter().flat_map(|manifest| manifest.checkpoints());
    Ok(!checkpoints.any(|it| it.id == checkpoint))
}

/// Returns the bulk objects of a volume, without those of its origins. Other names are ignored.
pub(crate) async fn list_objects(
    at: &Location,
) -> Result<BTreeMap<ObjectName, ObjectMeta>, VolumeError> {
    let prefix = at.path.clone().join(OBJECTS);
    let mut found = BTreeMap::new();
    let mut list = at.store.list(Some(&prefix));
    while let Some(meta) = list.try_next().await? {
        if let Some(name) = name_of(&meta.location, &prefix) {
            found.insert(name, meta);
        }
    }
    Ok(found)
}

/// Parses the path of a bulk object.
fn name_of(path: &Path, prefix: &Path) -> Option<ObjectName> {
    let parts: Vec<_> = path.prefix_match(prefix)?.collect();
    let [epoch, number] = &parts[..] else { return None };
    ObjectName::parse(epoch.as_ref(), number.as_ref())
}

/// Reads the recorded epoch and all objects with references in a checkpoint.
async fn references(
    at: &Location,
    marker: &Marker,
    checkpoint: Uuid,
) -> Result<(Option<u64>, BTreeSet<ObjectName>), VolumeError> {
    let reader = database::open_to_read(at, marker, Some(checkpoint), &Options::default()).await?;
    let found = references_of(&reader, marker).await;
    reader.close().await?;
    found
}

async fn references_of(
    reader: &DbReader,
    marker: &Marker,
) -> Result<(Option<u64>, BTreeSet<ObjectName>), VolumeError> {
    let geometry = Geometry::check(reader, marker).await?;
    let epoch = recorded_epoch(reader).await?;
    let mut found = BTreeSet::new();
    let mut scan = Scan::new(reader, 0..geometry.blocks(), geometry).await?;
    while let Some((_, value)) = scan.next().await? {
        if let BlockValue::Bulk(reference) = value {
            found.insert(reference.object);
        }
    }
    Ok((epoch, found))
}

/// Puts a list of garbage, and returns the garbage on lists that are at least `age` older, by the clock of the store.
/// Removes lists that are not needed any more.
async fn listed_before(
    at: &Location,
    garbage: impl Iterator<Item = ObjectName>,
    age: Duration,
) -> Result<BTreeSet<ObjectName>, VolumeError> {
    let prefix = at.path.clone().join(GARBAGE);
    let own = prefix.clone().join(random_uuid().to_string());
    let lines: String = garbage.map(|it| format!("{}/{}\n", it.epoch, it.digits())).collect();
    again(|| async { at.store.put(&own, lines.clone().into()).await }).await?;
    let mut lists: Vec<ObjectMeta> = at.store.list(Some(&prefix)).try_collect().await?;
    lists.sort_by_key(|meta| meta.last_modified);
    let Some(now) = lists.iter().find(|meta| meta.location == own).map(|it| it.last_modified)
    else {
        // The store does not list its newest objects, so nothing is known about times.
        return Ok(BTreeSet::new());
    };
    lists.retain(|meta| {
        let passed = (now - meta.last_modified).to_std();
        meta.location != own && passed.is_ok_and(|passed| passed >= age)
    });
    // Garbage remains garbage, so the last of these lists contains all that the others do.
    let Some(last) = lists.pop() else { return Ok(BTreeSet::new()) };
    for list in lists {
        remove(at, &list.location).await?;
    }
    parse_list(at, &last).await
}

async fn parse_list(at: &Location, list: &ObjectMeta) -> Result<BTreeSet<ObjectName>, VolumeError> {
    if list.size > LIST_BYTES_MAX {
        let what = format!("its list {} has {} bytes", list.location, list.size);
        return Err(VolumeError::Damaged(what));
    }
    let get = || async { at.store.get(&list.location).await?.bytes().await };
    let text = match again(get).await {
        // Another collector has removed it.
        Err(object_store::Error::NotFound { .. }) => return Ok(BTreeSet::new()),
        text => text?,
    };
    let text = String::from_utf8_lossy(&text);
    // An unreadable line removes nothing.
    let names = text.lines().filter_map(|line| line.split_once('/'));
    Ok(names.filter_map(|(epoch, number)| ObjectName::parse(epoch, number)).collect())
}

async fn remove(at: &Location, path: &Path) -> Result<(), VolumeError> {
    match again(|| async { at.store.delete(path).await }).await {
        Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
