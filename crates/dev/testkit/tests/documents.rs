//! Documents: links have existing targets, the table of contents lists every page, each feature names its
//! tests, and each published crate has a page with an example.

use super::tidy::{files, workspace};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Returns the targets of Markdown links outside of code.
fn links(text: &str) -> Vec<String> {
    let mut fenced = false;
    let mut found = Vec::new();
    for line in text.lines() {
        fenced ^= line.trim_start().starts_with("```");
        let mut rest = if fenced { "" } else { line };
        while let Some(start) = rest.find("](") {
            rest = &rest[start + 2..];
            let Some(end) = rest.find(')') else { break };
            found.push(rest[..end].to_owned());
        }
    }
    found
}

/// Returns the anchors of a page: its headings as GitHub and mdBook name them, and explicit anchors.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut fenced = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        fenced ^= line.trim_start().starts_with("```");
        if !fenced && line.starts_with('#') {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept =
                title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            found.insert(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
        }
        for part in line.split("<a name=\"").skip(1) {
            found.extend(part.split_once('"').map(|(name, _)| name.to_owned()));
        }
    }
    found
}

#[test]
fn links_of_documents_lead_to_files_and_headings() {
    let mut broken = Vec::new();
    for (path, text) in files(&[".md"]) {
        for link in links(&text).into_iter().filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let page = workspace().join(&path);
            let target =
                if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let headings = || anchors(&fs::read_to_string(&target).unwrap());
            if !target.exists() || !anchor.is_empty() && !headings().contains(anchor) {
                broken.push(format!("{path}: {link}"));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

#[test]
fn the_table_of_contents_lists_every_page_once() {
    let summary = fs::read_to_string(workspace().join("docs/SUMMARY.md")).unwrap();
    let mut listed = links(&summary);
    listed.sort();
    let pages = files(&[".md"]).into_iter().filter_map(|(path, _)| {
        let page = Path::new(&path).strip_prefix("docs").ok()?.to_str()?.to_owned();
        (page != "SUMMARY.md").then_some(page)
    });
    let mut pages: Vec<String> = pages.collect();
    pages.extend(["README.md", "SECURITY.md", "CONTRIBUTING.md"].map(|page| format!("../{page}")));
    pages.sort();
    assert_eq!(listed, pages);
}

/// Rows of `docs/features.md` without a test. The limit only falls.
const WITHOUT_TEST_MAX: usize = 3;

/// Returns the cells of each row of the tables with a column "Proof".
fn feature_rows(text: &str) -> Vec<Vec<&str>> {
    let mut is_inside = false;
    let mut rows = Vec::new();
    for line in text.lines() {
        if !line.starts_with('|') {
            is_inside = false;
        } else if line.contains("| Proof |") {
            is_inside = true;
        } else if is_inside && !line.starts_with("|---") {
            rows.push(line[1..].trim_end_matches('|').split('|').map(str::trim).collect());
        }
    }
    rows
}

/// Returns the names and files of the tests that a cell links to, or why one cannot be found.
fn proofs(cell: &str) -> Result<Vec<(&str, &str)>, String> {
    let link = |part: &'_ str| -> Option<(usize, usize, usize)> {
        let (name, file) = (part.find("[`")? + 2, part.find("`](")?);
        Some((name, file, part[file..].find(')')? + file))
    };
    let mut found = Vec::new();
    for part in cell.split(", ") {
        let (name, file, end) = link(part).ok_or_else(|| format!("no link to a test: {part}"))?;
        found.push((&part[name..file], &part[file + 3..end]));
    }
    Ok(found)
}

/// Returns whether a source file has a test function with this name.
fn has_test(source: &str, name: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let head = format!("fn {name}()");
    lines.iter().enumerate().any(|(index, line)| {
        let above = lines[..index].iter().rev().take_while(|line| line.starts_with("#["));
        line.starts_with(&head) && above.into_iter().any(|line| *line == "#[test]")
    })
}

#[test]
fn each_feature_names_its_state_and_tests_that_exist() {
    let text = fs::read_to_string(workspace().join("docs/features.md")).unwrap();
    let rows = feature_rows(&text);
    assert!(rows.len() > 50, "only {} rows were found", rows.len());
    let (mut wrong, mut without_test) = (Vec::new(), 0);
    for row in rows {
        let [feature, format, state, since, proof, way] = row[..] else {
            wrong.push(format!("not six columns: {}", row.join(" | ")));
            continue;
        };
        let name = format!("{feature} ({format})");
        let since_is_version = since.split('.').all(|part| part.parse::<u32>().is_ok());
        if !["stable", "limited", "refused"].contains(&state) || !since_is_version {
            wrong.push(format!("{name}: state {state:?}, since {since:?}"));
        }
        if state != "stable" && way.is_empty() {
            wrong.push(format!("{name}: neither limits nor another way"));
        }
        if proof == "no test" {
            without_test += 1;
            continue;
        }
        for (test, file) in proofs(proof).unwrap_or_else(|error| panic!("{name}: {error}")) {
            let source = fs::read_to_string(workspace().join("docs").join(file));
            if !source.is_ok_and(|source| has_test(&source, test)) {
                wrong.push(format!("{name}: no test {test} in {file}"));
            }
        }
    }
    assert!(wrong.is_empty(), "wrong rows of docs/features.md:\n{}", wrong.join("\n"));
    assert_eq!(without_test, WITHOUT_TEST_MAX, "rows without a test; the limit only falls");
}

/// Returns the value of a key of the first section of a manifest.
fn value<'t>(manifest: &'t str, key: &str) -> Option<&'t str> {
    let head = manifest.split("\n[").next().unwrap_or_default();
    let line = head.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "))?;
    Some(line.trim_matches('"'))
}

#[test]
fn published_crates_have_metadata_and_a_page_with_an_example() {
    let mut wrong = Vec::new();
    for (path, manifest) in files(&["Cargo.toml"]) {
        let is_published = value(&manifest, "publish") != Some("false");
        if !path.starts_with("crates/") || !is_published {
            continue;
        }
        for key in ["description", "documentation", "keywords", "categories"] {
            if value(&manifest, key).is_none() {
                wrong.push(format!("{path}: no {key}"));
            }
        }
        let folder = workspace().join(&path).parent().unwrap().to_owned();
        let page = value(&manifest, "readme").map(|page| fs::read_to_string(folder.join(page)));
        if !page.is_some_and(|page| {
            page.is_ok_and(|text| text.contains("```rust\n") || text.contains("```sh\n"))
        }) {
            wrong.push(format!("{path}: no readme with an example"));
        }
    }
    assert!(wrong.is_empty(), "incomplete metadata:\n{}", wrong.join("\n"));
}

#[test]
fn documents_name_the_oldest_supported_rust() {
    let read = |path: &str| fs::read_to_string(workspace().join(path)).unwrap();
    let oldest = |path: &str| {
        let text = read(path);
        let line = text.lines().find_map(|line| line.strip_prefix("rust-version = "));
        format!("Rust {}", line.unwrap().trim_matches('"'))
    };
    let (programs, library) = (oldest("Cargo.toml"), oldest("crates/front/diskwright/Cargo.toml"));
    for (page, versions) in [
        ("README.md", vec![&programs]),
        ("CONTRIBUTING.md", vec![&programs]),
        ("docs/development.md", vec![&programs, &library]),
        ("docs/library.md", vec![&programs, &library]),
    ] {
        for version in versions {
            assert!(read(page).contains(version), "{page} does not name {version}");
        }
    }
}
