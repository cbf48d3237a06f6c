//! The page in a browser.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};

use crate::reports::common::chromium::{View, dom, layout, screenshot};
use crate::reports::common::everything::everything;

const VIEWS: [View; 3] = [
    View { width: 1200, is_dark: false },
    View { width: 400, is_dark: false },
    View { width: 1200, is_dark: true },
];
/// Maximum height of a screenshot without a graphics processor.
const HEIGHT_MAX: f64 = 16_000.0;

/// Directory in which screenshots are kept for inspection.
fn kept(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Counts the colours of one row in this many.
const ROWS: usize = 8;

/// Returns the share of the most frequent colour, and the number of colours.
fn colours(picture: &Path) -> (f64, usize) {
    let decoder = png::Decoder::new(BufReader::new(File::open(picture).unwrap()));
    let mut reader = decoder.read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    let mut counts: HashMap<&[u8], usize> = HashMap::new();
    for row in pixels[..info.buffer_size()].chunks_exact(info.line_size).step_by(ROWS) {
        for pixel in row.chunks_exact(info.color_type.samples()) {
            *counts.entry(pixel).or_default() += 1;
        }
    }
    let all: usize = counts.values().sum();
    (*counts.values().max().unwrap() as f64 / all as f64, counts.len())
}

#[test]
fn a_page_of_everything_is_legible_everywhere() {
    testkit::require!(Tool("chromium"));
    let page = everything().html("File systems side by side");
    fs::write(kept("report.html"), &page).unwrap();
    for view in VIEWS {
        let layout = layout(&page, view);
        assert!(layout.bad_boxes.is_empty(), "{view:?}: {:#?}", layout.bad_boxes);
        assert!(layout.touching.is_empty(), "{view:?}: {:#?}", layout.touching);
        assert!(layout.cut.is_empty(), "{view:?}: {:#?}", layout.cut);
        assert!(layout.width <= f64::from(view.width), "{view:?}: {} wide", layout.width);
        // Three steps of create, one each of stress-orphan and fserver; two for each of the three steps with one size.
        assert_eq!(layout.plots, 3 + 1 + 1 + 2 * 3, "{view:?}");
        assert!(layout.letters_min >= 9.0, "{view:?}: letters of {} px", layout.letters_min);
        assert_eq!(layout.background == "rgb(21, 21, 23)", view.is_dark, "{}", layout.background);
        let shade = if view.is_dark { "dark" } else { "light" };
        let picture = kept(&format!("report-{}-{shade}.png", view.width));
        screenshot(&page, view, layout.height.min(HEIGHT_MAX) as u32, &picture);
        let (most, colours) = colours(&picture);
        assert!(most < 0.97 && colours > 100, "{view:?}: {colours} colours, {most} of one");
    }
}

#[test]
fn a_page_needs_no_script_and_nothing_from_elsewhere() {
    let page = everything().html("File systems side by side");
    for forbidden in
        ["<script", "javascript:", " src=", "<link", "@import", "url(", "<iframe", " onload"]
    {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    assert!(!page.contains("http://") && !page.contains("https://"));
    assert!(page.contains("default-src 'none'"));
    let hrefs = page.matches("href=").count();
    assert!(hrefs > 0 && hrefs == page.matches("href=\"#").count(), "links within the page only");
}

#[test]
fn a_browser_understands_the_page_as_it_is_written() {
    testkit::require!(Tool("chromium"));
    let directory = testkit::scratch();
    let page = everything().html("File systems side by side");
    let path = directory.path().join("report.html");
    fs::write(&path, &page).unwrap();
    let dom = dom(&path);
    // An unclosed or unknown element would be moved, duplicated or omitted.
    for element in
        ["<svg", "<text", "<path", "<rect", "<circle", "<table", "<tr", "<td", "<details", "<title"]
    {
        assert_eq!(dom.matches(element).count(), page.matches(element).count(), "{element}");
    }
}
