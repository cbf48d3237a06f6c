//! The header equals the one generated from the sources.

use std::fs;
use std::path::Path;

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn generated() -> String {
    let config = cbindgen::Config::from_file(here().join("cbindgen.toml")).unwrap();
    let bindings = cbindgen::Builder::new().with_crate(here()).with_config(config).generate();
    let mut header = Vec::new();
    bindings.unwrap().write(&mut header);
    String::from_utf8(header).unwrap()
}

/// `DISKWRIGHT_WRITE_DOCS=1` writes it.
#[test]
fn the_header_in_the_tree_is_that_of_the_sources() {
    let path = here().join("include/diskwright.h");
    let header = generated();
    if std::env::var_os("DISKWRIGHT_WRITE_DOCS").is_some() {
        fs::write(&path, &header).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap();
    assert!(
        kept == header,
        "make it again: DISKWRIGHT_WRITE_DOCS=1 cargo test -p diskwright-capi header"
    );
}

/// Returns the names of exported functions.
fn exported() -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(here().join("src")).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        let functions = text.split("#[unsafe(no_mangle)]").skip(1);
        names.extend(functions.filter_map(|rest| {
            let (_, rest) = rest.split_once("fn ")?;
            rest.split_once('(').map(|(name, _)| name.to_owned())
        }));
    }
    names
}

#[test]
fn every_function_is_in_the_header_with_what_it_does() {
    let header = generated();
    let names = exported();
    assert!(names.len() > 60, "{}", names.len());
    for name in names {
        let at = header.find(&format!(" {name}(")).or_else(|| header.find(&format!("*{name}(")));
        let before = &header[..at.unwrap_or_else(|| panic!("{name} is not in the header"))];
        let above = before.lines().rev().nth(1).unwrap_or_default();
        assert!(above.trim_end().ends_with("*/"), "{name} has no comment: {above}");
    }
}

/// The guide mentions every function at least once.
#[test]
fn the_guide_names_every_function() {
    let guide = fs::read_to_string(here().join("../../../docs/c.md")).unwrap();
    let missing: Vec<_> = exported().into_iter().filter(|name| !guide.contains(name)).collect();
    assert!(missing.is_empty(), "not in docs/c.md: {missing:?}");
}

/// Another test runs the example, so the text in the guide works.
#[test]
fn the_guide_shows_the_example() {
    let guide = fs::read_to_string(here().join("../../../docs/c.md")).unwrap();
    let example = fs::read_to_string(here().join("examples/names.c")).unwrap();
    assert!(
        guide.contains(&format!("```c\n{example}```\n")),
        "examples/names.c is not in docs/c.md"
    );
}
