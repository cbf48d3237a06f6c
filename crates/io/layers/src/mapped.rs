//! A device whose ranges are ranges of other devices: linear and striped volumes.

use std::fs::File;
use std::io;
use std::sync::Arc;

use disk::{BlockDevice, ContentKind};

/// One range of a [`MappedDevice`].
pub struct Piece {
    /// Length in bytes.
    pub len: u64,
    /// Place of its bytes.
    pub target: Target,
}

/// Place of the bytes of a [`Piece`].
pub enum Target {
    /// Consecutive bytes of a device, from an offset on.
    Linear(Arc<dyn BlockDevice>, u64),
    /// Chunks of this many bytes, taken from the devices in turn. Each device has a start in bytes.
    Striped(u64, Vec<(Arc<dyn BlockDevice>, u64)>),
    /// Zeros, which cannot be written.
    Zeros,
}

/// Place of some bytes: a device and an offset, or zeros.
type Place<'a> = Option<(&'a Arc<dyn BlockDevice>, u64)>;

impl Target {
    /// Returns the place of the byte at `offset` of the piece, and the number of bytes that follow it there.
    fn place(&self, offset: u64) -> (Place<'_>, u64) {
        match self {
            Self::Zeros => (None, u64::MAX),
            Self::Linear(device, start) => (Some((device, start + offset)), u64::MAX),
            Self::Striped(chunk, legs) => {
                let (index, within) = (offset / chunk, offset % chunk);
                let (device, start) = &legs[(index % legs.len() as u64) as usize];
                let at = start + index / legs.len() as u64 * chunk + within;
                (Some((device, at)), chunk - within)
            }
        }
    }
}

/// A device made of pieces of others.
///
/// INVARIANT: every piece is within its devices, as the constructor checks.
pub struct MappedDevice {
    /// Start of each piece, with its target.
    pieces: Vec<(u64, Target)>,
    len: u64,
    members: Vec<Arc<dyn BlockDevice>>,
}

fn past_end(offset: u64, len: u64, device_len: u64) -> io::Error {
    let what = format!("bytes {offset}+{len} are past the end of the volume ({device_len} bytes)");
    io::Error::new(io::ErrorKind::UnexpectedEof, what)
}

impl MappedDevice {
    /// Joins pieces in order.
    ///
    /// # Errors
    /// `InvalidInput` with a description if a piece exceeds its device, or stripes are invalid.
    pub fn new(pieces: Vec<Piece>) -> io::Result<Self> {
        let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
        let (mut start, mut mapped, mut members) = (0_u64, Vec::new(), Vec::new());
        for Piece { len, target } in pieces {
            let legs: Vec<(&Arc<dyn BlockDevice>, u64, u64)> = match &target {
                Target::Zeros => Vec::new(),
                Target::Linear(device, at) => vec![(device, *at, len)],
                Target::Striped(chunk, legs) => {
                    let rows =
                        len.checked_div(*chunk).map(|chunks| chunks / (legs.len() as u64).max(1));
                    let Some(rows) = rows.filter(|rows| rows * chunk * legs.len() as u64 == len)
                    else {
                        return Err(invalid("its length is not a multiple of its stripes".into()));
                    };
                    legs.iter().map(|(device, at)| (device, *at, rows * chunk)).collect()
                }
            };
            for (device, at, len) in legs {
                if at.checked_add(len).is_none_or(|end| end > device.len()) {
                    let has = device.len();
                    return Err(invalid(format!("bytes {at}+{len} of a member with {has} bytes")));
                }
                members.push(Arc::clone(device));
            }
            mapped.push((start, target));
            start = start.checked_add(len).ok_or_else(|| invalid("it is too long".into()))?;
        }
        members.sort_by_key(|member| Arc::as_ptr(member).cast::<()>().addr());
        members.dedup_by_key(|member| Arc::as_ptr(member).cast::<()>().addr());
        Ok(Self { pieces: mapped, len: start, members })
    }

    /// Calls `act` with each place of a range: the range within the request, and where it is.
    fn each<'a>(
        &'a self,
        offset: u64,
        len: u64,
        mut act: impl FnMut(std::ops::Range<usize>, Place<'a>) -> io::Result<()>,
    ) -> io::Result<()> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(past_end(offset, len, self.len));
        }
        let mut done = 0;
        while done < len {
            let at = offset + done;
            let index = self.pieces.partition_point(|(start, _)| *start <= at) - 1;
            let (start, target) = &self.pieces[index];
            let end = self.pieces.get(index + 1).map_or(self.len, |(next, _)| *next);
            let (place, contiguous) = target.place(at - start);
            let part = contiguous.min(end - at).min(len - done);
            act(done as usize..(done + part) as usize, place)?;
            done += part;
        }
        Ok(())
    }
}

impl BlockDevice for MappedDevice {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.each(offset, buf.len() as u64, |range, place| match place {
            Some((device, at)) => device.read_at(at, &mut buf[range]),
            None => {
                buf[range].fill(0);
                Ok(())
            }
        })
    }

    fn in_file(&self, offset: u64, len: u64) -> Option<(&File, u64)> {
        let mut found = None;
        let mut count = 0;
        self.each(offset, len, |_, place| {
            count += 1;
            found = place;
            if count > 1 { Err(io::ErrorKind::Other.into()) } else { Ok(()) }
        })
        .ok()?;
        let (device, at) = found?;
        device.in_file(at, len)
    }

    fn has_read_ahead(&self) -> bool {
        self.members.iter().any(|member| member.has_read_ahead())
    }

    fn read_ahead(&self, offset: u64, len: u64, content: ContentKind) {
        let len = len.min(self.len.saturating_sub(offset));
        let _ = self.each(offset, len, |range, place| {
            if let Some((device, at)) = place {
                device.read_ahead(at, range.len() as u64, content);
            }
            Ok(())
        });
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.each(offset, data.len() as u64, |range, place| match place {
            Some((device, at)) => device.write_at(at, &data[range]),
            None => Err(io::ErrorKind::ReadOnlyFilesystem.into()),
        })
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.each(offset, len, |range, place| match place {
            Some((device, at)) => device.zero_range(at, range.len() as u64),
            None => Ok(()),
        })
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.each(offset, len, |range, place| match place {
            Some((device, at)) => device.discard(at, range.len() as u64),
            None => Ok(()),
        })
    }

    fn flush(&self) -> io::Result<()> {
        self.members.iter().try_for_each(|member| member.flush())
    }

    fn has_long_flushes(&self) -> bool {
        self.members.iter().any(|member| member.has_long_flushes())
    }

    fn drop_cache(&self, offset: u64, len: u64) {
        let _ = self.each(offset, len, |range, place| {
            if let Some((device, at)) = place {
                device.drop_cache(at, range.len() as u64);
            }
            Ok(())
        });
    }

    /// Flushes if there are several members, because a barrier of one does not order the writes of another.
    fn barrier(&self) -> io::Result<()> {
        match &self.members[..] {
            [only] => only.barrier(),
            _ => self.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use disk::MemoryDevice;

    use super::*;

    fn numbered(first: u8) -> Arc<dyn BlockDevice> {
        let device = MemoryDevice::new(64);
        device.write_at(0, &std::array::from_fn::<u8, 64, _>(|i| first + i as u8)).unwrap();
        Arc::new(device)
    }

    #[test]
    fn pieces_and_stripes_are_in_order() {
        let (a, b) = (numbered(0), numbered(100));
        let striped = Target::Striped(4, vec![(Arc::clone(&a), 8), (Arc::clone(&b), 0)]);
        let pieces = vec![
            Piece { len: 3, target: Target::Linear(Arc::clone(&b), 60) },
            Piece { len: 16, target: striped },
            Piece { len: 2, target: Target::Zeros },
        ];
        let device = MappedDevice::new(pieces).unwrap();
        let mut all = [9; 21];
        device.read_at(0, &mut all).unwrap();
        let expected = [
            160, 161, 162, 8, 9, 10, 11, 100, 101, 102, 103, 12, 13, 14, 15, 104, 105, 106, 107, 0,
            0,
        ];
        assert_eq!(all, expected);
        device.write_at(6, &[1, 2, 3]).unwrap();
        let mut found = [0; 3];
        a.read_at(11, &mut found[..1]).unwrap();
        b.read_at(0, &mut found[1..]).unwrap();
        assert_eq!(found, [1, 2, 3]);
        assert!(device.read_at(20, &mut [0; 2]).is_err() && device.write_at(18, &[1, 1]).is_err());
    }

    #[test]
    fn pieces_past_the_end_are_refused() {
        let a = numbered(0);
        for (len, target) in [
            (8, Target::Linear(Arc::clone(&a), 57)),
            (8, Target::Linear(Arc::clone(&a), u64::MAX - 4)),
            (6, Target::Striped(4, vec![(Arc::clone(&a), 0)])),
            (8, Target::Striped(0, vec![(Arc::clone(&a), 0)])),
            (8, Target::Striped(4, Vec::new())),
        ] {
            assert!(MappedDevice::new(vec![Piece { len, target }]).is_err());
        }
    }
}
