//! The protocol of `docs/design/volumes.md` as a model: two machines that open, write and crash, a network, a log, a
//! collector, a snapshot and a clone. The volume has one block.

use std::collections::{BTreeMap, BTreeSet};

use stateright::{Model, Property};

use super::steps::BulkStep;

/// Properties. A write that was reported as synced is in the log ([`REPORTED`]), so the next opener refers to it or to
/// a later write, and finds its data ([`WRONG`], [`MISSING`]).
pub(super) const WRONG: &str = "readers find the data that the log refers to";
pub(super) const MISSING: &str = "no reference leads to a missing object";
pub(super) const REPORTED: &str = "a reported flush is in the log";
pub(super) const REPLACED: &str = "only the owner of the log replaces data";

/// A rule that is changed on purpose. The model finds a fault for all but the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangedRule {
    /// The block range determines the name of an object, as in an earlier draft.
    NamesByRange,
    /// The collector removes unreferenced objects of the current epoch.
    CollectsCurrentEpoch,
    /// The collector reads references, then lists and takes the epoch of that later moment.
    ReferencesFirst,
    /// The collector reads the checkpoints before the state of the tables.
    CheckpointsFirst,
    /// The epoch is that of the manifest, which an opener increments before it fences the log.
    EpochOfManifest,
    /// The collector skips a checkpoint that was removed while it reads, instead of stopping.
    SkipsRemoved,
    /// The database releases the pin of a clone that owns all its tables.
    ReleasesPin,
    /// A writer removes an object that its newest state does not refer to, but the tables do.
    IgnoresTables,
    /// A writer takes an existing log object for its own after a lost answer.
    TrustsExisting,
    /// The collector lists last, and takes the epoch from the state whose references it read.
    ListsLast,
}

/// Limits of one exploration, and the changed rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct BulkProtocol {
    pub(super) openings: u8,
    pub(super) writes: u8,
    pub(super) rounds: u8,
    /// Maximum number of crashes, doubled requests and lost answers.
    pub(super) faults: u8,
    pub(super) changed: Option<ChangedRule>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ObjectName {
    pub(super) epoch: u8,
    /// A counter instead of the random number.
    pub(super) number: u8,
}

/// Identity of a write, instead of its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct WriteId {
    /// Number of the opening.
    pub(super) by: u8,
    pub(super) number: u8,
}

/// Contents of the block after an object of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum CellValue {
    Small(WriteId),
    Bulk(ObjectName, WriteId),
}

impl CellValue {
    pub(super) fn name(self) -> Option<ObjectName> {
        match self {
            Self::Small(_) => None,
            Self::Bulk(name, _) => Some(name),
        }
    }
}

/// An object of the log, with the state after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LogObject {
    /// Number of the opening that wrote it.
    pub(super) by: u8,
    /// Largest recorded epoch.
    pub(super) epoch: u8,
    pub(super) cell: CellValue,
}

/// A request in the network. Requests are delivered in any order, at any time, or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum BucketRequest {
    /// A conditional put of a bulk object.
    Bulk {
        name: ObjectName,
        value: WriteId,
    },
    /// A conditional put of a log object. A second delivery finds the first, so one is enough.
    Log {
        by: u8,
        at: u8,
        name: Option<ObjectName>,
        value: WriteId,
    },
    Delete(ObjectName),
}

impl BucketRequest {
    fn put_name(&self) -> Option<ObjectName> {
        match *self {
            Self::Bulk { name, .. } => Some(name),
            Self::Log { .. } | Self::Delete(_) => None,
        }
    }
}

/// An opened volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct OpenedVolume {
    /// Number of the opening.
    pub(super) id: u8,
    pub(super) epoch: u8,
    /// Position of its next log object.
    pub(super) next: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum MachinePhase {
    Down,
    /// The manifest has its epoch, the log is not fenced yet.
    Opening {
        id: u8,
    },
    /// The log is fenced, the epoch is not recorded yet.
    Recording(OpenedVolume),
    Idle(OpenedVolume),
    /// Waits for the answer to a put.
    Putting(OpenedVolume, ObjectName, WriteId),
    /// Waits for the answer of the log.
    Flushing(OpenedVolume),
}

/// References that the collector read: of the tables, the snapshot and the pin of the clone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FoundReferences {
    pub(super) tables: Option<ObjectName>,
    pub(super) snapshot: Option<ObjectName>,
    pub(super) pin: Option<ObjectName>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum CollectorPhase {
    Waiting,
    Listed(BTreeSet<ObjectName>, FoundReferences),
    /// Has its own checkpoint, and reads the others.
    Reading {
        names: BTreeSet<ObjectName>,
        epoch: u8,
        found: FoundReferences,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct BucketWorld {
    /// Writer epoch of the manifest, which is also the number of openings.
    pub(super) manifest: u8,
    pub(super) log: Vec<LogObject>,
    /// Position of the last log object in the tables.
    pub(super) tables: u8,
    pub(super) objects: BTreeMap<ObjectName, WriteId>,
    pub(super) network: BTreeSet<BucketRequest>,
    pub(super) machines: [MachinePhase; 2],
    pub(super) collector: CollectorPhase,
    pub(super) snapshot: Option<CellValue>,
    /// The checkpoint that protects the contents of the clone.
    pub(super) pin: Option<CellValue>,
    pub(super) clone: Option<CellValue>,
    pub(super) had_snapshot: bool,
    pub(super) writes: u8,
    pub(super) names: u8,
    pub(super) rounds: u8,
    pub(super) faults: u8,
    /// A writer reported a flush whose batch is not in the log.
    pub(super) false_report: bool,
}

impl BucketWorld {
    fn new() -> Self {
        Self {
            manifest: 0,
            log: vec![LogObject {
                by: 0,
                epoch: 0,
                cell: CellValue::Small(WriteId { by: 0, number: 0 }),
            }],
            tables: 0,
            objects: BTreeMap::new(),
            network: BTreeSet::new(),
            machines: [MachinePhase::Down; 2],
            collector: CollectorPhase::Waiting,
            snapshot: None,
            pin: None,
            clone: None,
            had_snapshot: false,
            writes: 0,
            names: 0,
            rounds: 0,
            faults: 0,
            false_report: false,
        }
    }

    /// Returns the state that the next opener reads.
    pub(super) fn newest(&self) -> LogObject {
        self.log[self.log.len() - 1]
    }

    /// Returns the state of the tables.
    pub(super) fn merged(&self) -> LogObject {
        self.log[usize::from(self.tables)]
    }

    /// Removes requests that have no effect any more, which keeps the number of states low.
    fn drop_ineffective(&mut self) {
        let puts: BTreeSet<_> = self.network.iter().filter_map(BucketRequest::put_name).collect();
        let (objects, len) = (&self.objects, self.log.len());
        self.network.retain(|request| match *request {
            BucketRequest::Bulk { .. } => true,
            BucketRequest::Log { at, .. } => usize::from(at) >= len,
            BucketRequest::Delete(name) => objects.contains_key(&name) || puts.contains(&name),
        });
    }

    /// Returns all states that a reader can find: the log from the tables on, the snapshot and the clone.
    fn readable(&self) -> impl Iterator<Item = CellValue> {
        let logged = self.log[usize::from(self.tables)..].iter().map(|entry| entry.cell);
        logged.chain(self.snapshot).chain(self.clone)
    }
}

impl Model for BulkProtocol {
    type State = BucketWorld;
    type Action = BulkStep;

    fn init_states(&self) -> Vec<BucketWorld> {
        vec![BucketWorld::new()]
    }

    fn actions(&self, world: &BucketWorld, steps: &mut Vec<BulkStep>) {
        self.enabled(world, steps);
    }

    fn next_state(&self, world: &BucketWorld, step: BulkStep) -> Option<BucketWorld> {
        let mut next = world.clone();
        self.apply(&mut next, step);
        next.drop_ineffective();
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(WRONG, |_, world: &BucketWorld| {
                let is_right = |cell| match cell {
                    CellValue::Small(_) => true,
                    CellValue::Bulk(name, value) => {
                        world.objects.get(&name).is_none_or(|found| *found == value)
                    }
                };
                world.readable().all(is_right)
            }),
            Property::always(REPLACED, |_, world: &BucketWorld| {
                let owner = world.newest().by;
                let is_by_owner = |found: &WriteId| found.by == owner;
                match world.newest().cell {
                    CellValue::Small(_) => true,
                    CellValue::Bulk(name, value) => world
                        .objects
                        .get(&name)
                        .is_none_or(|found| *found == value || is_by_owner(found)),
                }
            }),
            Property::always(MISSING, |_, world: &BucketWorld| {
                let mut names = world.readable().filter_map(CellValue::name);
                names.all(|name| world.objects.contains_key(&name))
            }),
            Property::always(REPORTED, |_, world: &BucketWorld| !world.false_report),
            Property::sometimes("an object is removed", |_, world: &BucketWorld| {
                let mut names = world.log.iter().filter_map(|entry| entry.cell.name());
                names.any(|name| !world.objects.contains_key(&name))
            }),
            Property::sometimes("a fenced put takes effect", |_, world: &BucketWorld| {
                let is_old = |name: &ObjectName| name.epoch < world.newest().epoch;
                let is_logged =
                    |name| world.log.iter().any(|entry| entry.cell.name() == Some(name));
                world.objects.keys().any(|name| is_old(name) && !is_logged(*name))
            }),
            Property::sometimes("a clone refers to an object", |_, world: &BucketWorld| {
                world.clone.is_some_and(|cell| cell.name().is_some())
            }),
            Property::sometimes("bulk data replaces bulk data", |_, world: &BucketWorld| {
                let cells = world.log.iter().filter_map(|entry| entry.cell.name());
                cells.collect::<BTreeSet<_>>().len() > 1
            }),
        ]
    }
}
