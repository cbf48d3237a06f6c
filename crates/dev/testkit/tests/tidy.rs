//! Style as a ratchet: files and functions must be split instead of growing.
//!
//! The scan understands just enough Rust (comments, strings, character literals) to count braces.

use std::fs;
use std::path::{Path, PathBuf};

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;

/// Crates that need `unsafe`. Their own documents state the reasons.
const MAY_BE_UNSAFE: [&str; 3] = ["capi", "linux", "wasm"];

pub(super) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().unwrap()
}

/// Returns the files of this repository with one of these endings, without build products.
pub(super) fn files(endings: &[&str]) -> Vec<(String, String)> {
    let root = workspace();
    let mut pending = vec![root.clone()];
    let mut files = Vec::new();
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let (path, name) = (entry.path(), entry.file_name().into_string().unwrap_or_default());
            if entry.file_type().unwrap().is_dir() {
                let skipped = name == "target" || (name.starts_with('.') && name != ".cargo");
                if !skipped && name != "corpus" {
                    pending.push(path);
                }
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                let relative = path.strip_prefix(&root).unwrap().display().to_string();
                files.push((relative, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(!files.is_empty(), "nothing ends in {endings:?} below {}", root.display());
    files.sort();
    files
}

fn assert_none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}

/// Blanks comments, strings and character literals, so that only code is left.
pub(super) fn code_only(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_end(bytes, at);
        for byte in &mut code[at..end.unwrap_or(at)] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end.unwrap_or(at + 1);
    }
    String::from_utf8(code).unwrap()
}

/// Returns the end of the comment or literal that starts at `at`, if there is one.
pub(super) fn literal_end(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at..];
    let until = |pattern: &[u8], from: usize| {
        let place = rest[from..].windows(pattern.len()).position(|window| window == pattern);
        place.map_or(bytes.len(), |place| at + from + place + pattern.len())
    };
    let in_word = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    match rest {
        [b'/', b'/', ..] => Some(until(b"\n", 2)),
        [b'/', b'*', ..] => Some(until(b"*/", 2)),
        [b'r', b'"' | b'#', ..] if !in_word || bytes[at - 1] == b'b' => {
            let hashes = rest[1..].iter().take_while(|&&byte| byte == b'#').count();
            if rest.get(1 + hashes) != Some(&b'"') {
                return None;
            }
            Some(until(&[b"\"".as_slice(), &vec![b'#'; hashes]].concat(), hashes + 2))
        }
        [b'"', ..] => Some(at + quoted_end(rest, b'"')),
        // A lifetime has no closing quote after one character.
        [b'\'', b'\\', ..] => Some(at + quoted_end(rest, b'\'')),
        [b'\'', first, ..] => {
            let width = match first {
                0xf0.. => 4,
                0xe0.. => 3,
                0xc0.. => 2,
                _ => 1,
            };
            (rest.get(1 + width) == Some(&b'\'')).then_some(at + width + 2)
        }
        _ => None,
    }
}

fn quoted_end(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// Returns the first line and the number of lines of each function with a body.
fn functions(code: &str) -> Vec<(usize, usize)> {
    let lines: Vec<&str> = code.lines().collect();
    let is_start = |line: &str| line.split(|c: char| !c.is_alphanumeric()).any(|word| word == "fn");
    let starts = (0..lines.len()).filter(|&line| is_start(lines[line]));
    starts.filter_map(|start| Some((start + 1, function_lines(&lines[start..])?))).collect()
}

/// Returns the number of lines up to the brace that closes the first one; `None` for a declaration or a type.
fn function_lines(lines: &[&str]) -> Option<usize> {
    let (mut depth, mut brackets) = (0_usize, 0_usize);
    for (number, line) in lines.iter().enumerate() {
        let from = if number == 0 { line.find("fn").unwrap_or(0) } else { 0 };
        for byte in line[from..].bytes() {
            match byte {
                b'(' | b'[' => brackets += 1,
                b')' | b']' => brackets = brackets.saturating_sub(1),
                b';' if depth == 0 && brackets == 0 => return None,
                b'{' => depth += 1,
                b'}' if depth == 1 => return Some(number + 1),
                b'}' => depth = depth.checked_sub(1)?,
                _ => {}
            }
        }
    }
    None
}

#[test]
fn files_and_functions_stay_small() {
    let mut found = Vec::new();
    for (path, text) in files(&[".rs"]) {
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            found.push(format!("{path}: {lines} lines"));
        }
        for (line, length) in functions(&code_only(&text)) {
            if length > FUNCTION_LINES_MAX {
                found.push(format!("{path}:{line}: a function of {length} lines"));
            }
        }
    }
    assert_none("too long", &found);
}

#[test]
fn libraries_forbid_unsafe_code() {
    let is_library = |path: &str| path.starts_with("crates/") && path.ends_with("/src/lib.rs");
    let exempt = |path: &str| MAY_BE_UNSAFE.iter().any(|name| path.split('/').nth(2) == Some(name));
    let found: Vec<_> = files(&["lib.rs"])
        .into_iter()
        .filter(|(path, text)| is_library(path) && !text.contains("#![forbid(unsafe_code)]"))
        .map(|(path, _)| path)
        .filter(|path| !exempt(path))
        .collect();
    assert_none("without #![forbid(unsafe_code)]", &found);
}

#[test]
fn nothing_is_left_unfinished() {
    let mut found = Vec::new();
    for (path, text) in files(&[".rs"]) {
        for (number, line) in code_only(&text).lines().enumerate() {
            for word in ["todo", "unimplemented", "dbg"] {
                if line.contains(&format!("{word}!(")) {
                    found.push(format!("{path}:{}: {word}!", number + 1));
                }
            }
        }
    }
    assert_none("left unfinished", &found);
}

#[test]
fn text_has_no_invisible_characters() {
    let bad = |c: char| {
        let is_invisible = matches!(c, '\u{a0}' | '\u{ad}' | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202f}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
        is_invisible || (c.is_control() && c != '\n')
    };
    let mut found = Vec::new();
    for (path, text) in files(&[".rs", ".toml", ".md"]) {
        for (number, line) in text.split('\n').enumerate() {
            let place = format!("{path}:{}", number + 1);
            if let Some(c) = line.chars().find(|&c| bad(c)) {
                found.push(format!("{place}: {}", c.escape_unicode()));
            }
            if path.ends_with(".rs") && line.ends_with(' ') {
                found.push(format!("{place}: space at the end"));
            }
        }
        if !text.is_empty() && !text.ends_with('\n') {
            found.push(format!("{path}: no newline at the end"));
        }
    }
    assert_none("untidy text", &found);
}

#[test]
fn dependencies_come_from_the_default_registry() {
    const DEFAULT: &str = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";
    let mut found = Vec::new();
    for (path, text) in files(&["Cargo.lock", "Cargo.toml", ".cargo/config.toml"]) {
        let is_lock = path.ends_with("Cargo.lock");
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            let names_another = if is_lock {
                line.starts_with("source = ") && line != DEFAULT
            } else {
                let key = |key: &str| line.contains(&format!("{key} = "));
                line.starts_with("[source")
                    || line.starts_with("[registries")
                    || ["registry", "registry-index", "git"].into_iter().any(key)
            };
            if names_another {
                found.push(format!("{path}:{}: {line}", number + 1));
            }
        }
    }
    assert!(!workspace().join(".cargo/config").exists());
    assert_none("not from crates.io", &found);
}

/// Each test program links the crates below it, which accounts for most of the compile time of tests.
#[test]
fn a_crate_has_one_test_program_and_every_test_file_belongs_to_one() {
    // The exception: a program with its own allocator, which applies to the whole program.
    const COUNTS: &str = "name = \"allocations\"";
    let texts = files(&[".rs", "Cargo.toml"]);
    let text_of = |path: &str| texts.iter().find(|(found, _)| found == path).map(|(_, text)| text);
    let mut found = Vec::new();
    for (path, manifest) in texts.iter().filter(|(path, _)| path.ends_with("/Cargo.toml")) {
        let tests = format!("{}/tests/", path.trim_end_matches("/Cargo.toml"));
        if !texts.iter().any(|(file, _)| file.starts_with(&tests)) {
            continue;
        }
        let programs: Vec<_> = manifest.split("[[test]]\n").skip(1).collect();
        let others = programs.iter().filter(|program| !program.starts_with(COUNTS)).count();
        if !manifest.contains("autotests = false") || others != 1 {
            found.push(format!("{path}: not one test program"));
            continue;
        }
        let main = text_of(&format!("{tests}main.rs")).expect("the program of all tests");
        for (file, _) in &texts {
            let Some(name) = file.strip_prefix(&tests).and_then(|rest| rest.strip_suffix(".rs"))
            else {
                continue;
            };
            let name = name.strip_suffix("/mod").or(name.strip_suffix("/main")).unwrap_or(name);
            let is_a_program =
                programs.iter().any(|program| program.starts_with(&format!("name = \"{name}\"\n")));
            let is_part = main.contains(&format!("mod {name};\n"));
            if name != "main" && !name.contains('/') && !is_a_program && !is_part {
                found.push(file.clone());
            }
        }
    }
    assert_none("test files of no program, or too many programs", &found);
}

/// Returns the quoted names in a text that follow one of these openings of a call, with their lines.
fn named<'a>(text: &'a str, openings: &[&str]) -> Vec<(usize, &'a str)> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for opening in openings {
            let calls = line.split(opening).skip(1);
            found.extend(calls.filter_map(|rest| Some((number + 1, rest.split_once('"')?.0))));
        }
    }
    found
}

#[test]
fn tools_of_tests_are_in_the_table_of_requirements() {
    let mut found = Vec::new();
    for (path, text) in files(&[".rs"]) {
        for (line, name) in named(&text, &["Tool(\"", "Version(\""]) {
            if !testkit::is_known_program(name) && !name.starts_with("no-such-tool") {
                found.push(format!("{path}:{line}: {name}"));
            }
        }
    }
    assert_none("not in crates/dev/testkit/src/requirement.rs", &found);
}

/// A program started by name may be the wrong one: `PATH` lacks the tools of the project's scripts and `sbin`, and any
/// version is accepted.
#[test]
fn tests_find_programs_as_they_ask_for_them() {
    // Programs of the base system are the same everywhere.
    const ANYWHERE: [&str; 7] = ["sh", "bash", "cp", "rm", "touch", "sync", "sleep"];
    let mut found = Vec::new();
    for (path, text) in files(&[".rs"]) {
        // The program itself does not need our tools, and neither do comparisons of libraries.
        let is_test = path.starts_with("crates/") && path.contains("tests");
        for (line, name) in named(&text, &["Command::new(\""]).into_iter().filter(|_| is_test) {
            if !ANYWHERE.contains(&name)
                && !name.starts_with('/')
                && testkit::is_known_program(name)
            {
                found.push(format!("{path}:{line}: {name}, use testkit::command"));
            }
        }
    }
    assert_none("started by name", &found);
}

/// The attribute `test` of `testkit` converts a missing judge into a skipped test.
#[test]
fn every_program_that_may_ask_judges_takes_their_attribute_for_tests() {
    let texts = files(&[".rs", "Cargo.toml"]);
    let mut found = Vec::new();
    for (path, manifest) in texts.iter().filter(|(path, _)| path.ends_with("/Cargo.toml")) {
        let folder = path.trim_end_matches("Cargo.toml");
        let is_user = |line: &str| line.starts_with("testkit = ") || line.starts_with("testkit.");
        if !manifest.lines().any(is_user) {
            continue;
        }
        let asks = |file: &str, text: &str| {
            file.starts_with(&format!("{folder}src/"))
                && text.contains("testkit::")
                && text.contains("#[test]")
        };
        let unit_tests = texts.iter().any(|(file, text)| asks(file, text));
        let mut roots =
            vec![format!("{folder}tests/main.rs"), format!("{folder}tests/allocations/main.rs")];
        roots.extend(
            ["lib.rs", "main.rs"]
                .map(|name| format!("{folder}src/{name}"))
                .into_iter()
                .filter(|_| unit_tests),
        );
        for (root, text) in texts.iter().filter(|(file, _)| roots.contains(file)) {
            let uses = text.contains("#[macro_use]\nextern crate testkit;");
            if !uses && text.contains("mod ") {
                found.push(format!("{root}: begin with #[macro_use] extern crate testkit;"));
            }
        }
    }
    assert_none("tests that a missing judge fails", &found);
}

#[test]
fn the_scan_measures_functions() {
    let text = "fn a() {\n    let x = '{';\n    let y = \"}}\"; // }\n    if x { y }\n}\n\
        trait T {\n    fn b(&self) -> [u8; 2];\n    fn c<'a>(f: fn(u8)) -> &'a str { r#\"\"{\"# }\n}\n";
    let found = functions(&code_only(text));
    assert_eq!(found, [(1, 5), (8, 1)]);
}
