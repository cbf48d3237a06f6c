//! The picture as SVG.
//!
//! A cell is a small rectangle. Its contents are layers whose heights are their shares; the smallest share has a
//! minimum height so that it stays visible. All layers of a kind form one path, to keep the picture small. An invisible
//! shape over each cell, or row of cells with the same single kind, carries a tooltip.

mod bars;
mod style;

use std::fmt::Write;
use std::ops::Range;

use vfs::survey::BlockUse;

use crate::disk_map::curve::Grid;
use crate::disk_map::survey::Survey;
use crate::disk_map::words::{Escaped, count, log_words, path_text, share, size, things};
use crate::disk_map::{Curve, Options, word};

/// Width of the picture. All lengths are in this unit, a pixel unless the picture is scaled.
const WIDTH: f64 = 1000.0;
const MARGIN: f64 = 28.0;
/// Space next to the rows for the disk offset at which they start.
const GUTTER: f64 = 72.0;
/// Total height of many rows, and side of a square.
const HEIGHT: f64 = 480.0;
const SQUARE: f64 = 760.0;
/// Minimum height of a layer, as a fraction of the cell.
const LAYER_MIN: f64 = 0.16;
/// Height of a line of text.
const LINE: f64 = 24.0;

/// Draws the picture.
pub fn svg(survey: &Survey, options: &Options) -> String {
    let mut picture = Picture { survey, options, out: String::new(), y: MARGIN };
    // Writing to a String does not fail.
    let _ = picture.draw();
    let height = number(picture.y + MARGIN);
    let mut whole = String::with_capacity(picture.out.len() + 4096);
    let _ = write!(
        whole,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"dm\" viewBox=\"0 0 {WIDTH} {height}\" \
         role=\"img\" aria-labelledby=\"dm-title dm-desc\">\n\
         <title id=\"dm-title\">{}</title>\n<desc id=\"dm-desc\">{}</desc>\n",
        Escaped(&format!("Disk map of {}", path_text(options.title.as_bytes()))),
        Escaped(&picture.description()),
    );
    whole.push_str(style::STYLE);
    let _ = writeln!(whole, "<rect class=\"dm-page\" width=\"{WIDTH}\" height=\"{height}\"/>");
    whole.push_str(&picture.out);
    whole.push_str("</svg>\n");
    whole
}

/// Formats a length with visible precision only.
fn number(length: f64) -> String {
    let shown = format!("{length:.2}");
    shown.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A picture that is being drawn, from top to bottom.
struct Picture<'p> {
    survey: &'p Survey,
    options: &'p Options,
    out: String,
    /// Top of the next element.
    y: f64,
}

/// Area of the cells.
struct Field {
    grid: Grid,
    left: f64,
    top: f64,
    /// Distance between cells: to the right, and down.
    step: (f64, f64),
    /// Width and height of a cell, smaller than the distance to leave a gap.
    side: (f64, f64),
}

impl Field {
    fn new(grid: Grid, curve: Curve, top: f64) -> Self {
        let step = match curve {
            Curve::Hilbert => (SQUARE / grid.columns as f64, SQUARE / grid.rows as f64),
            Curve::Rows => {
                let width = (WIDTH - 2.0 * MARGIN - GUTTER) / grid.columns as f64;
                (width, (HEIGHT / grid.rows as f64).clamp(3.0, 26.0))
            }
        };
        let gap =
            if step.0.min(step.1) >= 4.0 { (step.0.min(step.1) * 0.12).min(1.5) } else { 0.0 };
        Self { grid, left: MARGIN + GUTTER, top, step, side: (step.0 - gap, step.1 - gap) }
    }

    fn corner(&self, cell: usize) -> (f64, f64) {
        let (x, y) = self.grid.place(cell);
        (self.left + x as f64 * self.step.0, self.top + y as f64 * self.step.1)
    }

    fn height(&self) -> f64 {
        self.grid.rows as f64 * self.step.1
    }
}

impl Picture<'_> {
    fn draw(&mut self) -> std::fmt::Result {
        self.heading()?;
        let grid = Grid::new(self.options.curve, self.survey.cells.len());
        let field = Field::new(grid, self.options.curve, self.y);
        self.layers(&field)?;
        if self.options.curve == Curve::Rows {
            self.places(&field)?;
        }
        self.hints(&field)?;
        self.y += field.height() + 8.0;
        let cell = size(self.survey.bytes(self.survey.cells.cell_blocks()));
        let order = match self.options.curve {
            Curve::Rows => "from left to right, row by row",
            Curve::Hilbert => "along a Hilbert curve from the upper left corner",
        };
        self.line(MARGIN + GUTTER, 14.0, "dm-small", &format!("Each cell is {cell}, {order}."))?;
        self.y += 32.0;
        self.legend()?;
        self.y += 12.0;
        self.histograms()?;
        self.notes()
    }

    /// Draws a line of text whose baseline is `down` below the current position.
    fn line(&mut self, x: f64, down: f64, class: &str, text: &str) -> std::fmt::Result {
        let y = number(self.y + down);
        let x = number(x);
        writeln!(self.out, "<text x=\"{x}\" y=\"{y}\" class=\"{class}\">{}</text>", Escaped(text))
    }

    fn heading(&mut self) -> std::fmt::Result {
        let survey = self.survey;
        let title = path_text(self.options.title.as_bytes());
        self.line(MARGIN, 20.0, "dm-heading", &title)?;
        let shape = &survey.shape;
        let free = survey.total(BlockUse::Free);
        let about = format!(
            "{}, {} in blocks of {}; {} free ({})",
            self.options.format,
            size(survey.bytes(shape.blocks)),
            size(shape.block_size.into()),
            size(survey.bytes(free)),
            share(free, shape.blocks),
        );
        self.line(MARGIN, 44.0, "dm-about", &about)?;
        self.y += 64.0;
        Ok(())
    }

    /// Draws each cell as a rectangle, with a layer for each kind of block except free ones.
    fn layers(&mut self, field: &Field) -> std::fmt::Result {
        let mut paths: [String; BlockUse::COUNT] = std::array::from_fn(|_| String::new());
        let (wide, tall) = (number(field.side.0), number(field.side.1));
        for cell in 0..self.survey.cells.len() {
            let (x, y) = field.corner(cell);
            let (x, top) = (number(x), number(y));
            write!(paths[BlockUse::Free as usize], "M{x} {top}h{wide}v{tall}h-{wide}z")?;
            let mut bottom = y + field.side.1;
            for (kind, part) in self.parts(cell).into_iter().rev() {
                let height = part * field.side.1;
                bottom -= height;
                let (up, high) = (number(bottom), number(height));
                write!(paths[kind as usize], "M{x} {up}h{wide}v{high}h-{wide}z")?;
            }
        }
        for kind in BlockUse::ALL.into_iter().rev() {
            let path = &paths[kind as usize];
            if !path.is_empty() {
                writeln!(self.out, "<path class=\"dm-k{}\" d=\"{path}\"/>", kind as usize)?;
            }
        }
        Ok(())
    }

    /// Returns the kinds in a cell other than free, with their fractions of its height.
    fn parts(&self, cell: usize) -> Vec<(BlockUse, f64)> {
        let counts = self.survey.cells.counts(cell);
        let range = self.survey.cells.range(cell);
        let whole = (range.end - range.start).max(1) as f64;
        let used = BlockUse::ALL.into_iter().filter(|kind| *kind != BlockUse::Free);
        let mut parts: Vec<(BlockUse, f64)> = used
            .filter(|kind| counts[*kind as usize] > 0)
            .map(|kind| (kind, (counts[kind as usize] as f64 / whole).max(LAYER_MIN)))
            .collect();
        // Layers with the minimum height take space from the others.
        let sum: f64 = parts.iter().map(|(_, part)| part).sum();
        let most = if counts[BlockUse::Free as usize] > 0 { 1.0 - LAYER_MIN / 2.0 } else { 1.0 };
        if sum > most {
            parts.iter_mut().for_each(|(_, part)| *part *= most / sum);
        }
        parts
    }

    /// Draws the disk offsets at which some rows start.
    fn places(&mut self, field: &Field) -> std::fmt::Result {
        let every = (18.0 / field.step.1).ceil().max(1.0) as usize;
        let wanted = field.grid.rows.div_ceil(16).max(every).next_power_of_two();
        for row in (0..field.grid.rows).step_by(wanted) {
            let start = self.survey.cells.range(row * field.grid.columns).start;
            let y = number(field.top + row as f64 * field.step.1 + field.step.1.min(12.0) - 1.0);
            let x = number(field.left - 8.0);
            let text = size(self.survey.bytes(start));
            let text = if start == 0 { "0" } else { &text };
            writeln!(
                self.out,
                "<text x=\"{x}\" y=\"{y}\" class=\"dm-small dm-end\">{text}</text>"
            )?;
        }
        Ok(())
    }

    /// Adds the tooltips. Neighbours with the same single kind share one.
    fn hints(&mut self, field: &Field) -> std::fmt::Result {
        let cells = &self.survey.cells;
        let mut cell = 0;
        while cell < cells.len() {
            let mut end = cell + 1;
            if let Some(kind) = self.only(cell) {
                while end < cells.len()
                    && self.only(end) == Some(kind)
                    && field.grid.goes_right(end - 1)
                {
                    end += 1;
                }
            }
            let (x, y) = field.corner(cell);
            let width = (end - cell - 1) as f64 * field.step.0 + field.side.0;
            let (x, y, width) = (number(x), number(y), number(width));
            let (side, hint) = (number(field.side.1), self.hint(cell..end));
            writeln!(
                self.out,
                "<rect class=\"dm-hit\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{side}\">\
                 <title>{hint}</title></rect>"
            )?;
            cell = end;
        }
        Ok(())
    }

    /// Returns the kind of all blocks of a cell, if it is the same.
    fn only(&self, cell: usize) -> Option<BlockUse> {
        let counts = self.survey.cells.counts(cell);
        let mut used = BlockUse::ALL.into_iter().filter(|kind| counts[*kind as usize] > 0);
        used.next().filter(|_| used.next().is_none())
    }

    fn hint(&self, cells: Range<usize>) -> String {
        let survey = self.survey;
        let first = survey.cells.range(cells.start).start;
        let end = survey.cells.range(cells.end - 1).end;
        let counts = survey.cells.counts(cells.start);
        let whole: u64 = counts.iter().sum();
        let mut kinds: Vec<BlockUse> =
            BlockUse::ALL.into_iter().filter(|kind| counts[*kind as usize] > 0).collect();
        kinds.sort_by_key(|kind| std::cmp::Reverse(counts[*kind as usize]));
        let what: Vec<String> = kinds
            .into_iter()
            .map(|kind| match cells.len() {
                1 if counts[kind as usize] != whole => {
                    format!("{} {}", word(kind), share(counts[kind as usize], whole))
                }
                _ => word(kind).to_owned(),
            })
            .collect();
        let (from, to) = (size(survey.bytes(first)), size(survey.bytes(end)));
        let last = end.saturating_sub(1).max(first);
        format!("{from} to {to}, blocks {first} to {last}: {}", Escaped(&what.join(", ")))
    }

    /// Draws the legend: colours and amounts, in two columns.
    fn legend(&mut self) -> std::fmt::Result {
        let survey = self.survey;
        let totals = survey.cells.totals();
        let present: Vec<BlockUse> =
            BlockUse::ALL.into_iter().filter(|kind| totals[*kind as usize] > 0).collect();
        let rows = present.len().div_ceil(2);
        let column = (WIDTH - 2.0 * MARGIN - 40.0) / 2.0;
        let top = self.y;
        for (at, kind) in present.into_iter().enumerate() {
            let left = MARGIN + (at / rows) as f64 * (column + 40.0);
            let y = top + (at % rows) as f64 * LINE;
            let blocks = totals[kind as usize];
            let swatch = format!("x=\"{}\" y=\"{}\"", number(left), number(y + 3.0));
            writeln!(
                self.out,
                "<rect class=\"dm-k{} dm-swatch\" {swatch} width=\"16\" height=\"16\" rx=\"2\"/>",
                kind as usize
            )?;
            self.y = y;
            self.line(left + 26.0, 16.0, "dm-text", word(kind))?;
            let bytes = size(survey.bytes(blocks));
            self.line(left + column - 84.0, 16.0, "dm-text dm-end", &bytes)?;
            let part = share(blocks, survey.shape.blocks);
            self.line(left + column, 16.0, "dm-text dm-end", &part)?;
        }
        self.y = top + rows as f64 * LINE;
        Ok(())
    }

    /// Draws the state of the log and the remarks.
    fn notes(&mut self) -> std::fmt::Result {
        let survey = self.survey;
        let log = survey.log.first().map(|(start, _)| {
            let parts = things(survey.log.len() as u64, "piece", "pieces");
            format!(
                "; {} in {parts} from block {}",
                size(survey.bytes(survey.total(BlockUse::Log))),
                count(*start)
            )
        });
        let state = log_words(survey.shape.log).0;
        let text = format!("Journal or log: {state}{}.", log.unwrap_or_default());
        self.line(MARGIN, 18.0, "dm-text", &text)?;
        self.y += LINE;
        if let Some(left_out) = survey.shape.left_out {
            self.line(MARGIN, 18.0, "dm-text", &format!("Not shown: {left_out}."))?;
            self.y += LINE;
        }
        let remarks = survey.remarks.len() as u64 + survey.remarks_left_out;
        if remarks > 0 {
            let text = format!("Not all could be read: {}.", things(remarks, "remark", "remarks"));
            self.line(MARGIN, 18.0, "dm-text", &text)?;
            self.y += LINE;
        }
        if !survey.is_complete {
            self.line(MARGIN, 18.0, "dm-text", "The survey was interrupted.")?;
            self.y += LINE;
        }
        Ok(())
    }

    /// Returns the picture in words, for accessibility.
    fn description(&self) -> String {
        let survey = self.survey;
        let totals = survey.cells.totals();
        let mut kinds: Vec<BlockUse> =
            BlockUse::ALL.into_iter().filter(|kind| totals[*kind as usize] > 0).collect();
        kinds.sort_by_key(|kind| std::cmp::Reverse(totals[*kind as usize]));
        let part = |kind: BlockUse| {
            let blocks = totals[kind as usize];
            format!("{} {}", word(kind), share(blocks, survey.shape.blocks))
        };
        let parts: Vec<String> = kinds.into_iter().map(part).collect();
        format!(
            "A disk of {} as {} cells in disk order. {}. Free space is in {}. {} of {} are in more \
             than one piece.",
            size(survey.bytes(survey.shape.blocks)),
            count(survey.cells.len() as u64),
            parts.join(", "),
            things(survey.free.count(), "run", "runs"),
            count(survey.files.files_fragmented),
            things(survey.files.files, "file", "files"),
        )
    }
}
