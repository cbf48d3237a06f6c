//! A run on a recorded device, with the model's states.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use disk::{BlockDevice, Event, MemoryDevice, RecordingDevice};
use vfs::FileSystem;

use super::allowed::ModelSnapshot;
use super::{CrashTarget, OpenFileSystem, Options, SECTOR_BYTES};
use crate::fs_tree::{FsTree, Rules};
use crate::model::Model;
use crate::operation::{Generator, Mix, NumberedOperation, Operation, Session, same_outcome};

/// Everything needed to simulate crashes of a run.
pub(super) struct RecordedRun {
    /// The device before the first event.
    pub(super) base: MemoryDevice,
    pub(super) events: Vec<Event>,
    /// Byte ranges of the device that are written atomically.
    pub(super) indivisible: Vec<Range<u64>>,
    pub(super) steps: Vec<Done>,
    /// State `k` is the one after `k` steps.
    states: Vec<ModelSnapshot>,
}

/// A completed step.
pub(super) struct Done {
    pub(super) step: NumberedOperation,
    /// Number of the first event after it began.
    pub(super) begin: usize,
    /// Number of the first event after it ended.
    pub(super) end: usize,
    /// The state that it made durable.
    durable: Option<usize>,
}

/// Executes a run.
///
/// # Errors
/// The first difference between the file system and the model.
pub(super) fn run(
    target: &dyn CrashTarget,
    seed: u64,
    mix: Mix,
    options: &Options,
) -> Result<RecordedRun, String> {
    let base = target.make(seed)?;
    let device = Arc::new(base.fork());
    let fail = |what: &str, error: vfs::Error| format!("{what}: {error}");
    let fresh = target.open(device.clone()).map_err(|e| fail("opening a new image", e))?;
    Session::prepare(fresh.file_system()).map_err(|e| fail("preparing the root", e))?;
    fresh.close().map_err(|e| fail("closing a new image", e))?;
    let mut base = device.fork();
    let recording = Arc::new(RecordingDevice::new(device.clone()));
    let fs = target.open(recording.clone()).map_err(|e| fail("opening", e))?;
    let mut recorder = Recorder::new(fs.file_system(), &recording)?;
    let mut generator = Generator::new(seed, mix);
    let warm_steps = match options.warm_steps_max {
        0 => 0,
        most => fastrand::Rng::with_seed(seed).usize(..=most),
    };
    for _ in 0..warm_steps {
        let step = generator.next_step(&recorder.model, &recorder.model_session);
        recorder.warm(step)?;
    }
    if warm_steps > 0 {
        base = recorder.begin(&device)?;
    }
    for _ in 0..options.steps_per_run {
        let step = generator.next_step(&recorder.model, &recorder.model_session);
        recorder.apply(step)?;
    }
    let (mut steps, states) = recorder.finish()?;
    // Some runs end with a clean close, the others with writes in flight.
    if seed.is_multiple_of(4) {
        steps.push(close(fs, &recording, states.len() - 1)?);
    }
    let events = whole_sectors(recording.take(), &base).map_err(|error| error.to_string())?;
    Ok(RecordedRun { base, events, indivisible: target.indivisible(), steps, states })
}

/// Widens each write to whole sectors with their contents at the time: a device writes no less, so a write cannot
/// arrive without earlier writes to the same sector.
fn whole_sectors(events: Vec<Event>, base: &MemoryDevice) -> io::Result<Vec<Event>> {
    let live = base.fork();
    let widen = |event: Event| {
        event.replay(&live)?;
        let (start, len) = match &event {
            Event::Write { offset, data } => (*offset, data.len() as u64),
            Event::Zero { offset, len } => (*offset, *len),
            Event::Flush => return Ok(event),
        };
        let offset = start - start % SECTOR_BYTES;
        let end = (start + len).next_multiple_of(SECTOR_BYTES).min(live.len());
        if (offset, end) == (start, start + len) {
            return Ok(event);
        }
        let mut data = vec![0; (end - offset) as usize];
        live.read_at(offset, &mut data)?;
        Ok(Event::Write { offset, data: data.into() })
    };
    events.into_iter().map(widen).collect()
}

fn close(
    fs: Box<dyn OpenFileSystem>,
    recording: &RecordingDevice,
    durable: usize,
) -> Result<Done, String> {
    let begin = recording.event_count();
    fs.close().map_err(|error| format!("closing: {error}"))?;
    let step = NumberedOperation { number: 0, operation: Operation::Sync };
    Ok(Done { step, begin, end: recording.event_count(), durable: Some(durable) })
}

struct Recorder<'r> {
    fs: &'r dyn FileSystem,
    session: Session,
    model: Model,
    model_session: Session,
    recording: &'r RecordingDevice,
    steps: Vec<Done>,
    states: Vec<ModelSnapshot>,
}

impl<'r> Recorder<'r> {
    fn new(fs: &'r dyn FileSystem, recording: &'r RecordingDevice) -> Result<Self, String> {
        let totals = fs.statfs().map_err(|error| error.to_string())?;
        let model =
            Model::comparing_as(fs, totals.block_size.into()).map_err(|error| error.to_string())?;
        Session::prepare(&model).map_err(|error| error.to_string())?;
        let states = vec![ModelSnapshot { tree: FsTree::of(&model)?, open: Vec::new() }];
        let (session, model_session) = (Session::new(), Session::new());
        Ok(Self { fs, session, model, model_session, recording, steps: Vec::new(), states })
    }

    /// Executes a step before the first crash point.
    fn warm(&mut self, step: NumberedOperation) -> Result<(), String> {
        let found = self.session.apply(self.fs, &step);
        self.assert_same(&step, &found)
    }

    /// Starts recording from the current state: returns the device with that state durable.
    fn begin(&mut self, device: &MemoryDevice) -> Result<MemoryDevice, String> {
        self.fs.sync().map_err(|error| format!("sync: {error}"))?;
        self.states = vec![ModelSnapshot::of(&self.model, &self.model_session)?];
        self.recording.take();
        Ok(device.fork())
    }

    fn assert_same(
        &mut self,
        step: &NumberedOperation,
        found: &vfs::Result<()>,
    ) -> Result<(), String> {
        let expected = self.model_session.apply(&self.model, step);
        if same_outcome(step, &expected, found) {
            return Ok(());
        }
        Err(format!("{step:?}: expected {expected:?}, found {found:?}"))
    }

    fn apply(&mut self, step: NumberedOperation) -> Result<(), String> {
        let begin = self.recording.event_count();
        let found = self.session.apply(self.fs, &step);
        let end = self.recording.event_count();
        self.assert_same(&step, &found)?;
        let state = ModelSnapshot::of(&self.model, &self.model_session)?;
        self.states.push(state);
        let durable = if found.is_ok() { self.made_durable(&step) } else { None };
        self.steps.push(Done { step, begin, end, durable });
        Ok(())
    }

    /// Returns the state that the last step made durable.
    fn made_durable(&self, step: &NumberedOperation) -> Option<usize> {
        let last = self.states.len() - 1;
        match &step.operation {
            Operation::Sync => Some(last),
            Operation::Fsync { target } => {
                let ino = self.model_session.target(&self.model, target).ok()?;
                let changed = |k: &usize| !self.states[*k].shows_same(&self.states[k - 1], ino);
                Some((1..=last).rev().find(changed).unwrap_or(0))
            }
            _ => None,
        }
    }

    /// Compares the live file system with the model, and releases open files.
    fn finish(mut self) -> Result<(Vec<Done>, Vec<ModelSnapshot>), String> {
        let tree = FsTree::of(self.fs)?;
        let last = self.states.last().map(|state| &state.tree);
        let differences = last.map(|last| last.differences(&tree, Rules::default()));
        if let Some(list) = differences.filter(|list| !list.is_empty()) {
            return Err(format!("without any crash:\n{}", list.join("\n")));
        }
        self.session.close_all(self.fs).map_err(|error| format!("closing a file: {error}"))?;
        Ok((self.steps, self.states))
    }
}

impl RecordedRun {
    /// Returns the allowed states after a crash before event `end`: from the durable one to the last one started.
    pub(super) fn allowed(&self, end: usize) -> &[ModelSnapshot] {
        let (durable, started) = self.bounds(end);
        &self.states[durable..=started]
    }

    pub(super) fn bounds(&self, end: usize) -> (usize, usize) {
        let finished = self.steps.iter().filter(|done| done.end <= end);
        let durable = finished.filter_map(|done| done.durable).max().unwrap_or(0);
        let started = self.steps.iter().rposition(|done| done.begin < end);
        let started = started.map_or(0, |at| (at + 1).min(self.states.len() - 1));
        (durable, started.max(durable))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sector_arrives_with_all_that_was_written_to_it_before() {
        let base = MemoryDevice::new(4096);
        base.write_at(0, &[9; 4096]).unwrap();
        let events = vec![
            Event::Write { offset: 600, data: [1; 10].into() },
            Event::Flush,
            Event::Zero { offset: 1000, len: 100 },
            Event::Write { offset: 512, data: [2; 512].into() },
        ];
        let widened = whole_sectors(events.clone(), &base).unwrap();
        let mut first = [9; 512];
        first[88..98].fill(1);
        assert_eq!(widened[0], Event::Write { offset: 512, data: first.into() });
        let mut second = [9; 1024];
        second[..512].copy_from_slice(&first);
        second[488..588].fill(0);
        assert_eq!(widened[2], Event::Write { offset: 512, data: second.into() });
        assert_eq!((&widened[1], &widened[3]), (&events[1], &events[3]));
    }
}
