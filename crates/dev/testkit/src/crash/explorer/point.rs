//! Crash points, and the resulting images.

use std::ops::Range;
use std::sync::Arc;

use disk::{Event, MemoryDevice};

use super::SECTOR_BYTES;
use super::record::{Done, RecordedRun};

/// A crash point, with the fate of the writes in flight.
#[derive(Clone, Debug)]
pub(super) struct Point {
    /// Number of the first event that may be missing: the one after the last flush.
    pub(super) begin: usize,
    /// Number of the first event that did not happen.
    pub(super) end: usize,
    fate: Fate,
}

/// Fate of the writes in flight.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// All arrive.
    All,
    /// All but the last arrive; the last one is torn.
    LastTorn { seed: u64 },
    /// Each arrives with a probability of `percent`, and one in eight of these is torn.
    Some { percent: u8, seed: u64 },
    /// All but one arrive.
    AllButOne { seed: u64 },
}

impl Point {
    /// Returns whether everything written has arrived.
    pub(super) fn is_boundary(&self) -> bool {
        matches!(self.fate, Fate::All)
    }
}

/// Selects points of a run in ascending order: every flush boundary, and samples up to `count`.
pub(super) fn choose(run: &RecordedRun, seed: u64, count: usize) -> Vec<Point> {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x00c0_ffee);
    let flushes = run.events.iter().enumerate().filter(|(_, event)| **event == Event::Flush);
    let mut ends: Vec<usize> = flushes.map(|(number, _)| number).collect();
    ends.push(run.events.len());
    let mut points = Vec::new();
    let mut epochs = Vec::new();
    let mut begin = 0;
    for end in ends {
        points.push(Point { begin, end, fate: Fate::All });
        if end > begin {
            epochs.push(begin..end);
        }
        begin = end + 1;
    }
    while points.len() < count && !epochs.is_empty() {
        let epoch = epochs[rng.usize(..epochs.len())].clone();
        let seed = rng.u64(..);
        let fate = match rng.u8(..8) {
            0 | 1 => Fate::LastTorn { seed },
            2 => Fate::All,
            3 => Fate::AllButOne { seed },
            4 => Fate::Some { percent: 90, seed },
            5 => Fate::Some { percent: 15, seed },
            _ => Fate::Some { percent: 50, seed },
        };
        let end = if rng.bool() { epoch.end } else { rng.usize(epoch.start..epoch.end) + 1 };
        points.push(Point { begin: epoch.start, end, fate });
    }
    points.sort_by_key(|point| (point.begin, point.end));
    points
}

/// Describes the steps of a run around a crash.
pub(super) fn describe(run: &RecordedRun, point: &Point) -> String {
    let (durable, started) = run.bounds(point.end);
    let mut text = format!("crash: {point:?} of {} events\n", run.events.len());
    text.push_str(&format!("durable: state {durable}; started: state {started}\n"));
    let from = durable.saturating_sub(1);
    for (number, done) in run.steps.iter().enumerate().take(started).skip(from) {
        let Done { step, begin, end, .. } = done;
        text.push_str(&format!("  {}: {:?}", number + 1, step.operation));
        text.push_str(&format!(" (events {begin}..{end})\n"));
    }
    text
}

/// Builds the images of ascending points incrementally.
pub(super) struct ImageBuilder<'r> {
    run: &'r RecordedRun,
    durable: MemoryDevice,
    applied: usize,
}

impl<'r> ImageBuilder<'r> {
    pub(super) fn new(run: &'r RecordedRun) -> Self {
        Self { run, durable: run.base.fork(), applied: 0 }
    }

    /// Returns the image after a crash at a point. Points must be ascending.
    pub(super) fn build(&mut self, point: &Point) -> MemoryDevice {
        for event in &self.run.events[self.applied.min(point.begin)..point.begin] {
            apply(event, &self.durable, None);
        }
        self.applied = self.applied.max(point.begin);
        let image = self.durable.fork();
        let whole = &self.run.indivisible[..];
        let in_flight = &self.run.events[point.begin..point.end];
        match point.fate {
            Fate::All => in_flight.iter().for_each(|event| apply(event, &image, None)),
            Fate::LastTorn { seed } => {
                if let Some((last, rest)) = in_flight.split_last() {
                    rest.iter().for_each(|event| apply(event, &image, None));
                    let mut rng = fastrand::Rng::with_seed(seed);
                    apply(last, &image, Some((&mut rng, whole)));
                }
            }
            Fate::AllButOne { seed } => {
                let missing = fastrand::Rng::with_seed(seed).usize(..in_flight.len().max(1));
                let present = in_flight.iter().enumerate().filter(|(at, _)| *at != missing);
                present.for_each(|(_, event)| apply(event, &image, None));
            }
            Fate::Some { percent, seed } => {
                let mut rng = fastrand::Rng::with_seed(seed);
                for event in in_flight {
                    if rng.u8(..100) < percent {
                        let torn = rng.u8(..8) == 0;
                        apply(event, &image, torn.then_some((&mut rng, whole)));
                    }
                }
            }
        }
        image
    }
}

/// Applies an event to an image; with `torn`, only some of its sectors.
fn apply(event: &Event, image: &MemoryDevice, torn: Option<(&mut fastrand::Rng, &[Range<u64>])>) {
    let replay = |event: &Event| event.replay(image).expect("it was done before");
    let Some((rng, whole)) = torn else { return replay(event) };
    // Half of the torn writes are prefixes, the others miss random sectors.
    let mut sectors: Vec<Event> = sectors(event, whole).collect();
    if rng.bool() {
        sectors.truncate(rng.usize(..=sectors.len()));
        sectors.iter().for_each(replay);
    } else {
        sectors.iter().filter(|_| rng.bool()).for_each(replay);
    }
}

/// Splits an event at sector boundaries, except within the ranges `whole`.
fn sectors(event: &Event, whole: &[Range<u64>]) -> impl Iterator<Item = Event> {
    let (start, len) = match event {
        Event::Write { offset, data } => (*offset, data.len() as u64),
        Event::Zero { offset, len } => (*offset, *len),
        Event::Flush => (0, 0),
    };
    let mut done = 0;
    std::iter::from_fn(move || {
        let offset = start + done;
        let sector_end = offset - offset % SECTOR_BYTES + SECTOR_BYTES;
        let whole_end = whole.iter().find(|range| range.contains(&offset)).map(|range| range.end);
        let count = (whole_end.unwrap_or(sector_end) - offset).min(len - done);
        let from = done as usize;
        done += count;
        (count > 0).then(|| match event {
            Event::Write { data, .. } => {
                let data = Arc::from(&data[from..from + count as usize]);
                Event::Write { offset, data }
            }
            _ => Event::Zero { offset, len: count },
        })
    })
}

#[cfg(test)]
mod tests {
    use disk::BlockDevice;

    use super::*;

    #[test]
    fn events_are_torn_at_sectors() {
        let data: Vec<u8> = (0..1200_u32).map(|n| n as u8).collect();
        let event = Event::Write { offset: 500, data: data.clone().into() };
        let parts: Vec<Event> = sectors(&event, &[]).collect();
        let lens: Vec<_> = parts
            .iter()
            .map(|part| match part {
                Event::Write { offset, data } => (*offset, data.len()),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(lens, [(500, 12), (512, 512), (1024, 512), (1536, 164)]);
        let (whole, parted) = (MemoryDevice::new(4096), MemoryDevice::new(4096));
        event.replay(&whole).unwrap();
        parts.iter().for_each(|part| part.replay(&parted).unwrap());
        let (mut a, mut b) = ([0; 4096], [1; 4096]);
        whole.read_at(0, &mut a).unwrap();
        parted.read_at(0, &mut b).unwrap();
        assert_eq!(a, b);
        assert_eq!(sectors(&event, std::slice::from_ref(&(1024..2048))).count(), 3);
        assert_eq!(sectors(&Event::Zero { offset: 0, len: 1024 }, &[]).count(), 2);
        assert_eq!(sectors(&Event::Flush, &[]).count(), 0);
    }
}
