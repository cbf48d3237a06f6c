//! Free realtime extents: the bitmap, the summary and the superblock's count against the extents of files.

use vfs::check::{BitSet, Finding};

use super::super::codes;
use super::super::context::Context;
use super::super::inodes::Inodes;
use super::files::OpenFile;
use super::{UsedExtents, differences, groups, report_disputed};
use crate::format::address::Block;
use crate::format::realtime::space::{SpaceFile, SpaceLayout, WORD_BITS};

/// Maximum number of findings about each file.
const FINDINGS_MAX: usize = 200;

/// Checks the section after all inodes were visited.
pub(in super::super) fn check(inodes: &Inodes<'_>, used: &UsedExtents) {
    let ctx = inodes.ctx;
    report_disputed(inodes, used);
    if let Some(groups) = &used.groups {
        if used.realtime.has_superblock() {
            groups::check_superblock(ctx);
        }
        groups.check_files(ctx);
    }
    let zones = used.groups.as_ref().filter(|_| used.realtime.is_zoned());
    if let Some(zones) = zones {
        differences::check(inodes, used, zones);
        // Zones have neither bitmaps nor summaries, and `sb_frextents` is not kept.
        return zones.check_used(ctx);
    }
    let files = open_files(inodes, used);
    if let Some(groups) = &used.groups {
        differences::check(inodes, used, groups);
    }
    if files.len() < used.realtime.groups() as usize {
        ctx.note_gap();
    }
    if ctx.has_gaps() {
        // Inodes that could not be visited have extents, too.
        return;
    }
    for GroupSpace { layout, start, bitmap, summary } in files {
        let of_group;
        let used = match used.groups {
            None => &used.used,
            Some(_) => {
                of_group = window(&used.used, start, layout.extents());
                &of_group
            }
        };
        compare_bitmap(inodes, &layout, used, &bitmap);
        compare_summary(inodes, &layout, used, &summary);
    }
    let free = used.free();
    let found = ctx.sb.raw.frextents.get();
    if free != found {
        let finding = Finding::new(codes::SUPERBLOCK_COUNTS).in_group(0_u64);
        ctx.found(finding.field("sb_frextents").mismatch(free, found));
    }
}

/// Calls `write` with the place and the new contents of each block of the bitmap and of the summary that differs from
/// the extents of files, which were all claimed. Returns whether both files could be read completely.
pub(in super::super) fn rebuild(
    inodes: &Inodes<'_>,
    used: &UsedExtents,
    write: &mut dyn FnMut(Block, &[u8]),
) -> bool {
    let files = open_files(inodes, used);
    files.len() == used.realtime.groups() as usize
        && files.iter().all(|group| {
            let used = window(&used.used, group.start, group.layout.extents());
            rebuild_group(inodes, group, &used, write)
        })
}

/// The bitmap and the summary of a group, or of a section without groups.
struct GroupSpace {
    layout: SpaceLayout,
    /// Its first realtime extent.
    start: u64,
    bitmap: OpenFile,
    summary: OpenFile,
}

/// Opens the bitmaps and summaries that can be read. Reports why others cannot.
fn open_files(inodes: &Inodes<'_>, used: &UsedExtents) -> Vec<GroupSpace> {
    let raw = &inodes.ctx.sb.raw;
    let of_group = |group: u32| {
        let layout = used.realtime.space(group);
        let files = used.groups.as_ref().map(|groups| &groups.files[group as usize]);
        let ino_of = |file: SpaceFile| match files {
            None => Some(file.ino(raw)),
            Some(files) => files.get(&file.metafile_type()).map(|(ino, _)| *ino),
        };
        let open = |file| OpenFile::open(inodes, &layout, (file, ino_of(file)?));
        let (bitmap, summary) = (open(SpaceFile::Bitmap), open(SpaceFile::Summary));
        let blocks = u64::from(group) * u64::from(used.realtime.group_blocks());
        let start = blocks / u64::from(used.realtime.extent_blocks());
        Some(GroupSpace { layout, start, bitmap: bitmap?, summary: summary? })
    };
    (0..used.realtime.groups()).filter_map(of_group).collect()
}

/// Returns a part of a set.
fn window(set: &BitSet, start: u64, len: u64) -> BitSet {
    let part = BitSet::new(len);
    let (first, shift) = (start / 64, start % 64);
    let words = (start + len).div_ceil(64);
    for nth in 0..len.div_ceil(64) {
        let high = match shift {
            0 => 0,
            _ if first + nth + 1 < words => set.word(first + nth + 1) << (64 - shift),
            _ => 0,
        };
        let word = set.word(first + nth) >> shift | high;
        let (mut bits, end) = (word, (nth * 64 + 64).min(len));
        while bits != 0 {
            let from = u64::from(bits.trailing_zeros());
            let ones = u64::from((!(bits >> from)).trailing_zeros());
            part.insert_range(
                (nth * 64 + from).min(end)..(nth * 64 + from + ones).min(end),
                |_| {},
            );
            bits = if from + ones >= 64 { 0 } else { bits & (u64::MAX << (from + ones)) };
        }
    }
    part
}

fn rebuild_group(
    inodes: &Inodes<'_>,
    GroupSpace { layout, bitmap, summary, .. }: &GroupSpace,
    used: &BitSet,
    write: &mut dyn FnMut(Block, &[u8]),
) -> bool {
    let counters = counters(layout, used);
    let words = 0..layout.words_per_block() as usize;
    let geometry = &inodes.ctx.geometry;
    let mut replace = |file: &OpenFile, block, bytes: &[u8], of_word: &dyn Fn(usize) -> u32| {
        let mut new = bytes.to_vec();
        layout.change(&mut new[layout.bytes_of(words.clone())], |nth, _| of_word(nth));
        let identity = (file.file, file.ino);
        // A log sequence number of zero is always valid.
        layout.init(geometry, identity, block, &mut new);
        if new != bytes {
            write(block, &new);
        }
    };
    let first = |nth: u64| nth * layout.words_per_block();
    let is_bitmap_read = bitmap.blocks(inodes, layout, |nth, block, bytes| {
        let of_word = |at| free_bits(used, layout.extents(), first(nth) + at as u64);
        replace(bitmap, block, bytes, &of_word);
    });
    is_bitmap_read
        && summary.blocks(inodes, layout, |nth, block, bytes| {
            let of_word = |at| counters.get(first(nth) as usize + at).copied().unwrap_or(0);
            replace(summary, block, bytes, &of_word);
        })
}

/// A run of extents with the same difference between the bitmap and the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DifferenceRun {
    start: u64,
    end: u64,
    is_free: bool,
    block: Block,
}

/// Collects differences as runs.
struct Differences<'c> {
    ctx: &'c Context<'c>,
    bitmap: &'c OpenFile,
    extents: u64,
    last: Option<DifferenceRun>,
    reported: usize,
}

impl Differences<'_> {
    fn add(&mut self, run: DifferenceRun) {
        match &mut self.last {
            Some(last) if last.end == run.start && last.is_free == run.is_free => {
                last.end = run.end;
            }
            last => {
                if let Some(before) = last.replace(run) {
                    self.report(before);
                }
            }
        }
    }

    fn report(&mut self, run: DifferenceRun) {
        self.reported += 1;
        if self.reported > FINDINGS_MAX {
            return;
        }
        let (code, expected, found) = match (run.is_free, run.start >= self.extents) {
            (true, true) => (codes::REALTIME_BITMAP, "not free, past the last extent", "free"),
            (true, false) => (codes::REALTIME_BITMAP, "in use", "free"),
            (false, _) => (codes::REALTIME_LOST, "free", "not free"),
        };
        let DifferenceRun { start, end, block, .. } = run;
        let finding = Finding::new(code).of_inode(self.bitmap.ino.0).at_block(block.0);
        let detail = format!("{} realtime extents from {start}", end - start);
        self.ctx.found(finding.detail(detail).mismatch(expected, found));
    }
}

/// Returns the bits of word `word` of the bitmap according to files.
fn free_bits(used: &BitSet, extents: u64, word: u64) -> u32 {
    let first = word * WORD_BITS;
    let bits = !((used.word(first / 64) >> (first % 64)) as u32);
    match extents.saturating_sub(first) {
        0 => 0,
        left if left < WORD_BITS => bits & ((1 << left) - 1),
        _ => bits,
    }
}

fn compare_bitmap(inodes: &Inodes<'_>, layout: &SpaceLayout, used: &BitSet, bitmap: &OpenFile) {
    let ctx = inodes.ctx;
    let extents = layout.extents();
    let mut all = Differences { ctx, bitmap, extents, last: None, reported: 0 };
    bitmap.blocks(inodes, layout, |nth, block, bytes| {
        for at in 0..layout.words_per_block() {
            let word = nth * layout.words_per_block() + at;
            let found = layout.word(bytes, at as usize);
            let wrong = found ^ free_bits(used, extents, word);
            let mut bits = wrong;
            while bits != 0 {
                let start = word * WORD_BITS + u64::from(bits.trailing_zeros());
                let is_free = found >> bits.trailing_zeros() & 1 != 0;
                all.add(DifferenceRun { start, end: start + 1, is_free, block });
                bits &= bits - 1;
            }
        }
    });
    if let Some(last) = all.last {
        all.report(last);
    }
}

/// Returns the counters of the summary according to files.
fn counters(layout: &SpaceLayout, used: &BitSet) -> Vec<u32> {
    layout.count_runs(|word| free_bits(used, layout.extents(), word))
}

fn compare_summary(inodes: &Inodes<'_>, layout: &SpaceLayout, used: &BitSet, summary: &OpenFile) {
    let expected = counters(layout, used);
    let mut reported = 0;
    summary.blocks(inodes, layout, |nth, block, bytes| {
        for at in 0..layout.words_per_block() {
            let counter = nth * layout.words_per_block() + at;
            let found = layout.word(bytes, at as usize);
            // Words after the last counter are 0.
            let expected = expected.get(counter as usize).copied().unwrap_or(0);
            if expected == found {
                continue;
            }
            reported += 1;
            if reported > FINDINGS_MAX {
                return;
            }
            let (level, of) = (counter / layout.bitmap_blocks(), counter % layout.bitmap_blocks());
            let finding = Finding::new(codes::REALTIME_SUMMARY).of_inode(summary.ino.0);
            let detail = format!("runs of level {level} in block {of} of the bitmap");
            inodes.ctx.found(finding.at_block(block.0).detail(detail).mismatch(expected, found));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_those_of_a_scan_by_bits() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..200 {
            let extents = random.u64(1..400);
            let used = BitSet::new(extents);
            for _ in 0..random.u64(0..6) {
                let start = random.u64(..extents);
                used.insert_range(start..start + random.u64(1..150), |_| {});
            }
            let mut runs = Vec::new();
            let layout = SpaceLayout::new(12, extents, false);
            let word = |word| free_bits(&used, extents, word);
            layout.free_runs(word, |start, len| runs.push((start, len)));
            let mut expected: Vec<(u64, u64)> = Vec::new();
            for at in (0..extents).filter(|at| !used.contains(*at)) {
                match expected.last_mut() {
                    Some((start, len)) if *start + *len == at => *len += 1,
                    _ => expected.push((at, 1)),
                }
            }
            assert_eq!(runs, expected);
            let bits: u32 = (0..extents.div_ceil(32))
                .map(|word| free_bits(&used, extents, word).count_ones())
                .sum();
            assert_eq!(u64::from(bits), runs.iter().map(|(_, len)| len).sum());
        }
    }
}
