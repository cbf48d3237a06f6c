//! Plain words as a ratchet: comments and documents that a newcomer does not understand become fewer.
//!
//! Counts blocks that open with a relative clause, phrases of the project's old dialect, and sentences of more than 32 words,
//! per 10,000 words. docs/STYLE.md has the rules. A limit only falls: when a test says that a count is far below its limit,
//! lower the limit.

use super::tidy::files;
use std::collections::BTreeMap;

/// Maximum findings per 10,000 words of each crate and of documents.
const LIMITS: [(&str, usize); 20] = [
    ("bench", 15),
    ("capi", 26),
    ("cli", 9),
    ("disk", 16),
    ("diskwright", 18),
    ("documents", 10),
    ("dropin", 11),
    ("engine", 6),
    ("ext4", 12),
    ("fuse", 19),
    ("import", 8),
    ("layers", 4),
    ("linux", 15),
    ("operations", 18),
    ("python", 8),
    ("remote", 5),
    ("testkit", 19),
    ("vfs", 7),
    ("wasm", 11),
    ("xfs", 14),
];

/// Margin by which a count may be below its limit before the limit must be lowered.
const SLACK: usize = 25;

const SENTENCE_WORDS_MAX: usize = 32;

/// Words that do not open a sentence.
const OPENINGS: [&str; 30] = [
    "What",
    "Whatever",
    "Who",
    "Whoever",
    "Whose",
    "Where",
    "Wherever",
    "How many",
    "How much",
    "How long",
    "That",
    "Of",
    "As",
    "By",
    "Most",
    "Fewest",
    "Least",
    "No one",
    "Nobody",
    "Somebody",
    "Those",
    "None",
    "Nothing",
    "Also",
    "In place of",
    "Though",
    "Whether",
    "Wherefore",
    "Hence",
    "Whence",
];

/// Phrases that have a standard word. Alternatives of one word are separated by `|`; an empty alternative may be absent.
const PHRASES: [&str; 27] = [
    "whoever",
    "what|whatever is|was|are|were|has|had|can|may|must|come|comes|go|goes|lies|waits|stands|belongs|remains",
    "who is|was|has|had|may|must|wants|reads|writes|holds|opens|changes|asks|waits|closes|hears",
    "anew",
    "so many",
    "as it|they lie|lies",
    "nobody",
    "somebody",
    "is|are|was|were told",
    "tell|tells what|whether|which|who|how",
    "is content",
    "make|makes way",
    "hear|hears of",
    "bear|bears a|the|no|its",
    "for want of",
    "in place of",
    "beside",
    "of its own",
    "mend|mends|mended|mending",
    "stand|stands for",
    "at the most",
    "there|it is none that",
    "is|are no",
    "meanwhile",
    "it is for",
    "hence",
    "by|of which",
];

/// Findings and words of one part of the tree.
#[derive(Default)]
struct Count {
    findings: Vec<String>,
    words: usize,
}

impl Count {
    fn per_10_000(&self) -> usize {
        self.findings.len() * 10_000 / self.words.max(1)
    }
}

/// Replaces code in backticks by `x`, because code is not prose.
fn prose(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    // A backtick without its partner is a character like others.
    let paired = parts.len() - usize::from(parts.len().is_multiple_of(2));
    let mut prose: Vec<&str> = parts[..paired]
        .iter()
        .enumerate()
        .map(|(n, part)| if n % 2 == 0 { *part } else { "x" })
        .collect();
    prose.extend(&parts[paired..]);
    prose.join("`")
}

/// The words of a text in lower case, without punctuation. Punctuation between two words separates phrases.
fn words(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for word in text.split_whitespace() {
        let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
        found.push(bare.to_lowercase());
        if word.ends_with(['.', ',', ';', ':', ')', '?']) {
            found.push(String::new());
        }
    }
    found
}

fn contains(words: &[String], phrase: &str) -> bool {
    let phrase: Vec<Vec<&str>> = phrase.split(' ').map(|word| word.split('|').collect()).collect();
    words.windows(phrase.len()).any(|window| {
        window.iter().zip(&phrase).all(|(word, wanted)| wanted.contains(&word.as_str()))
    })
}

fn count_block(place: &str, text: &str, count: &mut Count) {
    count.words += text.split_whitespace().count();
    let prose = prose(text);
    let mut note = |reason: &str| count.findings.push(format!("{place}: {reason}: {text:.100}"));
    let opens = |opening: &&&str| {
        prose
            .strip_prefix(**opening)
            .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
    };
    if let Some(opening) = OPENINGS.iter().find(opens) {
        note(&format!("opens with “{opening}”"));
    }
    let words = words(&prose);
    for phrase in PHRASES.iter().filter(|phrase| contains(&words, phrase)) {
        note(&format!("“{phrase}”"));
    }
    let mut length = 0;
    for word in prose.split_whitespace() {
        length += 1;
        if word.ends_with(['.', '!', '?', ':']) {
            length = 0;
        }
        if length == SENTENCE_WORDS_MAX + 1 {
            note("a long sentence");
            break;
        }
    }
}

/// The comments of Rust source, or the paragraphs, items and table cells of a document, with their line numbers.
fn blocks(path: &str, text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let (mut open, mut fenced) = (false, false);
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let words = if path.ends_with(".md") {
            line
        } else {
            let comment = line.strip_prefix("//").map(|rest| rest.trim_start_matches(['/', '!']));
            let Some(comment) = comment else {
                (open, fenced) = (false, false);
                continue;
            };
            comment.trim()
        };
        if words.starts_with("```") {
            fenced = !fenced;
            open = false;
            continue;
        }
        let apart = words.is_empty() || words.starts_with(['#', '|']) || words.starts_with("<!--");
        if fenced || apart {
            open = false;
            let cells = words.strip_prefix('|').unwrap_or_default().split('|').map(str::trim);
            let long = |cell: &&str| cell.split_whitespace().count() > 4;
            found.extend(
                cells.filter(long).filter(|_| !fenced).map(|cell| (index + 1, cell.to_owned())),
            );
            continue;
        }
        let item = ["- ", "* ", "1. "].into_iter().find_map(|mark| words.strip_prefix(mark));
        match found.last_mut() {
            Some((_, block)) if open && item.is_none() => *block += &format!(" {words}"),
            _ => found.push((index + 1, item.unwrap_or(words).to_owned())),
        }
        open = true;
    }
    found
}

fn part(path: &str) -> String {
    let mut names = path.split('/');
    match (names.next(), names.nth(1)) {
        (Some("crates"), Some(name)) if path.ends_with(".rs") => name.to_owned(),
        _ => "documents".to_owned(),
    }
}

#[test]
fn comments_and_documents_get_plainer() {
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    for (path, text) in files(&[".rs", ".md"]) {
        // A list of changes is written in their order, by many.
        if path == "CHANGELOG.md" || path.starts_with("fuzz/") {
            continue;
        }
        let count = counts.entry(part(&path)).or_default();
        for (line, block) in blocks(&path, &text) {
            count_block(&format!("{path}:{line}"), &block, count);
        }
    }
    let limits = BTreeMap::from(LIMITS);
    let mut wrong = Vec::new();
    for (name, count) in &counts {
        let (rate, limit) = (count.per_10_000(), limits.get(name.as_str()).copied().unwrap_or(0));
        if rate > limit {
            wrong.push(format!(
                "{name}: {rate} findings per 10,000 words, limit {limit}. The last:"
            ));
            wrong.extend(count.findings.iter().rev().take(5).cloned());
        } else if limit > rate + SLACK {
            wrong.push(format!(
                "{name}: {rate} findings per 10,000 words; lower its limit of {limit}"
            ));
        }
    }
    wrong.extend(
        limits
            .keys()
            .filter(|name| !counts.contains_key(**name))
            .map(|name| format!("{name}: no such part")),
    );
    assert!(wrong.is_empty(), "docs/STYLE.md has the rules:\n{}", wrong.join("\n"));
}

#[test]
fn the_counter_finds_what_it_should() {
    let long = "word ".repeat(33);
    let cases = [
        ("//! Whoever reads this.", 2),
        ("/// Returns the block map of the inode.", 0),
        ("/// Returns the block, anew.\n/// It lies beside.", 2),
        ("let a = 1; // Nobody.", 0),
        ("/// ```\n/// What is this\n/// ```", 0),
        ("/// `what is` is code.", 0),
        (&format!("/// {long}."), 1),
    ];
    for (text, findings) in cases {
        let mut count = Count::default();
        for (_, block) in blocks("a.rs", text) {
            count_block("a.rs", &block, &mut count);
        }
        assert_eq!(count.findings.len(), findings, "{text}: {:?}", count.findings);
    }
    let table =
        blocks("a.md", "# Nobody\n| a b | What is told to nobody here |\n- one\n  two\n- three");
    assert_eq!(
        table,
        [(2, "What is told to nobody here".into()), (3, "one two".into()), (5, "three".into())]
    );
}
