//! The steps of the model: of the machines, of the network, of the collector, and of snapshots.

use super::protocol::{
    BucketRequest, BucketWorld, BulkProtocol, CellValue, ChangedRule, CollectorPhase,
    FoundReferences, LogObject, MachinePhase, ObjectName, OpenedVolume, WriteId,
};

/// A step. Machines are numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BulkStep {
    /// Increments the epoch of the manifest.
    Open(usize),
    /// Writes an empty log object, and reads the log up to it.
    Fence(usize),
    /// Records the epoch in the log.
    Record(usize),
    WriteSmall(usize),
    WriteBulk(usize),
    /// Repeats a put under a new name, because no answer came.
    PutAgain(usize),
    /// Finds that the position of the flush in the log is taken.
    FindTaken(usize),
    Crash(usize),
    /// Removes an object of the own epoch.
    RemoveOwn(usize, ObjectName),
    /// Executes a request. Its answer may be lost, and the network may deliver it again.
    Deliver {
        request: BucketRequest,
        answered: bool,
        doubled: bool,
    },
    /// Moves the log into tables.
    Merge,
    Snapshot,
    RemoveSnapshot,
    Clone,
    ReleasePin,
    List,
    Checkpoint,
    Collect,
    EndRound,
}

impl BulkProtocol {
    fn has(&self, rule: ChangedRule) -> bool {
        self.changed == Some(rule)
    }

    pub(super) fn enabled(&self, world: &BucketWorld, steps: &mut Vec<BulkStep>) {
        for machine in 0..world.machines.len() {
            self.of_machine(world, machine, steps);
        }
        for &request in &world.network {
            let is_awaited = world.waiting_for(request).is_some();
            let may_fail = world.faults < self.faults;
            let is_bulk = matches!(request, BucketRequest::Bulk { .. });
            for (answered, doubled) in [(true, false), (false, false), (true, true), (false, true)]
            {
                let is_fault = doubled || is_awaited && !answered;
                if (may_fail || !is_fault) && (is_bulk || !doubled) && (is_awaited || !answered) {
                    steps.push(BulkStep::Deliver { request, answered, doubled });
                }
            }
        }
        if usize::from(world.tables) + 1 < world.log.len() {
            steps.push(BulkStep::Merge);
        }
        match world.snapshot {
            // Snapshots and clones of small data need nothing of this protocol.
            None if !world.had_snapshot && world.merged().cell.name().is_some() => {
                steps.push(BulkStep::Snapshot);
            }
            None => {}
            Some(_) => {
                steps.push(BulkStep::RemoveSnapshot);
                if world.clone.is_none() {
                    steps.push(BulkStep::Clone);
                }
            }
        }
        if self.has(ChangedRule::ReleasesPin) && world.pin.is_some() {
            steps.push(BulkStep::ReleasePin);
        }
        match world.collector {
            CollectorPhase::Waiting if world.rounds < self.rounds => steps.push(BulkStep::List),
            CollectorPhase::Waiting => {}
            CollectorPhase::Listed(..) => steps.extend([BulkStep::Checkpoint, BulkStep::EndRound]),
            CollectorPhase::Reading { .. } => {
                steps.extend([BulkStep::Collect, BulkStep::EndRound]);
            }
        }
    }

    fn of_machine(&self, world: &BucketWorld, machine: usize, steps: &mut Vec<BulkStep>) {
        match world.machines[machine] {
            MachinePhase::Down => {
                // The machines are equal, so the first one that is down is enough.
                let is_first = !world.machines[..machine].contains(&MachinePhase::Down);
                if world.manifest < self.openings && is_first {
                    steps.push(BulkStep::Open(machine));
                }
                return;
            }
            MachinePhase::Opening { .. } => steps.push(BulkStep::Fence(machine)),
            MachinePhase::Recording(_) => steps.push(BulkStep::Record(machine)),
            MachinePhase::Idle(volume) => {
                if world.writes < self.writes {
                    steps.extend([BulkStep::WriteSmall(machine), BulkStep::WriteBulk(machine)]);
                }
                let own = world.objects.keys().filter(|name| name.epoch == volume.epoch);
                steps.extend(own.map(|&name| BulkStep::RemoveOwn(machine, name)));
            }
            MachinePhase::Putting(..) if self.faults > 0 && world.names <= self.writes => {
                steps.push(BulkStep::PutAgain(machine));
            }
            MachinePhase::Putting(..) => {}
            MachinePhase::Flushing(_) => steps.push(BulkStep::FindTaken(machine)),
        }
        if world.faults < self.faults {
            steps.push(BulkStep::Crash(machine));
        }
    }

    pub(super) fn apply(&self, world: &mut BucketWorld, step: BulkStep) {
        match step {
            BulkStep::Open(machine) => {
                world.manifest += 1;
                world.machines[machine] = MachinePhase::Opening { id: world.manifest };
            }
            BulkStep::Fence(machine) => self.fence(world, machine),
            BulkStep::Record(machine) => record(world, machine),
            BulkStep::WriteSmall(machine) => {
                let MachinePhase::Idle(volume) = world.machines[machine] else { return };
                let value = world.next_write(volume);
                flush(world, machine, volume, None, value);
            }
            BulkStep::WriteBulk(machine) => {
                let MachinePhase::Idle(volume) = world.machines[machine] else { return };
                let value = world.next_write(volume);
                self.put(world, machine, volume, value);
            }
            BulkStep::PutAgain(machine) => {
                let MachinePhase::Putting(volume, _, value) = world.machines[machine] else {
                    return;
                };
                self.put(world, machine, volume, value);
            }
            BulkStep::FindTaken(machine) => self.find_taken(world, machine),
            BulkStep::Crash(machine) => {
                world.faults += 1;
                world.machines[machine] = MachinePhase::Down;
            }
            BulkStep::RemoveOwn(_, name) => self.remove_own(world, name),
            BulkStep::Deliver { request, answered, doubled } => {
                let is_lost = world.waiting_for(request).is_some() && !answered;
                world.faults += u8::from(is_lost || doubled);
                self.deliver(world, request, answered);
                if doubled {
                    world.network.insert(request);
                }
            }
            BulkStep::Merge => world.tables = world.log.len() as u8 - 1,
            BulkStep::Snapshot => {
                world.snapshot = Some(world.merged().cell);
                world.had_snapshot = true;
            }
            BulkStep::RemoveSnapshot => world.snapshot = None,
            BulkStep::Clone => (world.clone, world.pin) = (world.snapshot, world.snapshot),
            BulkStep::ReleasePin => world.pin = None,
            BulkStep::List => self.list(world),
            BulkStep::Checkpoint => self.checkpoint(world),
            BulkStep::Collect => self.collect(world),
            BulkStep::EndRound => world.collector = CollectorPhase::Waiting,
        }
    }

    fn fence(&self, world: &mut BucketWorld, machine: usize) {
        let MachinePhase::Opening { id } = world.machines[machine] else { return };
        if id != world.manifest {
            world.machines[machine] = MachinePhase::Down;
            return;
        }
        let before = world.newest();
        world.log.push(LogObject { by: id, ..before });
        let epoch = if self.has(ChangedRule::EpochOfManifest) { id } else { before.epoch + 1 };
        let volume = OpenedVolume { id, epoch, next: world.log.len() as u8 };
        world.machines[machine] = MachinePhase::Recording(volume);
    }

    fn put(&self, world: &mut BucketWorld, machine: usize, volume: OpenedVolume, value: WriteId) {
        world.names += 1;
        let name = if self.has(ChangedRule::NamesByRange) {
            ObjectName { epoch: 0, number: 0 }
        } else {
            ObjectName { epoch: volume.epoch, number: world.names }
        };
        world.network.insert(BucketRequest::Bulk { name, value });
        world.machines[machine] = MachinePhase::Putting(volume, name, value);
    }

    fn find_taken(&self, world: &mut BucketWorld, machine: usize) {
        let MachinePhase::Flushing(volume) = world.machines[machine] else { return };
        let Some(found) = world.log.get(usize::from(volume.next)) else { return };
        let is_own = found.by == volume.id;
        if is_own || self.has(ChangedRule::TrustsExisting) {
            report(world, machine, volume);
        } else {
            world.machines[machine] = MachinePhase::Down;
        }
    }

    fn remove_own(&self, world: &mut BucketWorld, name: ObjectName) {
        // The tables may advance to any later position while the request is on its way.
        let from = if self.has(ChangedRule::IgnoresTables) {
            world.log.len() - 1
        } else {
            usize::from(world.tables)
        };
        let logged = world.log[from..].iter().map(|entry| entry.cell);
        let mut kept = logged.chain(world.snapshot).chain(world.pin);
        if !kept.any(|cell| cell.name() == Some(name)) {
            world.network.insert(BucketRequest::Delete(name));
        }
    }

    fn deliver(&self, world: &mut BucketWorld, request: BucketRequest, answered: bool) {
        let waiting = world.waiting_for(request).filter(|_| answered);
        world.network.remove(&request);
        match request {
            BucketRequest::Bulk { name, value } => {
                if self.has(ChangedRule::NamesByRange) {
                    world.objects.insert(name, value);
                } else {
                    world.objects.entry(name).or_insert(value);
                }
                if let Some((machine, volume)) = waiting {
                    flush(world, machine, volume, Some(name), value);
                }
            }
            BucketRequest::Log { by, at, name, value } => {
                if usize::from(at) != world.log.len() {
                    return;
                }
                let cell =
                    name.map_or(CellValue::Small(value), |name| CellValue::Bulk(name, value));
                world.log.push(LogObject { by, cell, ..world.newest() });
                if let Some((machine, volume)) = waiting {
                    report(world, machine, volume);
                }
            }
            BucketRequest::Delete(name) => drop(world.objects.remove(&name)),
        }
    }

    fn list(&self, world: &mut BucketWorld) {
        world.rounds += 1;
        let names = world.objects.keys().copied().collect();
        world.collector = CollectorPhase::Listed(names, references(world));
    }

    /// Creates the collector's checkpoint, which fixes the epoch, the references and the other checkpoints.
    fn checkpoint(&self, world: &mut BucketWorld) {
        let CollectorPhase::Listed(names, earlier) = world.collector.clone() else { return };
        let mut names = names;
        let mut found = references(world);
        if self.has(ChangedRule::ReferencesFirst) {
            names = world.objects.keys().copied().collect();
            found = earlier;
        } else if self.has(ChangedRule::CheckpointsFirst) {
            found = FoundReferences { tables: found.tables, ..earlier };
        }
        let epoch = if self.has(ChangedRule::EpochOfManifest) {
            world.manifest
        } else {
            world.merged().epoch
        };
        world.collector = CollectorPhase::Reading { names, epoch, found };
    }

    fn collect(&self, world: &mut BucketWorld) {
        let CollectorPhase::Reading { mut names, epoch, mut found } = world.collector.clone()
        else {
            return;
        };
        world.collector = CollectorPhase::Waiting;
        if found.snapshot.is_some() && world.snapshot.is_none() {
            if !self.has(ChangedRule::SkipsRemoved) {
                return;
            }
            found.snapshot = None;
        }
        let kept = [found.tables, found.snapshot, found.pin];
        if self.has(ChangedRule::ListsLast) {
            names = world.objects.keys().copied().collect();
        }
        let current = self.has(ChangedRule::CollectsCurrentEpoch);
        for name in names {
            let is_old = name.epoch < epoch || current && name.epoch == epoch;
            if is_old && !kept.contains(&Some(name)) {
                world.network.insert(BucketRequest::Delete(name));
            }
        }
    }
}

impl BucketWorld {
    fn next_write(&mut self, volume: OpenedVolume) -> WriteId {
        self.writes += 1;
        WriteId { by: volume.id, number: self.writes }
    }

    /// Returns the machine that waits for the answer to a request.
    fn waiting_for(&self, request: BucketRequest) -> Option<(usize, OpenedVolume)> {
        let waits = |phase: &MachinePhase| match (*phase, request) {
            (MachinePhase::Putting(volume, on, what), BucketRequest::Bulk { name, value }) => {
                ((on, what) == (name, value)).then_some(volume)
            }
            (MachinePhase::Flushing(volume), BucketRequest::Log { by, .. }) => {
                (volume.id == by).then_some(volume)
            }
            _ => None,
        };
        let mut phases = self.machines.iter().enumerate();
        phases.find_map(|(machine, phase)| waits(phase).map(|volume| (machine, volume)))
    }
}

fn record(world: &mut BucketWorld, machine: usize) {
    let MachinePhase::Recording(volume) = world.machines[machine] else { return };
    if usize::from(volume.next) != world.log.len() {
        world.machines[machine] = MachinePhase::Down;
        return;
    }
    let entry = LogObject { by: volume.id, epoch: volume.epoch, ..world.newest() };
    world.log.push(entry);
    world.machines[machine] = MachinePhase::Idle(OpenedVolume { next: volume.next + 1, ..volume });
}

/// Sends the batch of a write to the log.
fn flush(
    world: &mut BucketWorld,
    machine: usize,
    volume: OpenedVolume,
    name: Option<ObjectName>,
    value: WriteId,
) {
    world.network.insert(BucketRequest::Log { by: volume.id, at: volume.next, name, value });
    world.machines[machine] = MachinePhase::Flushing(volume);
}

/// Reports a successful flush to the caller.
fn report(world: &mut BucketWorld, machine: usize, volume: OpenedVolume) {
    world.false_report |= world.log[usize::from(volume.next)].by != volume.id;
    world.machines[machine] = MachinePhase::Idle(OpenedVolume { next: volume.next + 1, ..volume });
}

/// Returns the references of the tables and of all checkpoints, as one manifest lists them.
fn references(world: &BucketWorld) -> FoundReferences {
    let name_of = |cell: Option<CellValue>| cell.and_then(CellValue::name);
    FoundReferences {
        tables: world.merged().cell.name(),
        snapshot: name_of(world.snapshot),
        pin: name_of(world.pin),
    }
}
