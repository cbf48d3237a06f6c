//! The first example of each page of `docs/`.
//!
//! Shell commands run as printed, in the directory of the recipes with an image of it, `root.img`. The output that a page
//! shows is compared. Commands for a checkout build or measure for minutes, so only their names are checked.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use testkit::WebServer;

use super::cookbook::{kitchen, needs, shell};

/// Examples in other languages: the language, and the file that runs them.
const RUNNERS: [(&str, &str); 4] = [
    ("c", "scripts/test-capi"),
    ("js", "npm/test/images.test.mjs"),
    ("python", "python/tests/test_examples.py"),
    ("rust", "crates/front/diskwright/src/lib.rs"),
];

/// Printed before the output of each command.
const MARK: &str = "\u{1}\n";

/// The first example of a page.
struct Example<'t> {
    /// The text above it.
    purpose: &'t str,
    language: &'t str,
    text: &'t str,
}

/// A command of an example and the output that the page shows.
struct Step<'t> {
    command: &'t str,
    printed: Vec<&'t str>,
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// Returns the paths and texts of all pages except the table of contents.
fn pages() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for folder in ["docs", "docs/design"] {
        for entry in fs::read_dir(workspace().join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".md") && name != "SUMMARY.md" {
                let text = fs::read_to_string(workspace().join(folder).join(&name)).unwrap();
                found.push((format!("{folder}/{name}"), text));
            }
        }
    }
    found.sort();
    found
}

fn example(page: &str) -> Option<Example<'_>> {
    let (purpose, rest) = page.split_once("\n```")?;
    let (language, rest) = rest.split_once('\n')?;
    let (text, _) = rest.split_once("\n```")?;
    Some(Example { purpose, language, text })
}

/// Returns the commands of an example in `console` or `sh`.
fn steps<'t>(example: &Example<'t>) -> Vec<Step<'t>> {
    let mut steps = Vec::<Step<'t>>::new();
    for line in example.text.lines() {
        let command = match example.language {
            "console" => line.strip_prefix("$ "),
            _ => Some(line),
        };
        match (command, steps.last_mut()) {
            (Some(command), _) => steps.push(Step { command, printed: Vec::new() }),
            (None, Some(step)) => step.printed.push(line),
            (None, None) => panic!("output without a command: {line}"),
        }
    }
    steps
}

/// Returns the words of a command for a checkout, without variables and the comment.
fn checkout_words(command: &str) -> Option<Vec<&str>> {
    let words = command.split(" #").next()?.split_whitespace();
    let words: Vec<&str> = words.skip_while(|word| *word == "sudo" || word.contains('=')).collect();
    let first = words.first()?;
    let is_checkout =
        ["cargo", "diskwright-bench"].contains(first) || first.starts_with("scripts/");
    is_checkout.then_some(words)
}

/// Returns whether a test program has a module or a function with this name.
fn has_test(name: &str, folder: &Path) -> bool {
    fs::read_dir(folder).into_iter().flatten().map(Result::unwrap).any(|entry| {
        let path = entry.path();
        let is_named = path.file_stem().is_some_and(|stem| stem == name);
        let has_function =
            || fs::read_to_string(&path).is_ok_and(|text| text.contains(&format!("fn {name}(")));
        is_named || if path.is_dir() { has_test(name, &path) } else { has_function() }
    })
}

/// Returns the folders of all crates.
fn crates() -> Vec<PathBuf> {
    let list = |folder: &Path| -> Vec<PathBuf> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    list(&workspace().join("crates"))
        .iter()
        .filter(|path| path.is_dir())
        .flat_map(|path| list(path))
        .collect()
}

/// Returns the part of a command for a checkout that does not exist.
fn unknown<'w>(words: &[&'w str]) -> Option<&'w str> {
    let after = |flag: &str| Some(words[words.iter().position(|word| *word == flag)? + 1]);
    if words[0].starts_with("scripts/") && !workspace().join(words[0]).is_file() {
        return Some(words[0]);
    }
    let manifests: Vec<String> = crates()
        .iter()
        .filter_map(|folder| fs::read_to_string(folder.join("Cargo.toml")).ok())
        .collect();
    for name in [after("-p"), after("--test")].into_iter().flatten() {
        let line = format!("name = \"{name}\"");
        if !manifests.iter().any(|manifest| manifest.contains(&line)) {
            return Some(name);
        }
    }
    let filter = words.last().filter(|_| after("--test").is_some())?;
    let name = filter.trim_end_matches("::").rsplit("::").next()?;
    let is_there = crates().iter().any(|folder| has_test(name, &folder.join("tests")));
    (!is_there).then_some(*filter)
}

/// Returns why the example of a page is missing, or is run by nothing.
fn gap(page: &str, text: &str) -> Option<String> {
    let Some(example) = example(text) else { return Some("no example".to_owned()) };
    let is_recipe = page == "docs/cookbook.md";
    if example.purpose.contains("\n## ") && !is_recipe {
        return Some("the first example follows a heading".to_owned());
    }
    if !example.purpose.lines().skip(1).any(|line| !line.is_empty()) {
        return Some("no purpose above the example".to_owned());
    }
    if let Some((_, runner)) = RUNNERS.iter().find(|(language, _)| *language == example.language) {
        let program = fs::read_to_string(workspace().join(runner)).unwrap();
        return (!program.contains(page)).then(|| format!("{runner} does not run it"));
    }
    if !["console", "sh"].contains(&example.language) {
        return Some(format!("nothing runs examples in {:?}", example.language));
    }
    let commands = steps(&example).into_iter().filter_map(|step| checkout_words(step.command));
    commands.filter_map(|words| unknown(&words)).next().map(|name| format!("no {name}"))
}

#[test]
fn each_page_begins_with_its_purpose_and_an_example_that_is_run() {
    let pages = pages();
    let gaps =
        pages.iter().filter_map(|(page, text)| Some(format!("{page}: {}", gap(page, text)?)));
    let gaps: Vec<String> = gaps.collect();
    assert!(gaps.is_empty(), "{}", gaps.join("\n"));
}

/// Runs the example of a page. Returns a description of a failure.
fn run(page: &str, text: &str) -> Option<String> {
    let example = example(text).filter(|example| ["console", "sh"].contains(&example.language))?;
    let steps = steps(&example);
    let is_checkout = checkout_words(steps.first()?.command).is_some();
    let is_anywhere = ["qcow2:", ".zst", "s3:"].iter().any(|place| example.text.contains(place));
    if is_checkout || is_anywhere && !cfg!(feature = "anywhere") {
        return None;
    }
    if !testkit::satisfied(&format!("pages::{page}"), &needs(example.text)) {
        return None;
    }
    let home = testkit::scratch();
    kitchen(home.path());
    let build = "diskwright build rootfs root.img --size 64M --label root";
    // Recipes make their own image.
    if page != "docs/cookbook.md" {
        assert!(shell(home.path(), build).status.success());
    }
    let bucket = WebServer::new();
    let exports = bucket.s3_environment().map(|(name, value)| format!("export {name}={value}\n"));
    let exports = exports.concat();
    let marked: Vec<String> =
        steps.iter().map(|step| format!("printf '\\001\\n'\n{}\n", step.command)).collect();
    let output = shell(home.path(), &format!("{exports}{}", marked.concat()));
    let messages = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Some(format!("{page}: {}: {messages}", output.status));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let printed = text.split(MARK).skip(1).map(str::trim_end);
    let wrong = steps.iter().zip(printed).find(|(step, printed)| {
        !step.printed.is_empty() && step.printed.join("\n").trim_end() != *printed
    });
    wrong.map(|(step, printed)| format!("{page}: {} printed:\n{printed}\n{messages}", step.command))
}

#[test]
fn the_first_examples_of_pages_print_what_the_pages_show() {
    let pages = pages();
    let failures: Vec<String> = thread::scope(|scope| {
        let parts = pages.chunks(pages.len().div_ceil(4));
        let threads: Vec<_> = parts
            .map(|part| {
                scope.spawn(|| {
                    part.iter().filter_map(|(page, text)| run(page, text)).collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
