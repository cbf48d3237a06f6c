//! Corrected sources, manifests and file contexts.

mod contexts;
mod manifests;
mod streams;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use import::correct::{
    AttributeChange, Choice, Corrected, CorrectionOptions, CorrectionReport, Corrections, Glob,
    Rule, Surroundings,
};
use import::{DirectorySource, Options, Source, SourceError, TarSource};

use crate::common::{TreeItem, collect};

/// Writes a file and returns its path.
fn file(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn tree(path: &Path) -> Box<dyn Source> {
    Box::new(DirectorySource::open(path, &Options::default()).unwrap())
}

/// Creates an archive of files, each with its type and its link target or contents.
fn archive(files: &[(&str, u8, &str)]) -> Box<dyn Source> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, kind, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::new(*kind));
        header.set_mode(0o640);
        header.set_uid(1000);
        header.set_gid(1001);
        header.set_mtime(7);
        if matches!(kind, b'1' | b'2') {
            header.set_size(0);
            builder.append_link(&mut header, path, text).unwrap();
        } else {
            header.set_size(text.len() as u64);
            builder.append_data(&mut header, path, text.as_bytes()).unwrap();
        }
    }
    let bytes = builder.into_inner().unwrap();
    Box::new(TarSource::from_stream(std::io::Cursor::new(bytes), "archive").unwrap())
}

fn exclude(glob: &str) -> Choice {
    Choice { glob: Glob::parse(glob).unwrap(), is_included: false }
}

fn include(glob: &str) -> Choice {
    Choice { glob: Glob::parse(glob).unwrap(), is_included: true }
}

fn rule(glob: &str, change: AttributeChange) -> Rule {
    Rule { glob: Glob::parse(glob).unwrap(), change }
}

/// Reads a corrected source to its end.
fn corrected(
    source: Box<dyn Source>,
    options: &CorrectionOptions,
    surroundings: &Surroundings,
) -> Result<(Vec<TreeItem>, CorrectionReport), SourceError> {
    let corrections = Corrections::load(options, surroundings)?;
    let items = collect(&mut Corrected::new(source, Arc::clone(&corrections)))?;
    Ok((items, corrections.report()))
}

/// Reads a corrected source with default surroundings.
fn plainly(
    source: Box<dyn Source>,
    options: &CorrectionOptions,
) -> Result<(Vec<TreeItem>, CorrectionReport), SourceError> {
    corrected(source, options, &Surroundings::default())
}

fn paths(items: &[TreeItem]) -> Vec<&str> {
    items.iter().map(|item| item.path.as_str()).collect()
}

/// Returns the message of a correction that fails.
fn said(source: Box<dyn Source>, options: &CorrectionOptions) -> String {
    plainly(source, options).unwrap_err().to_string()
}
