//! File contexts, compared with the results of libselinux.

use std::time::Instant;

use import::file_contexts::{FileContexts, Label};
use import::{EntryKind, SourceError};
use testkit::{command, require, scratch};

use super::file;

const NULL: EntryKind = EntryKind::CharDevice { major: 1, minor: 3 };

fn contexts(text: &str) -> Result<FileContexts, SourceError> {
    FileContexts::parse("contexts".as_ref(), text.as_bytes())
}

fn label<'a>(contexts: &'a FileContexts, path: &str, kind: &EntryKind) -> &'a str {
    match contexts.label(path.trim_start_matches('/').as_bytes(), kind).unwrap() {
        Label::Context(context) => std::str::from_utf8(context).unwrap(),
        Label::None => "<<none>>",
        Label::Unknown => "",
    }
}

/// Lines whose order and form matter.
const LINES: &str = r"
/.* system_u:object_r:default_t:s0
/ -d system_u:object_r:root_t:s0
/usr(/.*)? system_u:object_r:usr_t:s0
/usr/bin/.* -- system_u:object_r:bin_t:s0
/usr/bin/foo\.sh -- system_u:object_r:foo_t:s0
/usr/bin/foo.* -- system_u:object_r:foostar_t:s0
# comment
/usr/(s)?bin/bar[0-9]+ system_u:object_r:bar_t:s0
/dev/null -c system_u:object_r:null_t:s0
/dev/[^/]* -c system_u:object_r:device_t:s0
/dev/[^/]* -b system_u:object_r:fixed_t:s0
/tmp/.* <<none>>
/x/y system_u:object_r:xy1_t:s0
/x/y system_u:object_r:xy2_t:s0
/home/[^/]+/\.ssh(/.*)? system_u:object_r:ssh_t:s0
/(opt|srv)/[[:alpha:]]+\.d -d system_u:object_r:opt_t:s0
/lib(64)?/.*\.so(\.[^/]*)* -- system_u:object_r:lib_t:s0
/a\+b system_u:object_r:plus_t:s0
/run/.*-w -s system_u:object_r:sock_t:s0
/run/.*-p -p system_u:object_r:pipe_t:s0
/run/.*-l -l system_u:object_r:link_t:s0
";

#[test]
fn labels_are_those_of_libselinux() {
    require!(Tool("matchpathcon"));
    let directory = scratch();
    let path = file(directory.path(), "contexts", LINES);
    file(directory.path(), "contexts.subs", "/myroot /usr\n/chain /myroot\n");
    let subs_dist = "/chain2 /myroot\n/myroot /x\n/lib32 /usr\n/lib32 /x\n";
    file(directory.path(), "contexts.subs_dist", subs_dist);
    file(directory.path(), "contexts.homedirs", "/home/me system_u:object_r:me_t:s0\n");
    file(directory.path(), "contexts.local", "/usr/bin/l.* system_u:object_r:local_t:s0\n");
    let contexts = FileContexts::read(&path).unwrap();
    let paths = [
        "/",
        "/usr",
        "/usr/x",
        "/usr/bin/foo.sh",
        "/usr/bin/foox",
        "/usr/bin/bar12",
        "/usr/sbin/bar1",
        "/usr/bin/bar",
        "/dev/null",
        "/dev/sda",
        "/dev/sub/x",
        "/tmp/x",
        "/tmp",
        "/x/y",
        "/home/u/.ssh/id",
        "/home/me",
        "/opt/conf.d",
        "/srv/conf.d",
        "/opt/c0.d",
        "/lib/a.so.1.2",
        "/lib64/x/libc.so",
        "/a+b",
        "/run/a-w",
        "/run/a-p",
        "/run/a-l",
        "/myroot/bin/x",
        "/chain/bin",
        "/chain2/bin",
        "/lib32/bin",
        "/lib32/y",
        "/usr/bin/local",
        "/usrx",
        "/unknown",
    ];
    let kinds = [
        ("dir", EntryKind::Directory),
        ("file", EntryKind::Hardlink(Vec::new())),
        ("chr_file", NULL),
        ("blk_file", EntryKind::BlockDevice { major: 1, minor: 3 }),
        ("lnk_file", EntryKind::Symlink(b"x".to_vec())),
        ("pipe", EntryKind::Fifo),
        ("sock_file", EntryKind::Socket),
    ];
    let empty = directory.path().join("empty");
    std::fs::write(&empty, "").unwrap();
    for (name, kind) in kinds {
        // Only sources can create contents.
        let kind = if name == "file" { regular(directory.path()) } else { kind };
        let mut matchpathcon = command("matchpathcon");
        matchpathcon.arg("-n").arg("-f").arg(&path).args(["-m", name]).args(paths);
        let output = matchpathcon.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        for (path, expected) in paths.iter().zip(text.lines()) {
            assert_eq!(label(&contexts, path, &kind), expected, "{name} {path}");
        }
    }
}

/// Returns the kind of a regular file.
fn regular(directory: &std::path::Path) -> EntryKind {
    use import::Source;
    let root = directory.join("one");
    if !root.exists() {
        std::fs::create_dir(&root).unwrap();
        std::fs::write(root.join("file"), "x").unwrap();
    }
    let mut source = import::DirectorySource::open(&root, &Default::default()).unwrap();
    source.next_entry().unwrap();
    source.next_entry().unwrap().unwrap().kind
}

#[test]
fn errors_name_line_and_part() {
    let said = |text: &str| contexts(text).unwrap_err().to_string();
    assert!(
        said("\n/a(?=b) u:r:t")
            .contains("line 2: expression \"/a(?=b)\": lookaround is not supported")
    );
    assert!(said("/a -x u:r:t").contains("file type: expected one of"));
    assert!(said("/a u:r").contains("context: expected USER:ROLE:TYPE"));
    assert!(said("/a").contains("line: expected EXPRESSION"));
    assert!(said("/(a u:r:t").contains("unclosed"));
    assert!(said("/a -- u:r:t more").contains("line 1: line"));
}

#[test]
fn expressions_that_need_too_much_memory_are_errors() {
    let contexts = contexts("/.(((a{100}){100}){100}){100} u:r:t:s0\n").unwrap();
    let fault = contexts.label(b"a", &NULL).unwrap_err().to_string();
    assert!(fault.contains("line 1"), "{fault}");
}

#[test]
fn thousands_of_lines_label_a_hundred_thousand_paths_soon() {
    let mut text = String::from("/.* u:r:default_t:s0\n");
    for at in 0..5000 {
        let (dir, name) = (at % 97, at / 97);
        let more = match at % 4 {
            0 => format!("/usr/lib/d{dir}/tool{name}(/.*)? u:r:t{at}:s0\n"),
            1 => format!("/etc/d{dir}/[^/]*\\.conf{name} -- u:r:t{at}:s0\n"),
            2 => format!("/var/(lib|log)/d{dir}/x{name}.* u:r:t{at}:s0\n"),
            _ => format!("/usr/bin/name{at} -- u:r:t{at}:s0\n"),
        };
        text.push_str(&more);
    }
    let contexts = contexts(&text).unwrap();
    let start = Instant::now();
    let mut labelled = 0;
    for at in 0..100_000 {
        let path = match at % 3 {
            0 => format!("usr/lib/d{}/tool{}/file{at}", at % 97, at % 50),
            1 => format!("var/log/d{}/x{}y", at % 97, at % 50),
            _ => format!("usr/bin/name{}", at % 6000),
        };
        let label = contexts.label(path.as_bytes(), &NULL).unwrap();
        labelled += u32::from(label != Label::Context(b"u:r:default_t:s0"));
    }
    let taken = start.elapsed();
    eprintln!(
        "{} lines, 100,000 paths: {taken:?}, {labelled} of them in lines of their own",
        contexts.lines()
    );
    assert!(labelled > 10_000);
    assert!(taken.as_secs() < 60, "{taken:?}");
}
