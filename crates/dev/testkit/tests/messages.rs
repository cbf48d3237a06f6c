//! The list of all messages in docs/messages.txt, for reviewers: string literals of at least three words, by crate and
//! file. `DISKWRIGHT_WRITE_DOCS=1` writes it.

use super::tidy::{files, literal_end, workspace};
use std::collections::HashSet;
use std::fmt::Write;

const VARIABLE: &str = "DISKWRIGHT_WRITE_DOCS";

/// Crates whose messages only developers read.
const TOOLS: [&str; 4] = ["everywhere", "generate", "testkit", "testkit-macros"];

const WORDS_MIN: usize = 3;

/// Longer literals are help texts.
const CHARACTERS_MAX: usize = 400;

/// Splits the path of a source file into its crate and the path below `src`. Returns `None` for tests and other files.
fn place(path: &str) -> Option<(&str, &str)> {
    let (home, file) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let name = home.rsplit('/').next()?;
    let is_test = file.split('/').any(|part| part == "tests") || file.ends_with("tests.rs");
    (!is_test && !TOOLS.contains(&name)).then_some((name, file))
}

/// Returns the source before the tests at its end.
fn without_tests(text: &str) -> &str {
    let end = text.match_indices("#[cfg(test)]\n").map(|(at, _)| at);
    end.into_iter()
        .find(|&at| text[at..].lines().nth(1).is_some_and(|line| line.ends_with('{')))
        .map_or(text, |at| &text[..at])
}

/// Joins the lines of a literal.
fn joined(literal: &str) -> String {
    let mut parts = literal.split("\\\n");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.trim_start())
}

fn is_message(text: &str) -> bool {
    let is_word = |word: &&str| word.contains(char::is_alphabetic);
    text.split_whitespace().filter(is_word).count() >= WORDS_MIN
        && text.chars().count() <= CHARACTERS_MAX
        && !text.contains('\n')
}

fn messages(text: &str) -> Vec<String> {
    let text = without_tests(text);
    let bytes = text.as_bytes();
    let (mut found, mut known) = (Vec::new(), HashSet::new());
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_end(bytes, at);
        if let Some(end) = end.filter(|&end| bytes[at] == b'"' && end >= at + 2) {
            let message = joined(&text[at + 1..end - 1]);
            let is_panic = text[..at].trim_end().ends_with("expect(");
            if is_message(&message) && !is_panic && known.insert(message.clone()) {
                found.push(message);
            }
        }
        at = end.unwrap_or(at + 1);
    }
    found
}

fn list() -> String {
    let mut text = format!(
        "Messages in the source, by crate and file. Written by\n\
         {VARIABLE}=1 cargo test --workspace --test testkit messages\n"
    );
    let sources = files(&[".rs"]);
    let mut places: Vec<_> = sources
        .iter()
        .filter_map(|(path, source)| place(path).map(|place| (place, source)))
        .collect();
    places.sort_by_key(|(place, _)| *place);
    let mut last = "";
    for ((name, file), source) in places {
        let messages = messages(source);
        if messages.is_empty() {
            continue;
        }
        if name != last {
            writeln!(text, "\n# {name}").unwrap();
            last = name;
        }
        for message in messages {
            writeln!(text, "{file}: {message}").unwrap();
        }
    }
    text
}

#[test]
fn the_list_of_messages_is_complete() {
    let page = workspace().join("docs/messages.txt");
    let expected = list();
    if std::env::var_os(VARIABLE).is_some() {
        std::fs::write(&page, expected).unwrap();
        return;
    }
    let found = std::fs::read_to_string(&page).unwrap();
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<HashSet<String>>();
    let (listed, current) = (lines(&found), lines(&expected));
    let missing = current.difference(&listed).take(10);
    let outdated = listed.difference(&current).take(10);
    assert!(
        found == expected,
        "docs/messages.txt is out of date: write it with {VARIABLE}=1\nmissing: {:#?}\noutdated: {:#?}",
        missing.collect::<Vec<_>>(),
        outdated.collect::<Vec<_>>()
    );
}

/// Options that programs name in their own words (`vfs::hint`).
const SETTINGS: [&str; 6] = [
    "--allow-data-files",
    "--log-device",
    "--norecovery",
    "--offset",
    "--partition",
    "--rt-device",
];

/// A literal option in a library message would be wrong in programs that have another option, or none.
#[test]
fn libraries_name_options_by_settings() {
    let is_library = |path: &str| {
        let homes = ["crates/core/", "crates/formats/", "crates/io/", "crates/front/diskwright/"];
        homes.iter().any(|home| path.starts_with(home)) && place(path).is_some()
    };
    for (path, source) in files(&[".rs"]).iter().filter(|(path, _)| is_library(path)) {
        for message in messages(source) {
            let found = SETTINGS.iter().find(|&&option| {
                message.match_indices(option).any(|(at, _)| {
                    !message[at + option.len()..]
                        .starts_with(|c: char| c == '-' || c.is_alphanumeric())
                })
            });
            assert_eq!(found, None, "{path}: use vfs::hint in {message:?}");
        }
    }
}

#[test]
fn messages_are_found_in_source() {
    let source = "const A: &str = \"one \\\n    two three\"; // \"not a message here\"\n\
                  let b = c.expect(\"it is always there\"); let d = \"two words\";\n\
                  let e = \"{what} of inode {ino} is missing\";\n\
                  #[cfg(test)]\nmod tests {\n    const F: &str = \"words of a test\";\n}\n";
    assert_eq!(messages(source), ["one two three", "{what} of inode {ino} is missing"]);
}
