//! Output format of listings and searches, on the reference model.

use diskwright::find::{self, FindOptions, find};
use diskwright::list::{ListOptions, Style, list};
use testkit::model::Model;
use vfs::{DeviceNumber, FileSystem, FileType, NewInode, Paths, SpecialFile, Timestamp};

const NEW: NewInode = NewInode {
    permissions: 0o644,
    uid: 1000,
    gid: 7,
    time: Timestamp { sec: 1_709_211_900, nsec: 5 },
    parent_time: Some(Timestamp { sec: 1_709_211_900, nsec: 5 }),
};

fn sample() -> Model {
    let fs = Model::new();
    let paths = Paths::new(&fs);
    let dir = NewInode { permissions: 0o1777, ..NEW };
    paths.create_dir_all(b"/tmp/deep", &dir).unwrap();
    paths.write(b"/tmp/deep/b.txt", b"hello", &NEW).unwrap();
    paths.write(b"/tmp/a.txt", &[0; 12345], &NewInode { permissions: 0o4755, ..NEW }).unwrap();
    let tmp = paths.metadata(b"tmp").unwrap().ino;
    fs.symlink(tmp, b"link", b"deep/b.txt", &NewInode { permissions: 0o777, ..NEW }).unwrap();
    let null = SpecialFile::CharDevice(DeviceNumber { major: 1, minor: 3 });
    fs.mknod(tmp, b"null", null, &NewInode { permissions: 0o666, uid: 0, gid: 0, ..NEW }).unwrap();
    fs.create(tmp, b"odd\n\xff", &NEW).unwrap();
    fs
}

fn listed(fs: &Model, path: &str, options: ListOptions) -> String {
    let mut out = Vec::new();
    list(Paths::new(fs), path.as_bytes(), &options, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_long_listing_looks_like_that_of_ls() {
    let long = ListOptions::default().style(Style::Long).escape(true);
    assert_eq!(
        listed(&sample(), "/tmp", long),
        "-rwsr-xr-x 1 1000 7 12345 2024-02-29 13:05 a.txt\n\
         drwxrwxrwt 2 1000 7  4096 2024-02-29 13:05 deep\n\
         lrwxrwxrwx 1 1000 7    10 2024-02-29 13:05 link -> deep/b.txt\n\
         crw-rw-rw- 1 0    0  1, 3 2024-02-29 13:05 null\n\
         -rw-r--r-- 1 1000 7     0 2024-02-29 13:05 odd\\n\\xff\n"
    );
}

#[test]
fn names_come_raw_or_escaped_and_directories_one_by_one() {
    let fs = sample();
    let mut out = Vec::new();
    list(Paths::new(&fs), b"tmp/", &ListOptions::default(), &mut out).unwrap();
    assert_eq!(out, b"a.txt\ndeep\nlink\nnull\nodd\n\xff\n");
    let recursive = ListOptions::default().recursive(true).escape(true);
    let expected = "/:\ntmp\n\n/tmp:\na.txt\ndeep\nlink\nnull\nodd\\n\\xff\n\n/tmp/deep:\nb.txt\n";
    assert_eq!(listed(&fs, "/", recursive), expected);
    assert_eq!(listed(&fs, "/tmp/a.txt", recursive), "/tmp/a.txt\n");
}

#[test]
fn json_has_everything_and_bytes_where_text_cannot_say_it() {
    let json = ListOptions::default().style(Style::Json).recursive(true);
    let text = listed(&sample(), "/", json);
    let records: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records.len(), 7);
    let record = |name: &str| records.iter().find(|record| record["name"] == name).unwrap();
    let null = record("null");
    assert_eq!(null["path"], "/tmp/null");
    assert_eq!((&null["major"], &null["minor"]), (&1.into(), &3.into()));
    assert_eq!(null["type"], "char-device");
    assert_eq!(null["mtime"], "2024-02-29T13:05:00.000000005Z");
    assert_eq!(record("link")["target"], "deep/b.txt");
    assert_eq!(record("odd\n\u{fffd}")["name_bytes"], "6f64640aff");
    assert_eq!(record("a.txt")["mode"], "4755");
    assert!(record("a.txt").get("name_bytes").is_none());
}

#[test]
fn a_large_directory_is_listed_completely() {
    let fs = Model::new();
    for number in 0..5000 {
        fs.create(fs.root(), format!("{number:05}").as_bytes(), &NEW).unwrap();
    }
    for style in [Style::Names, Style::Long, Style::Json] {
        let text = listed(&fs, "/", ListOptions::default().style(style));
        assert_eq!(text.lines().count(), 5000);
        assert!(text.lines().last().unwrap().contains("04999"));
    }
}

#[test]
fn a_directory_in_itself_is_an_error_that_names_it() {
    let fs = sample();
    let deep = Paths::new(&fs).metadata(b"/tmp/deep").unwrap().ino;
    fs.insert_unchecked(deep, b"again", deep);
    let options = ListOptions::default().recursive(true);
    let error = list(Paths::new(&fs), b"/", &options, &mut Vec::new()).unwrap_err();
    assert!(error.to_string().starts_with("/tmp/deep/again: damaged directory tree"), "{error}");
    assert_eq!(error.outcome(), diskwright::Outcome::Image);
}

fn found(fs: &Model, path: &str, name: Option<&str>, types: &[FileType]) -> Vec<String> {
    let mut options = FindOptions::default().types(types.to_vec()).style(find::Style::Escaped);
    options.name = name.map(|name| name.as_bytes().to_vec());
    let mut out = Vec::new();
    find(Paths::new(fs), path.as_bytes(), &options, &mut out).unwrap();
    String::from_utf8(out).unwrap().lines().map(String::from).collect()
}

#[test]
fn find_selects_by_name_and_type() {
    let fs = sample();
    let all = ["/", "/tmp", "/tmp/a.txt", "/tmp/deep", "/tmp/deep/b.txt", "/tmp/link"];
    assert_eq!(found(&fs, "/", None, &[])[..6], all);
    assert_eq!(found(&fs, "tmp", Some("*.txt"), &[]), ["/tmp/a.txt", "/tmp/deep/b.txt"]);
    assert_eq!(found(&fs, "/", Some("[!a].tx?"), &[]), ["/tmp/deep/b.txt"]);
    assert_eq!(found(&fs, "/", Some("{null,link}"), &[FileType::Symlink]), ["/tmp/link"]);
    assert_eq!(found(&fs, "/", Some("odd*"), &[]), ["/tmp/odd\\n\\xff"], "names are bytes");
    assert_eq!(found(&fs, "/", None, &[FileType::Directory]), ["/", "/tmp", "/tmp/deep"]);
    assert!(found(&fs, "/tmp/deep", Some("nothing"), &[]).is_empty());
}
