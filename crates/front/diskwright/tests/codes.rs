//! The page that documents all codes agrees with the catalogues.

use std::collections::HashSet;
use std::fmt::Write;
use std::path::PathBuf;

use diskwright::build::Format;
use diskwright::check::{Code, codes};

/// Variable that makes the test rewrite the page instead of comparing it.
const VARIABLE: &str = "DISKWRIGHT_WRITE_DOCS";
const START: &str = "<!-- codes -->\n";
const END: &str = "<!-- /codes -->\n";

const FORMATS: [Format; 2] = [Format::Ext4, Format::Xfs];

fn all() -> impl Iterator<Item = (Format, &'static Code)> {
    FORMATS.into_iter().flat_map(|format| codes(format).iter().map(move |code| (format, *code)))
}

#[test]
fn the_page_has_all_codes() {
    let page = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/check.md"));
    let text = std::fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once(START).unwrap();
    let (found, after) = rest.split_once(END).unwrap();
    let expected: String = FORMATS.into_iter().map(table).collect();
    if std::env::var_os(VARIABLE).is_some() {
        std::fs::write(&page, [before, START, &expected, END, after].concat()).unwrap();
    } else {
        let advice = format!("write the page with {VARIABLE}=1");
        for (found, expected) in found.lines().zip(expected.lines()) {
            assert_eq!(found, expected, "{advice}");
        }
        assert!(found == expected, "docs/check.md has too few codes or too many: {advice}");
    }
}

fn table(format: Format) -> String {
    let title = match format {
        Format::Ext4 => "ext2, ext3 and ext4",
        Format::Xfs => "XFS",
    };
    let mut text = format!("### {title}\n| code | severity | structure | meaning | repair |\n");
    text.push_str("|---|---|---|---|---|\n");
    for code in codes(format) {
        let Code { name, severity, structure, meaning, repair } = code;
        let severity = severity.word();
        writeln!(text, "| `{name}` | {severity} | {structure} | {meaning} | {repair} |").unwrap();
    }
    text.push('\n');
    text
}

#[test]
fn codes_are_names_with_sentences() {
    let mut names = HashSet::new();
    for (format, Code { name, structure, meaning, repair, .. }) in all() {
        assert!(names.insert(name), "{name} is there twice");
        let prefix = format!("{}-", format.name());
        assert!(name.starts_with(&prefix), "{name} is in the catalogue of {prefix}");
        let is_usual = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        assert!(name.chars().all(is_usual), "{name}");
        for text in [structure, meaning, repair] {
            assert!(!text.is_empty() && !text.contains(['|', '\n']), "{name}: {text}");
        }
        for sentence in [meaning, repair] {
            let first = sentence.chars().next().unwrap();
            assert!(!first.is_lowercase() && sentence.ends_with('.'), "{name}: {sentence}");
        }
    }
    assert!(FORMATS.iter().all(|&format| !codes(format).is_empty()), "a catalogue is empty");
}
