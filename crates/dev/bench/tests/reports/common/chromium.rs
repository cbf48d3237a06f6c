//! Rendering of pages in headless Chromium.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::Deserialize;

/// Time after which a browser is considered to hang.
const ANSWER_AFTER_MAX: Duration = Duration::from_secs(600);

const FLAGS: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
];

/// Settings for showing a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub(crate) width: u32,
    pub(crate) is_dark: bool,
}

/// Layout of a page in a browser. Lengths are CSS pixels.
#[derive(Debug, Deserialize)]
pub(crate) struct PageLayout {
    /// Width of the content, including invisible parts.
    pub(crate) width: f64,
    pub(crate) height: f64,
    /// Background colour.
    pub(crate) background: String,
    pub(crate) plots: usize,
    /// Number of drawings without a size, or larger than the page.
    pub(crate) bad_boxes: Vec<String>,
    /// Overlapping texts within a plot.
    pub(crate) touching: Vec<String>,
    /// Texts that exceed their plot.
    pub(crate) cut: Vec<String>,
    /// Minimum font size of all plots.
    pub(crate) letters_min: f64,
}

/// Measures the page in the frame and stores the result where `--dump-dom` shows it.
const MEASURE: &str = r"
const frame = document.querySelector('iframe'), page = frame.contentDocument;
const found = {bad_boxes: [], touching: [], cut: [], plots: 0, letters_min: 1000};
found.width = page.documentElement.scrollWidth;
found.height = Math.ceil(page.body.getBoundingClientRect().bottom);
found.background = frame.contentWindow.getComputedStyle(page.body).backgroundColor;
const limit = page.documentElement.clientWidth + 0.5;
for (const svg of page.querySelectorAll('svg')) {
  const box = svg.getBoundingClientRect();
  const scrolls = svg.closest('.scroll') !== null;
  if (!(box.width > 5 && box.height > 5) || box.left < 0 || (box.right > limit && !scrolls))
    found.bad_boxes.push(svg.outerHTML.slice(0, 80) + ' ' + JSON.stringify(box));
}
for (const svg of page.querySelectorAll('svg.plot')) {
  found.plots += 1;
  const outer = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll('text')].map(text => [text.textContent, text.getBoundingClientRect()]);
  texts.forEach(([text, box], index) => {
    found.letters_min = Math.min(found.letters_min, outer.width / 480 * 12);
    if (box.left < outer.left - 0.5 || box.right > outer.right + 0.5 || box.top < outer.top - 2 || box.bottom > outer.bottom + 2)
      found.cut.push(text);
    for (const [other, place] of texts.slice(index + 1)) {
      const across = Math.min(box.right, place.right) - Math.max(box.left, place.left);
      // Boxes of text have room for descenders, which touch nothing.
      const down = Math.min(box.bottom, place.bottom) - Math.max(box.top, place.top);
      if (across > 0.5 && down > 0.3 * Math.min(box.height, place.height)) found.touching.push(text + ' / ' + other);
    }
  });
}
const result = document.createElement('pre');
result.id = 'result';
result.textContent = btoa(unescape(encodeURIComponent(JSON.stringify(found))));
document.body.append(result);
";

/// Runs the browser with an empty profile. Returns its output.
fn chromium(arguments: &[String], address: &Path) -> Vec<u8> {
    let profile = tempfile::tempdir().unwrap();
    let output = profile.path().join("output");
    let mut child = testkit::command("chromium")
        .args(FLAGS)
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(arguments)
        .arg(format!("file://{}", address.display()))
        .stdin(Stdio::null())
        .stdout(fs::File::create(&output).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > ANSWER_AFTER_MAX {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("chromium does not end");
        }
        sleep(Duration::from_millis(20));
    };
    assert!(status.success(), "chromium: {status}");
    fs::read(&output).unwrap()
}

fn base64(text: &str) -> Vec<u8> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => u32::from(c - b'A'),
        b'a'..=b'z' => u32::from(c - b'a') + 26,
        b'0'..=b'9' => u32::from(c - b'0') + 52,
        b'+' => 62,
        _ => 63,
    };
    let bytes: Vec<u8> = text.bytes().filter(|c| *c != b'=').collect();
    let group = |group: &[u8]| {
        let bits = group.iter().fold(0, |bits, c| bits << 6 | digit(*c)) << (6 * (4 - group.len()));
        bits.to_be_bytes()[1..group.len()].to_vec()
    };
    bytes.chunks(4).flat_map(group).collect()
}

/// A page that shows another one in a frame, because a window cannot be as narrow as a phone. The page's own policy
/// would forbid measuring it.
fn framed(page: &str, view: View, height: u32, script: &str) -> String {
    let (before, rest) = page.split_once("<meta http-equiv=").expect("the page has a policy");
    let (_, after) = rest.split_once('>').unwrap();
    let inner = format!("{before}{after}").replace('&', "&amp;").replace('"', "&quot;");
    let scheme = if view.is_dark { "dark" } else { "light" };
    let mut outer = String::from("<!DOCTYPE html><meta charset=utf-8>");
    let _ = write!(
        outer,
        "<style>body {{ margin: 0 }} iframe {{ border: 0; display: block; color-scheme: {scheme}; \
         width: {}px; height: {height}px }}</style><body><iframe srcdoc=\"{inner}\"></iframe>",
        view.width
    );
    if !script.is_empty() {
        let _ = write!(outer, "<script>onload = () => {{ {script} }}</script>");
    }
    outer
}

/// Renders a page.
pub(crate) fn layout(page: &str, view: View) -> PageLayout {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("frame.html");
    fs::write(&path, framed(page, view, 900, MEASURE)).unwrap();
    let dumped = chromium(&["--dump-dom".to_owned()], &path);
    let dumped = String::from_utf8(dumped).unwrap();
    let (_, result) = dumped.split_once("<pre id=\"result\">").expect("the script ran");
    let (result, _) = result.split_once('<').unwrap();
    serde_json::from_slice(&base64(result)).unwrap()
}

/// Returns the page as parsed by the browser, without the scripts of these tests.
pub(crate) fn dom(page: &Path) -> String {
    String::from_utf8(chromium(&["--dump-dom".to_owned()], page)).unwrap()
}

/// Takes a screenshot of a page.
pub(crate) fn screenshot(page: &str, view: View, height: u32, to: &Path) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("frame.html");
    fs::write(&path, framed(page, view, height, "")).unwrap();
    let arguments = [
        format!("--screenshot={}", to.display()),
        format!("--window-size={},{height}", view.width.max(500)),
    ];
    chromium(&arguments, &path);
}
