//! Two histograms side by side.

use crate::disk_map::histogram::Bucket;
use crate::disk_map::svg::{LINE, MARGIN, Picture, WIDTH, number};
use crate::disk_map::words::{Escaped, count, pieces, size};

/// Height of a bar, and distance between bars.
const BAR: f64 = 12.0;
const STEP: f64 = 19.0;
/// Space for the label of a bar, and for its number.
const LABEL: f64 = 92.0;
const NUMBER: f64 = 104.0;

/// A bar.
struct Bar {
    label: String,
    length: u64,
    number: String,
    hint: String,
}

impl Picture<'_> {
    /// Draws free space by length of runs, and files by number of fragments.
    pub(super) fn histograms(&mut self) -> std::fmt::Result {
        let survey = self.survey;
        let free = |bucket: &Bucket| Bar {
            label: size(survey.bytes(bucket.from)),
            length: bucket.sum,
            number: size(survey.bytes(bucket.sum)),
            hint: format!(
                "{} runs of {} and more",
                count(bucket.count),
                size(survey.bytes(bucket.from))
            ),
        };
        let files = |bucket: &Bucket| Bar {
            label: pieces(bucket),
            length: bucket.count,
            number: count(bucket.count),
            hint: format!("{} files in {}", count(bucket.count), pieces(bucket)),
        };
        let column = (WIDTH - 2.0 * MARGIN - 40.0) / 2.0;
        let top = self.y;
        let bars = survey.free.buckets().iter().map(free).collect();
        self.bars(MARGIN, column, "Free space by length of run", bars)?;
        let bottom = self.y;
        self.y = top;
        let bars = survey.files.fragments.buckets().iter().map(files).collect();
        self.bars(MARGIN + column + 40.0, column, "Files by number of pieces", bars)?;
        self.y = self.y.max(bottom) + 8.0;
        Ok(())
    }

    fn bars(&mut self, left: f64, width: f64, title: &str, bars: Vec<Bar>) -> std::fmt::Result {
        use std::fmt::Write;
        self.line(left, 18.0, "dm-subheading", title)?;
        self.y += LINE + 6.0;
        if bars.is_empty() {
            self.line(left, 14.0, "dm-small", "none")?;
            self.y += STEP;
        }
        let most = bars.iter().map(|bar| bar.length).max().unwrap_or(0).max(1) as f64;
        let room = width - LABEL - NUMBER;
        for bar in bars {
            self.line(left + LABEL - 10.0, 11.0, "dm-small dm-end", &bar.label)?;
            let mut length = bar.length as f64 / most * room;
            if bar.length > 0 {
                length = length.max(1.0);
            }
            writeln!(
                self.out,
                "<rect class=\"dm-bar\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{BAR}\" rx=\"1.5\">\
                 <title>{}</title></rect>",
                number(left + LABEL),
                number(self.y),
                number(length),
                Escaped(&bar.hint),
            )?;
            if bar.length > 0 {
                self.line(left + LABEL + length + 8.0, 11.0, "dm-small", &bar.number)?;
            }
            self.y += STEP;
        }
        Ok(())
    }
}
