//! Documents: links have existing targets, and the table of contents lists every page.

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
