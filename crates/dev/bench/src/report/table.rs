//! A table for a terminal and in Markdown.

use unicode_width::UnicodeWidthStr;

use super::number::NONE;

/// Contents of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnKind {
    /// The name of a contestant.
    Contestant,
    /// Other text.
    Words,
    /// Figures, aligned to the right.
    Figure,
    /// Figures of the contestant in the title.
    FigureOf,
}

/// Cells under titles. Every row has as many cells as there are titles.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) titles: Vec<(ColumnKind, String)>,
    pub(super) rows: Vec<Vec<String>>,
}

/// Replaces control characters.
pub(super) fn clean(text: &str) -> String {
    let shown = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    text.chars().map(shown).collect()
}

/// Escapes text for Markdown.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in clean(text).chars() {
        match c {
            '<' => escaped += "&lt;",
            '&' => escaped += "&amp;",
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '#' => escaped.extend(['\\', c]),
            _ => escaped.push(c),
        }
    }
    escaped
}

impl ColumnKind {
    /// Returns whether cells are aligned to the right.
    pub(super) fn is_figure(self) -> bool {
        matches!(self, Self::Figure | Self::FigureOf)
    }
}

impl Table {
    pub(super) fn new(titles: impl IntoIterator<Item = (ColumnKind, String)>) -> Self {
        Self { titles: titles.into_iter().collect(), rows: Vec::new() }
    }

    /// Removes columns that are empty in all rows.
    pub(super) fn without_empty_columns(self) -> Self {
        let says = |cell: &String| !cell.is_empty() && cell != NONE;
        let is_kept = |column: usize| self.rows.iter().any(|row| row.get(column).is_some_and(says));
        let kept: Vec<bool> = (0..self.titles.len()).map(is_kept).collect();
        fn of<T>(cells: Vec<T>, kept: &[bool]) -> Vec<T> {
            cells.into_iter().zip(kept).filter(|(_, kept)| **kept).map(|(cell, _)| cell).collect()
        }
        let rows = self.rows.into_iter().map(|row| of(row, &kept)).collect();
        Self { titles: of(self.titles, &kept), rows }
    }

    /// Formats with spaces for alignment, without trailing spaces.
    pub(super) fn text(&self) -> String {
        let titles = self.titles.iter().map(|(_, title)| clean(title)).collect();
        let body = self.rows.iter().map(|cells| cells.iter().map(|cell| clean(cell)).collect());
        let rows: Vec<Vec<String>> = std::iter::once(titles).chain(body).collect();
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.width()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.titles.len()).map(width).collect();
        let mut text = String::new();
        for row in &rows {
            let mut line = String::new();
            for ((cell, width), (kind, _)) in row.iter().zip(&widths).zip(&self.titles) {
                let spaces = " ".repeat(width - cell.width());
                let (before, after) =
                    if kind.is_figure() { (&*spaces, "") } else { ("", &*spaces) };
                line += &format!("{before}{cell}{after}  ");
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }

    /// Formats in Markdown.
    pub(super) fn markdown(&self) -> String {
        let rule = |(kind, _): &(ColumnKind, String)| if kind.is_figure() { "--:" } else { "---" };
        let row = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let mut text = row(self.titles.iter().map(|(_, title)| escaped(title)).collect());
        text += &format!("|{}|\n", self.titles.iter().map(rule).collect::<Vec<_>>().join("|"));
        for cells in &self.rows {
            text += &row(cells.iter().map(|cell| escaped(cell)).collect());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr;

    use super::{ColumnKind, Table};

    fn table() -> Table {
        let mut table = Table::new([
            (ColumnKind::Contestant, "who".to_owned()),
            (ColumnKind::Figure, "rate".to_owned()),
            (ColumnKind::Words, "why".to_owned()),
        ]);
        table.rows.push(["memory:xfs", "1.20 M", "x"].map(str::to_owned).to_vec());
        table.rows.push(["目录|\u{1b}[2J", "7 ×", "a_b\n"].map(str::to_owned).to_vec());
        table
    }

    #[test]
    fn columns_align_whatever_the_width_of_letters() {
        let text = table().text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "who           rate  why");
        assert_eq!(lines[1], "memory:xfs  1.20 M  x");
        // The first two characters have a width of two columns each.
        assert_eq!(lines[2], "目录|\u{fffd}[2J      7 ×  a_b\u{fffd}");
        assert_eq!(lines[2].split("7 ×").next().unwrap().width(), 15);
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn markdown_has_no_cell_that_ends_early() {
        let text = table().markdown();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "|---|--:|---|");
        assert_eq!(lines[2], "| memory:xfs | 1.20 M | x |");
        assert_eq!(lines[3], "| 目录\\|\u{fffd}\\[2J | 7 × | a\\_b\u{fffd} |");
    }
}
