//! Sparse maps of GNU tar: validation, and the decimal map of PAX sparse format 1.0. No I/O.

use crate::{Damage, DataRun};

/// Maximum number of data ranges of a file, which bounds the memory of a map.
pub(super) const RUNS_MAX: usize = 1 << 22;

/// Validates a map for a file of `size` bytes, `stored` of which are in the archive. Removes empty ranges, which mark
/// the end of a file that ends with a hole.
pub(super) fn check(
    mut runs: Vec<DataRun>,
    size: u64,
    stored: u64,
) -> Result<Vec<DataRun>, Damage> {
    runs.retain(|run| run.len > 0);
    let (mut end, mut sum) = (0_u64, 0_u64);
    for run in &runs {
        if run.offset < end {
            return Err(Damage::Sparse("runs overlap or are out of order"));
        }
        end = run.offset.checked_add(run.len).ok_or(Damage::Sparse("a run is out of range"))?;
        sum += run.len;
    }
    if end > size {
        return Err(Damage::Sparse("a run ends after the file"));
    }
    if sum != stored {
        return Err(Damage::Sparse(
            "the total length of the runs differs from that of the stored data",
        ));
    }
    Ok(runs)
}

/// Parses the map of format 1.0, which precedes the data: lines with the number of ranges, then the offset and length
/// of each.
#[derive(Default)]
pub(super) struct MapParser {
    number: Option<u64>,
    count: Option<u64>,
    offset: Option<u64>,
    runs: Vec<DataRun>,
}

impl MapParser {
    /// Parses the next bytes. Returns true when the map is complete; the rest of `bytes` is padding.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<bool, Damage> {
        for &byte in bytes {
            match byte {
                b'0'..=b'9' => self.number = Some(append_digit(self.number.unwrap_or(0), byte)?),
                b'\n' => {
                    let number = self.number.take().ok_or(Damage::Sparse("an empty line"))?;
                    if self.push_number(number)? {
                        return Ok(true);
                    }
                }
                _ => return Err(Damage::Sparse("a character that is not a digit")),
            }
        }
        Ok(false)
    }

    fn push_number(&mut self, number: u64) -> Result<bool, Damage> {
        match (self.count, self.offset.take()) {
            (None, _) if number > RUNS_MAX as u64 => return Err(Damage::Sparse("too many runs")),
            (None, _) => self.count = Some(number),
            (Some(_), None) => self.offset = Some(number),
            (Some(_), Some(offset)) => self.runs.push(DataRun { offset, len: number }),
        }
        Ok(self.offset.is_none() && self.count == Some(self.runs.len() as u64))
    }

    pub(super) fn into_runs(self) -> Vec<DataRun> {
        self.runs
    }
}

fn append_digit(number: u64, digit: u8) -> Result<u64, Damage> {
    number
        .checked_mul(10)
        .and_then(|n| n.checked_add(u64::from(digit - b'0')))
        .ok_or(Damage::Sparse("a number is out of range"))
}

/// Parses a map of format 0.1: alternating offsets and lengths, separated by commas.
pub(super) fn parse_list(list: &[u8]) -> Result<Vec<DataRun>, Damage> {
    let mut runs = Vec::new();
    let mut start = None;
    for number in list.split(|&b| b == b',') {
        if number.is_empty() {
            return Err(Damage::Sparse("an empty number"));
        }
        let mut n = 0;
        for &digit in number {
            if !digit.is_ascii_digit() {
                return Err(Damage::Sparse("a character that is not a digit"));
            }
            n = append_digit(n, digit)?;
        }
        match start.take() {
            None => start = Some(n),
            Some(offset) if runs.len() < RUNS_MAX => runs.push(DataRun { offset, len: n }),
            Some(_) => return Err(Damage::Sparse("too many runs")),
        }
    }
    if start.is_some() { Err(Damage::Sparse("an offset without a length")) } else { Ok(runs) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(offset: u64, len: u64) -> DataRun {
        DataRun { offset, len }
    }

    #[test]
    fn maps_are_checked() {
        let good = vec![run(0, 10), run(20, 5), run(100, 0)];
        assert_eq!(check(good.clone(), 100, 15).unwrap(), [run(0, 10), run(20, 5)]);
        assert!(check(good.clone(), 100, 16).is_err());
        assert!(check(good, 24, 15).is_err());
        assert!(check(vec![run(5, 10), run(14, 5)], 100, 15).is_err());
        assert!(check(vec![run(u64::MAX, 2)], u64::MAX, 2).is_err());
    }

    #[test]
    fn decimal_maps_are_parsed() {
        let mut map = MapParser::default();
        assert!(!map.push(b"2\n1").unwrap());
        assert!(!map.push(b"0\n5\n100").unwrap());
        assert!(map.push(b"\n0\n\0\0\0").unwrap());
        assert_eq!(map.into_runs(), [run(10, 5), run(100, 0)]);
        assert!(MapParser::default().push(b"0\n").unwrap());
        assert!(MapParser::default().push(b"\n").is_err());
        assert!(MapParser::default().push(b"99999999999\n").is_err());
        assert!(MapParser::default().push(b"99999999999999999999\n").is_err());
        assert_eq!(parse_list(b"0,1,5,7").unwrap(), [run(0, 1), run(5, 7)]);
        assert!(parse_list(b"0,1,5").is_err());
        assert!(parse_list(b"0,-1").is_err());
        assert!(parse_list(b"").is_err());
    }
}
