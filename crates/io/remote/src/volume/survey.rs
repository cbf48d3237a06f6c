//! Counts and checks the data of a volume.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use serde::Serialize;
use slatedb::DbReader;

use crate::place::runtime::block_on;
use crate::volume::blocks::{Geometry, Scan};
use crate::volume::bulk::{BlockValue, BulkObjects, REGION_BYTES, Reference};
use crate::volume::garbage::list_objects;
use crate::volume::marker::{Marker, again};
use crate::volume::{Location, Options, VolumeError, database, names};

/// Maximum number of problems that are described. All are counted.
const PROBLEMS_MAX: usize = 100;

/// Sizes of a volume's data, and problems of its bulk objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct VolumeSurvey {
    /// Size of the volume in bytes.
    pub len: u64,
    /// Size of the data in the database in bytes.
    pub database_bytes: u64,
    /// Size of the data in bulk objects in bytes.
    pub bulk_bytes: u64,
    /// Number of bulk objects of this volume, without those that a clone shares with its origin.
    pub objects: u64,
    /// Size of these objects in bytes.
    pub objects_bytes: u64,
    /// Number of them without a reference in this state. Snapshots may refer to them.
    pub unreferenced: u64,
    /// Size of the unreferenced objects in bytes.
    pub unreferenced_bytes: u64,
    /// Maximum number of objects that a region of 4 MiB refers to.
    pub region_objects_max: u64,
    /// Number of blocks with an unusable reference.
    pub damaged_blocks: u64,
    /// Descriptions of the first problems.
    pub problems: Vec<String>,
}

/// Reads all references of a volume or of a snapshot, and checks that their objects exist. With `verify`, reads and
/// verifies the data of bulk objects, too.
///
/// # Errors
/// If the volume or snapshot does not exist, its database is damaged, or the bucket is inaccessible.
pub fn survey(
    at: &Location,
    snapshot: Option<&str>,
    verify: bool,
) -> Result<VolumeSurvey, VolumeError> {
    block_on(async {
        let marker = Marker::read(at).await?;
        let checkpoint = match snapshot {
            Some(name) => Some(names::find(at, name).await?),
            None => None,
        };
        let options = Options::default();
        // The database is opened before the list, so that its objects are on the list, unless it is stale.
        let reader = database::open_to_read(at, &marker, checkpoint, &options).await?;
        let geometry = Geometry::check(&reader, &marker).await?;
        let mut surveyor = Surveyor::new(at, &marker, geometry, verify).await?;
        let done = surveyor.read_all(&reader).await;
        reader.close().await?;
        done?;
        Ok(surveyor.finish())
    })
}

struct Surveyor {
    geometry: Geometry,
    store: Arc<dyn ObjectStore>,
    objects: BulkObjects,
    own: Path,
    /// Sizes of all objects of the volume and of its origins, and `None` for missing objects.
    sizes: BTreeMap<Path, Option<u64>>,
    used: BTreeSet<Path>,
    verify: bool,
    survey: VolumeSurvey,
}

impl Surveyor {
    async fn new(
        at: &Location,
        marker: &Marker,
        geometry: Geometry,
        verify: bool,
    ) -> Result<Self, VolumeError> {
        let mut volumes = vec![at.path.clone()];
        volumes.extend(marker.origins.iter().map(|origin| Path::from(origin.path.as_str())));
        let mut sizes = BTreeMap::new();
        for path in volumes {
            let objects = list_objects(&Location { path, ..at.clone() }).await?;
            sizes.extend(objects.into_values().map(|meta| (meta.location, Some(meta.size))));
        }
        Ok(Self {
            geometry,
            store: Arc::clone(&at.store),
            objects: BulkObjects::new(at, marker, &Options::default()),
            own: at.path.clone(),
            sizes,
            used: BTreeSet::new(),
            verify,
            survey: VolumeSurvey { len: geometry.len, ..VolumeSurvey::default() },
        })
    }

    async fn read_all(&mut self, reader: &DbReader) -> Result<(), VolumeError> {
        let block_bytes = self.geometry.block_bytes;
        let mut scan = Scan::new(reader, 0..self.geometry.blocks(), self.geometry).await?;
        let mut region = 0;
        let mut references = Vec::new();
        while let Some((block, value)) = scan.next().await? {
            let next = block * block_bytes / REGION_BYTES;
            if next != region {
                self.add_region(&std::mem::take(&mut references)).await?;
                region = next;
            }
            match value {
                BlockValue::Data(_) => self.survey.database_bytes += block_bytes,
                BlockValue::Bulk(reference) => references.push((block, reference)),
            }
        }
        self.add_region(&references).await
    }

    /// Adds the references of a region.
    async fn add_region(&mut self, references: &[(u64, Reference)]) -> Result<(), VolumeError> {
        let block_bytes = self.geometry.block_bytes;
        let mut objects = BTreeSet::new();
        let mut usable = Vec::new();
        for &(block, reference) in references {
            self.survey.bulk_bytes += block_bytes;
            let path = self.objects.path(reference.object);
            let end = (u64::from(reference.index) + 1) * block_bytes;
            match self.size(&path).await? {
                Some(size) if end <= size => usable.push((block, reference)),
                Some(size) => {
                    self.add_problem(block, &format!("object {path} has {size} bytes, not {end}"));
                }
                None => self.add_problem(block, &format!("object {path} is missing")),
            }
            objects.insert(path);
        }
        self.survey.region_objects_max = self.survey.region_objects_max.max(objects.len() as u64);
        self.used.append(&mut objects);
        if self.verify { self.verify(&usable).await } else { Ok(()) }
    }

    /// Returns the size of an object, which may be missing in a stale list.
    async fn size(&mut self, path: &Path) -> Result<Option<u64>, VolumeError> {
        if let Some(size) = self.sizes.get(path) {
            return Ok(*size);
        }
        let size = match again(|| async { self.store.head(path).await }).await {
            Ok(meta) => Some(meta.size),
            Err(object_store::Error::NotFound { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        self.sizes.insert(path.clone(), size);
        Ok(size)
    }

    /// Reads blocks of a region together, and each alone if one is damaged.
    async fn verify(&mut self, references: &[(u64, Reference)]) -> Result<(), VolumeError> {
        let block_bytes = self.geometry.block_bytes as usize;
        let wanted: Vec<_> = references.iter().map(|it| it.1).zip(0..).collect();
        let mut buf = vec![0; wanted.len() * block_bytes];
        match self.objects.read(&wanted, &mut buf).await {
            Err(error) if error.is_damage() => {}
            result => return result,
        }
        for &(block, reference) in references {
            match self.objects.read(&[(reference, 0)], &mut buf[..block_bytes]).await {
                Err(error) if error.is_damage() => self.add_problem(block, &error.to_string()),
                result => result?,
            }
        }
        Ok(())
    }

    fn add_problem(&mut self, block: u64, what: &str) {
        self.survey.damaged_blocks += 1;
        if self.survey.problems.len() < PROBLEMS_MAX {
            self.survey.problems.push(format!("block {block}: {what}"));
        }
    }

    fn finish(mut self) -> VolumeSurvey {
        for (path, size) in &self.sizes {
            let Some(size) = size.filter(|_| path.prefix_matches(&self.own)) else { continue };
            self.survey.objects += 1;
            self.survey.objects_bytes += size;
            if !self.used.contains(path) {
                self.survey.unreferenced += 1;
                self.survey.unreferenced_bytes += size;
            }
        }
        self.survey
    }
}
