//! Combinations of several sources.

use std::sync::Arc;

use import::{
    Combination, Combined, Conflict, Entry, EntryKind, InodeDetails, Metadata, Part, Progress,
    Source, SourceError, Time, Xattr,
};

/// A source with given entries.
struct Given(std::vec::IntoIter<Entry>);

impl Source for Given {
    fn next_entry(&mut self) -> Result<Option<Entry>, SourceError> {
        Ok(self.0.next())
    }

    fn read(&mut self, _: &mut [u8]) -> Result<usize, SourceError> {
        Ok(0)
    }

    fn progress(&self) -> Progress {
        Progress { done: 0, total: None }
    }
}

/// Creates entries from words: `path/` is a directory, `path=target` a hard link, `path>target` a symbolic link, and
/// anything else a FIFO. The owner identifies the source.
fn entries(uid: u32, words: &str) -> Vec<Entry> {
    let entry = |word: &str| {
        let (path, kind) = if let Some((path, target)) = word.split_once('=') {
            (path, EntryKind::Hardlink(target.into()))
        } else if let Some((path, target)) = word.split_once('>') {
            (path, EntryKind::Symlink(target.into()))
        } else if let Some(path) = word.strip_suffix('/') {
            (path, EntryKind::Directory)
        } else {
            (word, EntryKind::Fifo)
        };
        let time = Time { sec: 7, nsec: 0 };
        let (atime, ctime) = (Some(time), Some(time));
        let metadata = Metadata { permissions: 0o755, uid, gid: 0, mtime: time, atime, ctime };
        let xattrs = vec![Xattr { name: b"user.x".to_vec(), value: vec![uid as u8] }];
        let inode = Some(Box::new(InodeDetails::default()));
        Entry { path: path.into(), kind, metadata, xattrs, inode }
    };
    words.split_whitespace().map(entry).collect()
}

fn open(sources: &[(&str, &str)]) -> Vec<Box<dyn Source>> {
    let given = |(uid, (_, words)): (usize, &(&str, &str))| {
        Box::new(Given(entries(uid as u32, words).into_iter())) as Box<dyn Source>
    };
    sources.iter().enumerate().map(given).collect()
}

/// Returns the combination of sources with their target directories: paths with the number of their source and their
/// kind.
fn combine(sources: &[(&str, &str)]) -> Result<String, SourceError> {
    let part = |(at, _): &(&str, &str)| Part {
        name: format!("source at {at:?}"),
        at: at.as_bytes().to_vec(),
        mtime_only: true,
    };
    let parts = sources.iter().map(part).collect();
    let plan = Combination::plan(parts, open(sources).into_iter().map(Ok::<_, SourceError>))?;
    let mut combined = Combined::new(&Arc::new(plan), open(sources));
    let mut shown = Vec::new();
    while let Some(entry) = combined.next_entry()? {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let after = match &entry.kind {
            EntryKind::Directory => "/".to_owned(),
            EntryKind::Hardlink(target) => format!("={}", text(target)),
            EntryKind::Symlink(target) => format!(">{}", text(target)),
            _ => String::new(),
        };
        assert_eq!((entry.metadata.atime, entry.metadata.ctime), (None, None));
        assert_eq!(entry.xattrs[0].value, [entry.metadata.uid as u8]);
        shown.push(format!("{}{after}:{}", text(&entry.path), entry.metadata.uid));
    }
    Ok(shown.join(" "))
}

fn conflict(sources: &[(&str, &str)]) -> Conflict {
    match combine(sources) {
        Err(SourceError::Conflict { conflict, .. }) => conflict,
        other => panic!("{other:?}"),
    }
}

#[test]
fn later_sources_win() {
    let found = combine(&[("", "/ a b d/ d/x d/y"), ("", "/ b d/ d/x e"), ("", "d/ e")]).unwrap();
    assert_eq!(found, "/:1 a:0 d/:2 d/y:0 b:1 d/x:1 e:2");
}

#[test]
fn a_source_goes_where_it_is_put() {
    let found = combine(&[("", "/ srv/"), ("srv/www", "/ index a/ a/b=index")]).unwrap();
    assert_eq!(
        found,
        "/:0 srv/:0 srv/www/:1 srv/www/index:1 srv/www/a/:1 srv/www/a/b=srv/www/index:1"
    );
    // A directory listed several times has the attributes of the last listing.
    assert_eq!(combine(&[("", "/ srv/"), ("srv", "/ x")]).unwrap(), "/:0 srv/:1 srv/x:1");
}

#[test]
fn types_change() {
    assert_eq!(combine(&[("", "/ a"), ("", "a/ a/b")]).unwrap(), "/:0 a/:1 a/b:1");
    assert_eq!(combine(&[("", "/ l>usr usr/"), ("", "l/ l/b")]).unwrap(), "/:0 usr/:0 l/:1 l/b:1");
    assert_eq!(combine(&[("", "/ a/"), ("", "a")]).unwrap(), "/:0 a:1");
    assert_eq!(combine(&[("", "/ a/"), ("", "a>b"), ("", "a/ a/c")]).unwrap(), "/:0 a/:2 a/c:2");
}

#[test]
fn hard_links_keep_the_names_that_remain() {
    let links = "/ a b=a c=a d=b";
    assert_eq!(combine(&[("", links), ("", "b")]).unwrap(), "/:0 a:0 c=a:0 d=a:0 b:1");
    assert_eq!(combine(&[("", links), ("", "a")]).unwrap(), "/:0 b:0 c=b:0 d=b:0 a:1");
    assert_eq!(combine(&[("", links), ("", "a b")]).unwrap(), "/:0 c:0 d=c:0 a:1 b:1");
    assert_eq!(combine(&[("", links), ("", "a b c d")]).unwrap(), "/:0 a:1 b:1 c:1 d:1");
    let found = combine(&[("", links), ("", "b c=b"), ("", "b")]).unwrap();
    assert_eq!(found, "/:0 a:0 d=a:0 c:1 b:2");
}

#[test]
fn conflicting_sources_are_refused() {
    assert_eq!(conflict(&[("", "/ d/ d/x"), ("", "d")]), Conflict::NotEmpty);
    assert_eq!(
        conflict(&[("", "/ l>usr usr/"), ("", "l/b")]),
        Conflict::NotADirectory(b"l".to_vec())
    );
    assert_eq!(conflict(&[("", "/ a/ a/f"), ("a/f/g", "/ x")]), Conflict::Place(b"a/f".to_vec()));
    assert_eq!(conflict(&[("", "/ a"), ("", "b=a")]), Conflict::LinkTarget(b"a".to_vec()));
    assert_eq!(conflict(&[("", "a b a")]), Conflict::Repeated);
    assert_eq!(conflict(&[("", "a/ a")]), Conflict::Repeated);
    assert_eq!(conflict(&[("", "a a/")]), Conflict::Repeated);
}

#[test]
fn deep_paths_need_no_stack() {
    let deep = "a/".repeat(60_000);
    let words = format!("{deep}x {deep}y={deep}x");
    assert!(combine(&[("", &words), ("", "b")]).unwrap().ends_with("b:1"));
}
