//! Maps of user and group IDs.

use std::path::Path;

use crate::SourceError;
use crate::rule_file::fault::RuleFault;
use crate::rule_file::lines::{RuleFile, fields, id, number};

/// A map of owners. IDs without a line do not change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerMap {
    users: Vec<Range>,
    groups: Vec<Range>,
}

/// A range of IDs to be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    first: u32,
    last: u32,
    /// New ID of the first one.
    new: u32,
    /// True if all IDs of the range become `new`.
    is_one: bool,
    line: usize,
}

/// Subject of a line: users, groups or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Users,
    Groups,
    Both,
}

impl OwnerMap {
    /// Reads a file with lines in one of these forms:
    /// - `uid OLD[-OLDEND] NEW` and `gid …` (`both …`): OLD becomes NEW, OLD + 1 becomes NEW + 1, and so on. `NEW-NEW`
    ///   maps all of them to NEW, and OLD can be `*`, all IDs without another line;
    /// - `uid INSIDE OUTSIDE COUNT` or `INSIDE OUTSIDE COUNT`, as in `/proc/PID/uid_map`, and `u:INSIDE:OUTSIDE:COUNT`
    ///   (`g:`, `b:`): OUTSIDE becomes INSIDE, and so on for COUNT IDs.
    ///
    /// # Errors
    /// If the file cannot be read, a line has another form, or two lines contain the same ID.
    pub(crate) fn read(path: &Path) -> Result<Self, SourceError> {
        Self::of(&RuleFile::read(path)?)
    }

    /// Parses bytes that were read from `name`.
    ///
    /// # Errors
    /// Returns the errors of `Self::read`.
    pub fn parse(name: &Path, bytes: &[u8]) -> Result<Self, SourceError> {
        Self::of(&RuleFile { name: name.to_owned(), bytes: bytes.to_vec() })
    }

    fn of(file: &RuleFile) -> Result<Self, SourceError> {
        let mut map = Self::default();
        for (line, bytes) in file.lines() {
            let added = parse_line(bytes, line).and_then(|(who, range)| map.add(who, range));
            added.map_err(|fault| file.fault(line, fault))?;
        }
        // The wildcard range comes last.
        for ranges in [&mut map.users, &mut map.groups] {
            ranges.sort_by_key(|range| (range.is_all(), range.first));
            let clash = ranges.windows(2).find(|pair| pair[0].meets(&pair[1]));
            if let Some(&[a, b]) = clash.map(|pair| [pair[0], pair[1]]).as_ref() {
                let (first, second) = if a.line < b.line { (a, b) } else { (b, a) };
                let shared = a.first.max(b.first);
                let what = format!("number {shared}");
                return Err(file.fault(second.line, RuleFault::Twice { what, line: first.line }));
            }
        }
        Ok(map)
    }

    fn add(&mut self, who: Who, range: Range) -> Result<(), RuleFault> {
        if who != Who::Groups {
            self.users.push(range);
        }
        if who != Who::Users {
            self.groups.push(range);
        }
        Ok(())
    }

    /// Maps a user ID.
    pub fn user(&self, uid: u32) -> u32 {
        mapped(&self.users, uid)
    }

    /// Maps a group ID.
    pub fn group(&self, gid: u32) -> u32 {
        mapped(&self.groups, gid)
    }
}

impl Range {
    fn is_all(&self) -> bool {
        self.is_one && self.first == 0 && self.last == u32::MAX
    }

    /// Returns whether this range overlaps the next one in sorted order.
    fn meets(&self, next: &Self) -> bool {
        self.is_all() == next.is_all() && next.first <= self.last
    }

    fn map(&self, id: u32) -> u32 {
        if self.is_one { self.new } else { self.new + (id - self.first) }
    }
}

fn mapped(ranges: &[Range], id: u32) -> u32 {
    let special = ranges.iter().take_while(|range| !range.is_all()).count();
    let (ranges, rest) = ranges.split_at(special);
    let index = ranges.partition_point(|range| range.first <= id);
    let found = index.checked_sub(1).map(|index| &ranges[index]).filter(|range| id <= range.last);
    found.or(rest.first()).map_or(id, |range| range.map(id))
}

fn parse_line(bytes: &[u8], line: usize) -> Result<(Who, Range), RuleFault> {
    let colons: Vec<&[u8]> = bytes.split(|&byte| byte == b':').collect();
    if let [who @ (b"u" | b"g" | b"b"), inside, outside, count] = colons[..] {
        let who = match who {
            b"u" => Who::Users,
            b"g" => Who::Groups,
            _ => Who::Both,
        };
        return Ok((who, namespace([inside, outside, count], line)?));
    }
    let fields = fields(bytes);
    let expected = "uid OLD[-OLDEND] NEW, gid …, both …, or INSIDE OUTSIDE COUNT";
    let form = || RuleFault::expected("line", expected, bytes);
    let who = match fields.first() {
        Some(&b"uid") => Who::Users,
        Some(&b"gid") => Who::Groups,
        Some(&b"both") => Who::Both,
        first => {
            let is_number = first.is_some_and(|field| field[0].is_ascii_digit());
            let ([inside, outside, count], true) = (&fields[..], is_number) else {
                return Err(form());
            };
            return Ok((Who::Both, namespace([*inside, *outside, *count], line)?));
        }
    };
    match fields[1..] {
        [old, new] => Ok((who, plain(old, new, line)?)),
        [inside, outside, count] => Ok((who, namespace([inside, outside, count], line)?)),
        _ => Err(form()),
    }
}

/// `INSIDE OUTSIDE COUNT`.
fn namespace(fields: [&[u8]; 3], line: usize) -> Result<Range, RuleFault> {
    let [inside, outside, count] = fields;
    let (new, first) = (id(inside, "first number inside")?, id(outside, "first number outside")?);
    let expected = "a number of at least 1 that keeps all numbers below 4294967295";
    let number: u32 = number(count, "count", expected)?;
    let last = |start: u32| start.checked_add(number.checked_sub(1)?).filter(|&id| id < u32::MAX);
    let (Some(_), Some(last)) = (last(new), last(first)) else {
        return Err(RuleFault::expected("count", expected, count));
    };
    Ok(Range { first, last, new, is_one: false, line })
}

/// `OLD[-OLDEND] NEW`.
fn plain(old: &[u8], new: &[u8], line: usize) -> Result<Range, RuleFault> {
    let (new_first, new_last) = span(new, "new numbers")?;
    let one = Range { first: 0, last: u32::MAX, new: new_first, is_one: true, line };
    let is_span = new.contains(&b'-');
    if old == b"*" {
        let expected = "one number for all others";
        let bad = new_first != new_last;
        return if bad { Err(RuleFault::expected("new numbers", expected, new)) } else { Ok(one) };
    }
    let (first, last) = span(old, "old numbers")?;
    if is_span && new_first == new_last {
        return Ok(Range { first, last, ..one });
    }
    let end = new_first.checked_add(last - first).filter(|&end| end < u32::MAX);
    if end.is_none() || is_span && end != Some(new_last) {
        let expected = "a first number, or as many numbers as there are old ones";
        return Err(RuleFault::expected("new numbers", expected, new));
    }
    Ok(Range { first, last, is_one: false, ..one })
}

/// `FIRST[-LAST]`.
fn span(field: &[u8], what: &'static str) -> Result<(u32, u32), RuleFault> {
    let Some(dash) = field.iter().position(|&byte| byte == b'-') else {
        let id = id(field, what)?;
        return Ok((id, id));
    };
    let (first, last) = (id(&field[..dash], what)?, id(&field[dash + 1..], what)?);
    if last < first {
        return Err(RuleFault::expected(what, "FIRST-LAST with LAST not below FIRST", field));
    }
    Ok((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(text: &str) -> Result<OwnerMap, String> {
        OwnerMap::parse(Path::new("map"), text.as_bytes()).map_err(|e| e.to_string())
    }

    #[test]
    fn numbers_become_others() {
        let map = map("# users\nuid 1000-1009 0\n uid 5 7\ngid 10-20 3-3\nuid 6 8\n").unwrap();
        let users = [999, 1000, 1009, 1010, 5, 6, 4].map(|id| map.user(id));
        assert_eq!(users, [999, 0, 9, 1010, 7, 8, 4]);
        assert_eq!([9, 10, 20, 21].map(|id| map.group(id)), [9, 3, 3, 21]);
    }

    #[test]
    fn namespaces_are_read_from_outside() {
        let map = map("0 100000 65536\ng:70000:5:1\n").unwrap();
        assert_eq!([100_000, 165_535, 165_536, 5].map(|id| map.user(id)), [0, 65_535, 165_536, 5]);
        assert_eq!([100_000, 5].map(|id| map.group(id)), [0, 70_000]);
    }

    #[test]
    fn a_star_is_all_others() {
        let map = map("uid * 65534\nuid 0-100 0\n").unwrap();
        assert_eq!([0, 100, 101, u32::MAX - 1].map(|id| map.user(id)), [0, 100, 65_534, 65_534]);
        assert_eq!(map.group(77), 77);
    }

    #[test]
    fn errors_name_line_and_part() {
        let said = |text: &str| map(text).unwrap_err();
        assert!(said("uid 1 2\n\nuid 1x 2").contains("line 3: old numbers: expected a number"));
        assert!(
            said("uid 10-20 0\nuid 15 3").contains("line 2: number 15 is already set in line 1")
        );
        assert!(said("user 1 2").contains("found \"user 1 2\""), "{}", said("user 1 2"));
        assert!(said("uid 5-4 2").contains("FIRST-LAST"));
        assert!(said("uid 1-10 0-3").contains("as many numbers"));
        assert!(said("0 0 0").contains("count: expected a number of at least 1"));
        assert!(said("1 0 4294967295").contains("count"));
        assert!(said("uid 0-10 4294967290").contains("as many"));
        assert!(said("uid * 1\nuid * 2").contains("line 2"));
        assert!(said("uid -1 0").contains("a number below"));
    }
}
