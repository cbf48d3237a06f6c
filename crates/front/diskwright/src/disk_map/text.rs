//! The picture in letters, for a terminal.

use std::fmt::Write;

use vfs::survey::BlockUse;

use crate::disk_map::histogram::Bucket;
use crate::disk_map::survey::Survey;
use crate::disk_map::words::{count, log_words, path_text, pieces, share, size, things};
use crate::disk_map::{Options, word};

/// Number of cells in a line.
const COLUMNS: usize = 64;
/// Maximum width of a bar of a histogram.
const BAR: u64 = 40;

/// Returns the letter of a kind.
fn letter(kind: BlockUse) -> char {
    match kind {
        BlockUse::Headers => 'S',
        BlockUse::Allocation => 'B',
        BlockUse::Inodes => 'I',
        BlockUse::Log => 'L',
        BlockUse::Directories => 'D',
        BlockUse::Attributes => 'A',
        BlockUse::Maps => 'M',
        BlockUse::Data => '#',
        BlockUse::Shared => '=',
        BlockUse::Preallocated => '-',
        BlockUse::System => 'Q',
        BlockUse::Bad => 'X',
        BlockUse::Free => '.',
        BlockUse::Unknown => '?',
    }
}

/// Draws the most frequent kind of each cell as a letter, and the numbers below.
pub fn text(survey: &Survey, options: &Options) -> String {
    let mut out = String::new();
    // Writing to a String does not fail.
    let _ = write_text(survey, options, &mut out);
    out
}

fn write_text(survey: &Survey, options: &Options, out: &mut String) -> std::fmt::Result {
    let shape = &survey.shape;
    writeln!(
        out,
        "{}: {}, {} in {} blocks of {}",
        path_text(options.title.as_bytes()),
        options.format,
        size(survey.bytes(shape.blocks)),
        count(shape.blocks),
        size(shape.block_size.into()),
    )?;
    writeln!(out)?;
    for row in 0..survey.cells.len().div_ceil(COLUMNS) {
        let cells = row * COLUMNS..((row + 1) * COLUMNS).min(survey.cells.len());
        let start = size(survey.bytes(survey.cells.range(cells.start).start));
        write!(out, "{start:>11}  ")?;
        for cell in cells {
            let counts = survey.cells.counts(cell);
            let most = BlockUse::ALL.into_iter().max_by_key(|kind| counts[*kind as usize]);
            out.push(most.map_or(' ', letter));
        }
        writeln!(out)?;
    }
    writeln!(out, "\nEach letter is {}.\n", size(survey.bytes(survey.cells.cell_blocks())))?;
    let totals = survey.cells.totals();
    for (kind, blocks) in BlockUse::ALL.into_iter().zip(totals).filter(|(_, blocks)| *blocks > 0) {
        let (bytes, part) = (size(survey.bytes(blocks)), share(blocks, shape.blocks));
        writeln!(out, "  {}  {:<34}{bytes:>12}{part:>10}", letter(kind), word(kind))?;
    }
    write_log(survey, out)?;
    writeln!(
        out,
        "\nFree: {}, {} in all, the longest {}",
        things(survey.free.count(), "run", "runs"),
        size(survey.bytes(totals[BlockUse::Free as usize])),
        size(survey.bytes(survey.free.longest())),
    )?;
    let length = |bucket: &Bucket| size(survey.bytes(bucket.from));
    write_bars(&survey.free.buckets(), |bucket| bucket.sum, length, "runs", out)?;
    write_files(survey, out)?;
    if let Some(left_out) = survey.shape.left_out {
        writeln!(out, "\nNot shown: {left_out}")?;
    }
    for remark in &survey.remarks {
        writeln!(out, "\n{}", path_text(remark.as_bytes()))?;
    }
    if survey.remarks_left_out > 0 {
        writeln!(out, "\nand {} more of these", count(survey.remarks_left_out))?;
    }
    Ok(())
}

fn write_log(survey: &Survey, out: &mut String) -> std::fmt::Result {
    let blocks = survey.total(BlockUse::Log);
    write!(out, "\nJournal or log: {}", log_words(survey.shape.log).0)?;
    if let Some((start, _)) = survey.log.first() {
        let parts = things(survey.log.len() as u64, "piece", "pieces");
        write!(out, "; {} in {parts} from block {start} on", size(survey.bytes(blocks)))?;
    }
    writeln!(out)
}

fn write_files(survey: &Survey, out: &mut String) -> std::fmt::Result {
    let files = &survey.files;
    writeln!(
        out,
        "\nFiles with blocks: {}, {} of them in more than one piece; {} in all",
        count(files.files),
        count(files.files_fragmented),
        things(files.fragments.sum(), "piece", "pieces"),
    )?;
    writeln!(
        out,
        "Directories with blocks: {}, {} of them in more than one piece",
        count(files.directories),
        count(files.directories_fragmented),
    )?;
    write_bars(&files.fragments.buckets(), |bucket| bucket.count, pieces, "files", out)?;
    for file in &files.worst {
        let path = file.path.as_deref().map(path_text);
        let path = path.unwrap_or_else(|| format!("inode {}", file.ino));
        let bytes = size(survey.bytes(file.blocks));
        writeln!(out, "  {:>9} pieces  {bytes:>11}  {path}", count(file.fragments))?;
    }
    Ok(())
}

/// Writes a line for each bucket, with a bar of length `value`.
fn write_bars(
    buckets: &[Bucket],
    value: impl Fn(&Bucket) -> u64,
    label: impl Fn(&Bucket) -> String,
    things: &str,
    out: &mut String,
) -> std::fmt::Result {
    let most = buckets.iter().map(&value).max().unwrap_or(0).max(1);
    for bucket in buckets {
        let len = (u128::from(value(bucket)) * u128::from(BAR)).div_ceil(u128::from(most));
        let bar = "*".repeat(len as usize);
        let number = count(bucket.count);
        let line = format!("  {:>12}  {number:>13} {things}  {bar}", label(bucket));
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}
