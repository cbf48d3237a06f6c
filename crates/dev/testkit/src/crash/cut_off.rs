//! Possible contents of a device after a crash between two events of a recording.
//!
//! Flushed writes are present. Any subset of the sectors written after the last flush may be present: a device writes
//! sectors atomically.

use std::ops::Range;

use disk::{BlockDevice, Event, MemoryDevice};

/// Minimum sector size of a device.
const SECTOR: usize = 512;

/// Atomicity of writes.
#[derive(Clone, Debug)]
pub struct Tearing {
    /// Length of a sector in bytes.
    pub sector: usize,
    /// Byte range within which no write is torn.
    pub whole: Range<u64>,
}

impl Default for Tearing {
    fn default() -> Self {
        Self { sector: SECTOR, whole: 0..0 }
    }
}

/// Returns a device after a crash before the event numbered `end`: with all flushed sectors, and a random subset of the
/// others.
///
/// # Panics
/// If an event cannot be applied to a copy of `start`.
pub fn cut_off(
    start: &MemoryDevice,
    events: &[Event],
    end: usize,
    random: &mut fastrand::Rng,
) -> MemoryDevice {
    cut_off_beside(start, events, end, &Tearing::default(), random)
}

/// Like [`cut_off`], with writes torn as `tearing` permits.
///
/// # Panics
/// If an event cannot be applied to a copy of `start`.
pub fn cut_off_beside(
    start: &MemoryDevice,
    events: &[Event],
    end: usize,
    tearing: &Tearing,
    random: &mut fastrand::Rng,
) -> MemoryDevice {
    let Tearing { sector, whole } = tearing;
    let (device, rest) = flushed(start, events, end);
    for event in rest {
        match event {
            Event::Write { offset, data } if !whole.contains(offset) && random.u8(..4) == 0 => {
                for (bytes, at) in data.chunks(*sector).zip((*offset..).step_by(*sector)) {
                    if whole.contains(&at) || random.bool() {
                        device.write_at(at, bytes).unwrap();
                    }
                }
            }
            event if random.bool() => event.replay(&device).unwrap(),
            _ => {}
        }
    }
    device
}

/// Like [`cut_off`], but of the unflushed writes exactly those to the byte range `only` are present.
///
/// # Panics
/// If an event cannot be applied to a copy of `start`.
pub fn cut_off_but_for(
    start: &MemoryDevice,
    events: &[Event],
    end: usize,
    only: Range<u64>,
) -> MemoryDevice {
    let (device, rest) = flushed(start, events, end);
    for event in rest {
        let Event::Write { offset, data } = event else { continue };
        let from = only.start.max(*offset);
        let to = only.end.min(offset + data.len() as u64);
        if from < to {
            let bytes = &data[(from - offset) as usize..(to - offset) as usize];
            device.write_at(from, bytes).unwrap();
        }
    }
    device
}

/// Returns the points right before each flush, where most writes are in flight.
pub fn flushes(events: &[Event]) -> Vec<usize> {
    let flushes = events.iter().enumerate().filter(|(_, event)| **event == Event::Flush);
    flushes.map(|(at, _)| at).collect()
}

/// Returns the device as of the last flush before `end`, and the events after it.
fn flushed<'e>(
    start: &MemoryDevice,
    events: &'e [Event],
    end: usize,
) -> (MemoryDevice, &'e [Event]) {
    let device = start.fork();
    let flushed = events[..end].iter().rposition(|event| *event == Event::Flush).unwrap_or(0);
    events[..flushed].iter().try_for_each(|event| event.replay(&device)).unwrap();
    (device, &events[flushed..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(offset: u64, byte: u8, len: usize) -> Event {
        Event::Write { offset, data: vec![byte; len].into() }
    }

    /// Returns the first bytes of four sectors.
    fn sectors(device: &MemoryDevice) -> [u8; 4] {
        let mut bytes = [0; 4 * SECTOR];
        device.read_at(0, &mut bytes).unwrap();
        assert!(bytes.chunks(SECTOR).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
        [0, 1, 2, 3].map(|sector| bytes[sector * SECTOR])
    }

    fn events() -> Vec<Event> {
        vec![write(0, 1, 2 * SECTOR), Event::Flush, write(0, 2, 4 * SECTOR), Event::Flush]
    }

    #[test]
    fn flushed_writes_survive_and_any_subset_of_other_sectors() {
        let (start, events) = (MemoryDevice::new(4 * SECTOR as u64), events());
        assert_eq!(flushes(&events), [1, 3]);
        let mut random = fastrand::Rng::with_seed(1);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..1000 {
            let found = sectors(&cut_off(&start, &events, 3, &mut random));
            for (sector, before) in found.into_iter().zip([1, 1, 0, 0]) {
                assert!(sector == before || sector == 2, "{found:?}");
            }
            seen.insert(found);
        }
        assert_eq!(seen.len(), 16);
        // Later writes are missing.
        for end in [0, 2] {
            let found = sectors(&cut_off(&start, &events, end, &mut random));
            assert_eq!(found, if end == 0 { [0; 4] } else { [1, 1, 0, 0] });
        }
    }

    #[test]
    fn a_range_is_written_whole_or_alone() {
        let (start, events) = (MemoryDevice::new(4 * SECTOR as u64), events());
        let middle = SECTOR as u64..3 * SECTOR as u64;
        let tearing = Tearing { whole: middle.clone(), ..Tearing::default() };
        let mut random = fastrand::Rng::with_seed(2);
        for _ in 0..1000 {
            let found = cut_off_beside(&start, &events, 3, &tearing, &mut random);
            let [_, second, third, _] = sectors(&found);
            assert!([(1, 0), (2, 2)].contains(&(second, third)), "{second} {third}");
        }
        let tearing = Tearing { sector: 2 * SECTOR, ..Tearing::default() };
        for _ in 0..1000 {
            let [first, second, third, last] =
                sectors(&cut_off_beside(&start, &events, 3, &tearing, &mut random));
            assert!(first == second && third == last);
        }
        let found = cut_off_but_for(&start, &events, 3, middle);
        assert_eq!(sectors(&found), [1, 2, 2, 0]);
    }
}
