//! Crash states around the writes to a log or journal.
//!
//! A large checkpoint writes many records with few flushes between them. The states here end right after a write to the
//! log. Writes since the last flush are all present, or some of them are lost. A lost write with a later one present
//! also models a device that reorders writes.

use std::ops::Range;

use disk::{Event, MemoryDevice};
use vfs::{FileSystem, Ino, NewInode, SetAttributes};

use super::cut_off::{Tearing, cut_off_beside};

/// Files of a directory of [`change_in_bulk`].
const FILES_PER_DIRECTORY: usize = 200;

/// The fate of the writes since the last flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// All are on the device.
    Nothing,
    /// Each is lost with a chance of one half, and some are torn at sectors.
    Any,
    /// Exactly one write to the log is lost.
    OneLogWrite,
    /// Only the last one is on the device.
    AllButLast,
}

impl Loss {
    const ALL: [Self; 4] = [Self::Nothing, Self::Any, Self::OneLogWrite, Self::AllButLast];
}

/// A device after a crash.
pub struct LogState {
    /// The number of events before the crash. The last of them is a write to the log.
    pub end: usize,
    /// The fate of the writes since the last flush.
    pub loss: Loss,
    /// The contents of the device.
    pub device: MemoryDevice,
}

/// Creates crash states of a recorded run.
pub struct LogStates<'e> {
    events: &'e [Event],
    log: Vec<Range<u64>>,
    /// Numbers of the events that write to the log.
    writes: Vec<usize>,
    /// The device after the first `applied` events.
    durable: MemoryDevice,
    applied: usize,
    tearing: Tearing,
}

impl<'e> LogStates<'e> {
    /// States of a device that was `start` before `events`. `log` has the byte ranges of the log.
    pub fn new(start: &MemoryDevice, events: &'e [Event], log: &[Range<u64>]) -> Self {
        let log = log.to_vec();
        let is_log_write = |number: &usize| is_write_to(&log, &events[*number]);
        let writes = (0..events.len()).filter(is_log_write).collect();
        Self { events, log, writes, durable: start.fork(), applied: 0, tearing: Tearing::default() }
    }

    /// Tears writes as `tearing` allows.
    #[must_use]
    pub fn with_tearing(self, tearing: Tearing) -> Self {
        Self { tearing, ..self }
    }

    /// Returns how many times the writes to the log would fill it.
    pub fn laps(&self) -> u64 {
        let bytes: usize = self.writes.iter().map(|number| len_of(&self.events[*number])).sum();
        let log: u64 = self.log.iter().map(|range| range.end - range.start).sum();
        bytes as u64 / log.max(1)
    }

    /// Calls `judge` with the states of `count` writes to the log, spread evenly over the run. Each of them gets
    /// every [`Loss`] that changes something.
    pub fn for_each(mut self, count: usize, seed: u64, mut judge: impl FnMut(&LogState)) {
        let mut random = fastrand::Rng::with_seed(seed);
        let count = count.min(self.writes.len());
        for number in 0..count {
            // One write from each part of the run.
            let part = self.writes.len() * number / count..self.writes.len() * (number + 1) / count;
            let end = self.writes[random.usize(part)] + 1;
            self.flush_before(end);
            for loss in Loss::ALL {
                if let Some(device) = self.after(end, loss, &mut random) {
                    judge(&LogState { end, loss, device });
                }
            }
        }
    }

    /// Applies the events up to the last flush before `end`.
    fn flush_before(&mut self, end: usize) {
        let flush = self.events[..end].iter().rposition(|event| *event == Event::Flush);
        let flushed = flush.unwrap_or(0).max(self.applied);
        for event in &self.events[self.applied..flushed] {
            event.replay(&self.durable).expect("the same operation succeeded before");
        }
        self.applied = flushed;
    }

    fn after(&self, end: usize, loss: Loss, random: &mut fastrand::Rng) -> Option<MemoryDevice> {
        let rest = &self.events[self.applied..end];
        let in_flight: Vec<usize> =
            (0..rest.len()).filter(|at| rest[*at] != Event::Flush).collect();
        let lost: Vec<usize> = match loss {
            Loss::Nothing => Vec::new(),
            Loss::Any => {
                return Some(cut_off_beside(
                    &self.durable,
                    rest,
                    rest.len(),
                    &self.tearing,
                    random,
                ));
            }
            Loss::OneLogWrite => {
                let log: Vec<usize> = in_flight
                    .iter()
                    .copied()
                    .filter(|at| is_write_to(&self.log, &rest[*at]))
                    .collect();
                // Losing the last write would give an earlier state.
                vec![*log.get(random.usize(..log.len().max(2) - 1)).filter(|_| log.len() > 1)?]
            }
            Loss::AllButLast => {
                in_flight.split_last().filter(|(_, lost)| !lost.is_empty())?.1.to_vec()
            }
        };
        let device = self.durable.fork();
        let present = rest.iter().enumerate().filter(|(at, _)| !lost.contains(at));
        present.for_each(|(_, event)| {
            event.replay(&device).expect("the same operation succeeded before");
        });
        Some(device)
    }
}

fn len_of(event: &Event) -> usize {
    if let Event::Write { data, .. } = event { data.len() } else { 0 }
}

fn is_write_to(log: &[Range<u64>], event: &Event) -> bool {
    let Event::Write { offset, data } = event else { return false };
    let end = offset + data.len() as u64;
    log.iter().any(|range| *offset < range.end && range.start < end)
}

/// Changes of metadata with few syncs.
#[derive(Clone, Copy, Debug)]
pub struct Bulk {
    /// Number of files to change.
    pub files: usize,
    /// Number of changes after the files are created.
    pub changes: usize,
    /// Every `n`-th change is followed by a sync.
    pub sync_one_in: usize,
}

/// Creates files, then changes modes and names at random, so that checkpoints become as large as the log permits.
///
/// # Errors
/// The first error of the file system.
pub fn change_in_bulk(fs: &dyn FileSystem, bulk: Bulk, seed: u64) -> vfs::Result<()> {
    let mut random = fastrand::Rng::with_seed(seed);
    let name =
        |number: usize, kind: &str| format!("{kind} file with a name of forty bytes {number:06}");
    let mut files: Vec<(Ino, Ino, bool)> = Vec::with_capacity(bulk.files);
    let mut dir = fs.root();
    for number in 0..bulk.files {
        if number % FILES_PER_DIRECTORY == 0 {
            let name = format!("directory {number:06}");
            dir = fs.mkdir(fs.root(), name.as_bytes(), &NewInode::default())?;
        }
        let ino = fs.create(dir, name(number, "old").as_bytes(), &NewInode::default())?;
        files.push((dir, ino, false));
    }
    for _ in 0..bulk.changes {
        let number = random.usize(..files.len());
        let (dir, ino, is_renamed) = files[number];
        let kinds = if is_renamed { ["new", "old"] } else { ["old", "new"] };
        let [from, to] = kinds.map(|kind| name(number, kind));
        match random.u8(..10) {
            0 => {
                fs.unlink(dir, from.as_bytes(), None)?;
                files[number].1 = fs.create(dir, from.as_bytes(), &NewInode::default())?;
            }
            1 => {
                fs.link(ino, dir, to.as_bytes(), None)?;
                fs.unlink(dir, from.as_bytes(), None)?;
                files[number].2 = !is_renamed;
            }
            _ => {
                let permissions = Some(random.u16(..0o1000));
                fs.set_attributes(ino, &SetAttributes { permissions, ..Default::default() })?;
            }
        }
        if random.usize(..bulk.sync_one_in) == 0 {
            fs.sync()?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use disk::BlockDevice;

    use super::*;

    fn write(offset: u64, byte: u8) -> Event {
        Event::Write { offset, data: vec![byte; 512].into() }
    }

    /// Returns the first bytes of three sectors of the log and of one outside.
    fn sectors(device: &MemoryDevice) -> [u8; 4] {
        [0, 512, 1024, 1536].map(|offset| {
            let mut byte = [0];
            device.read_at(offset, &mut byte).unwrap();
            byte[0]
        })
    }

    #[test]
    fn states_end_with_a_write_to_the_log_and_lose_what_was_not_flushed() {
        let start = MemoryDevice::new(2048);
        let events = [
            write(0, 1),
            Event::Flush,
            write(1536, 2),
            write(512, 3),
            write(1024, 4),
            Event::Flush,
        ];
        let log = 0..1536;
        assert_eq!(LogStates::new(&start, &events, std::slice::from_ref(&log)).laps(), 1);
        let mut seen = Vec::new();
        LogStates::new(&start, &events, std::slice::from_ref(&log))
            .for_each(3, 1, |state| seen.push((state.end, state.loss, sectors(&state.device))));
        let of = |end, loss| {
            let found = seen.iter().find(|(at, kind, _)| (*at, *kind) == (end, loss));
            found.map(|(_, _, sectors)| *sectors)
        };
        assert_eq!(of(1, Loss::Nothing), Some([1, 0, 0, 0]));
        assert_eq!(of(4, Loss::Nothing), Some([1, 3, 0, 2]));
        assert_eq!(of(4, Loss::OneLogWrite), None);
        assert_eq!(of(4, Loss::AllButLast), Some([1, 3, 0, 0]));
        assert_eq!(of(5, Loss::OneLogWrite), Some([1, 0, 4, 2]));
        assert_eq!(of(5, Loss::AllButLast), Some([1, 0, 4, 0]));
        assert!(seen.iter().all(|(end, _, sectors)| *end == 1 || sectors[0] == 1));
    }
}
