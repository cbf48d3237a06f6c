//! The extents of a bundle: which units of the image it contains, and where they are in the stream.
//!
//! The extent table has two numbers for each extent, in the order of the stream, as LEB128:
//! - the distance of its first unit from the end of the previous extent, as zigzag (0, -1, 1, -2, …),
//! - its number of units times two, plus one if all of them are zeros. Zeros are not in the stream.

use std::ops::Range;

use super::BundleError;

/// Unit of the extents in bytes.
pub const UNIT_BYTES: u64 = 4096;

/// Maximum size of an image in units: 16 TiB.
pub(super) const UNITS_MAX: u64 = u32::MAX as u64;

/// Position of an extent of zeros, which are not in the stream.
const ZEROS: u32 = u32::MAX;

/// Consecutive units of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    /// First unit in the image.
    start: u32,
    units: u32,
    /// First unit in the stream, or [`ZEROS`].
    at: u32,
}

impl Extent {
    fn end(&self) -> u64 {
        u64::from(self.start) + u64::from(self.units)
    }
}

/// Source of a part of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentSource {
    /// The bundle does not contain the part.
    Image,
    /// Zeros.
    Zeros,
    /// The stream, from this byte on.
    Stream(u64),
}

/// All extents, sorted by their first unit. They do not overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    extents: Vec<Extent>,
    /// Number of units in the stream.
    units: u32,
}

impl Index {
    /// Parses the extent table of an image of `image_units`.
    ///
    /// # Errors
    /// If it is malformed, or extents overlap or are past the end of the image.
    pub(super) fn parse(bytes: &[u8], count: u32, image_units: u64) -> Result<Self, BundleError> {
        // Each extent has at least two bytes, so the capacity is limited by the length of the table.
        let mut extents = Vec::with_capacity((count as usize).min(bytes.len() / 2));
        let (mut rest, mut end, mut units) = (bytes, 0_u64, 0_u64);
        for number in 0..count {
            let wrong = |problem| BundleError::Extent { number, problem };
            let cut = || wrong("is cut short or too large");
            let distance = unzigzag(take_number(&mut rest).ok_or_else(cut)?);
            let word = take_number(&mut rest).ok_or_else(cut)?;
            let (len, are_zeros) = (word >> 1, word & 1 == 1);
            let start = end.checked_add_signed(distance).ok_or_else(cut)?;
            end = start.checked_add(len).ok_or_else(cut)?;
            if len == 0 || end > image_units || end > UNITS_MAX {
                return Err(wrong("is empty or past the end of the image"));
            }
            let at = if are_zeros { ZEROS } else { units as u32 };
            units += if are_zeros { 0 } else { len };
            if units >= ZEROS.into() {
                return Err(wrong("makes the stream too long"));
            }
            extents.push(Extent { start: start as u32, units: len as u32, at });
        }
        if !rest.is_empty() {
            let (number, problem) = (count, "is not counted by the header");
            return Err(BundleError::Extent { number, problem });
        }
        extents.sort_unstable_by_key(|extent| extent.start);
        if let Some(number) =
            extents.windows(2).position(|pair| pair[0].end() > pair[1].start.into())
        {
            let problem = "in the order of the image overlaps the next one";
            return Err(BundleError::Extent { number: number as u32, problem });
        }
        Ok(Self { extents, units: units as u32 })
    }

    /// Returns the number of units in the stream.
    #[must_use]
    pub fn units(&self) -> u64 {
        self.units.into()
    }

    /// Returns whether the bundle contains any byte of `range`.
    #[must_use]
    pub fn overlaps(&self, range: &Range<u64>) -> bool {
        self.parts(range.clone()).any(|(_, source)| source != ExtentSource::Image)
    }

    /// Divides a range of the image, in bytes, into parts with one source each.
    pub fn parts(
        &self,
        range: Range<u64>,
    ) -> impl Iterator<Item = (Range<u64>, ExtentSource)> + '_ {
        let unit = range.start / UNIT_BYTES;
        let mut next = self.extents.partition_point(|extent| extent.end() <= unit);
        let mut at = range.start;
        std::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let extent = self.extents.get(next);
            let start = extent.map_or(u64::MAX, |extent| u64::from(extent.start) * UNIT_BYTES);
            let (end, source) = match extent {
                Some(extent) if start <= at => {
                    next += 1;
                    let source = match extent.at {
                        ZEROS => ExtentSource::Zeros,
                        first => ExtentSource::Stream(u64::from(first) * UNIT_BYTES + at - start),
                    };
                    (extent.end() * UNIT_BYTES, source)
                }
                _ => (start, ExtentSource::Image),
            };
            let part = at..end.min(range.end);
            at = part.end;
            Some((part, source))
        })
    }
}

/// Appends an extent to a table.
pub(super) fn put_extent(
    table: &mut Vec<u8>,
    end_before: u64,
    start: u64,
    units: u64,
    is_zero: bool,
) {
    put_number(table, zigzag(start.wrapping_sub(end_before) as i64));
    put_number(table, units << 1 | u64::from(is_zero));
}

fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

fn put_number(table: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        table.push(number as u8 | 0x80);
        number >>= 7;
    }
    table.push(number as u8);
}

/// Takes a number of at most five bytes from the start of `rest`.
fn take_number(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for at in 0..5 {
        let (&byte, more) = rest.split_first()?;
        *rest = more;
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}
