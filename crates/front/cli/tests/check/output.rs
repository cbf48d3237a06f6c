//! Output formats: text, JSON, and JSON lines.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use serde_json::json;

use super::common::{
    FORMATS, build, command, count, ends, image, list, object, objects, said, sound_and_damaged,
};

#[test]
fn a_valid_image_gives_one_line() {
    for options in FORMATS {
        let home = image(options);
        let before = fs::read(home.path().join("a.img")).unwrap();
        let line = ends(home.path(), "check a.img", 0);
        assert!(line.starts_with("a.img: clean: ") && line.lines().count() == 1, "{line}");
        assert!(fs::read(home.path().join("a.img")).unwrap() == before, "it was changed");

        let report = object(home.path(), "check --json a.img", 0);
        assert_eq!(report["verdict"], "clean", "{report}");
        assert_eq!((&report["is_complete"], count(&report)), (&json!(true), 0), "{report}");
        let number = |key: &str| report["summary"][key].as_u64().unwrap();
        // The root directory, `dir` and, in ext4, `lost+found`, in addition to the file.
        assert!([2, 3].contains(&number("directories")), "{report}");
        assert!(number("inodes") > number("directories"), "{report}");
        assert!(number("blocks_used") < number("blocks"), "{report}");

        let mut summary = object(home.path(), "check --jsonl a.img", 0);
        assert_eq!(summary.as_object_mut().unwrap().remove("type"), Some(json!("summary")));
        assert_eq!(summary, report);
    }
}

#[test]
fn damage_is_shown_by_kind_with_path_and_repair() {
    for options in FORMATS {
        let home = sound_and_damaged(options);
        let format = if options.contains("xfs") { "xfs" } else { "ext4" };
        let text = ends(home.path(), "check bad.img", 1);
        let report = object(home.path(), "check --json bad.img", 1);
        assert_eq!((&report["verdict"], &report["format"]), (&json!("damaged"), &json!(format)));
        assert!(count(&report) > 0, "{report}");
        let mut has_path = false;
        for kind in list(&report, "kinds") {
            let code = kind["code"].as_str().unwrap();
            assert!(code.starts_with(format), "{kind}");
            assert!(text.contains(&format!(": {code} ({}): ", kind["count"])), "{code}: {text}");
            assert!(text.contains(&format!("  repair: {}\n", kind["repair"].as_str().unwrap())));
            assert_eq!(kind["left_out"], 0);
            assert_eq!(list(kind, "findings").len() as u64, kind["count"].as_u64().unwrap());
            has_path |= list(kind, "findings").iter().any(|one| one["path"] == "/dir/file");
        }
        assert!(has_path && text.contains("  path:   /dir/file\n"), "{text}");
        let last = text.lines().next_back().unwrap();
        assert!(last.starts_with("bad.img: damaged: "), "{text}");
    }
}

#[test]
fn findings_come_line_by_line_and_then_the_summary() {
    for options in FORMATS {
        let home = sound_and_damaged(options);
        let mut lines = objects(home.path(), "check --jsonl bad.img", 1);
        let summary = lines.pop().unwrap();
        assert_eq!(summary["type"], "summary", "{summary}");
        assert_eq!(lines.len() as u64, count(&summary));
        for line in &lines {
            assert_eq!((&line["type"], &line["image"]), (&json!("finding"), &json!("bad.img")));
            let is_of = |kind: &&serde_json::Value| kind["code"] == line["code"];
            let kind = list(&summary, "kinds").iter().find(is_of).expect("a kind of that code");
            assert_eq!(kind["severity"], line["severity"]);
        }
    }
}

#[test]
fn threads_do_not_change_a_report() {
    for options in FORMATS {
        let home = sound_and_damaged(options);
        let alone = ends(home.path(), "check --json --threads 1 bad.img", 1);
        for threads in [2, 7, 1_000_000] {
            let line = format!("check --json --threads {threads} bad.img");
            assert_eq!(ends(home.path(), &line, 1), alone, "{threads}");
        }
    }
}

#[test]
fn several_images_have_headings_and_the_worst_status_counts() {
    let home = sound_and_damaged(FORMATS[0]);
    build(home.path(), "b.img", FORMATS[1]);
    fs::write(home.path().join("text"), "hello").unwrap();
    let text = ends(home.path(), "check a.img bad.img b.img", 1);
    let headings = text.lines().filter(|line| line.starts_with("==> "));
    let headings: Vec<_> = headings.collect();
    assert_eq!(headings, ["==> a.img <==", "==> bad.img <==", "==> b.img <=="], "{text}");
    assert!(text.contains("\nb.img: clean: "), "{text}");
    ends(home.path(), "check a.img b.img", 0);

    for (images, status) in [("bad.img text a.img", 3), ("nothing text bad.img a.img", 4)] {
        let line = format!("check --json {images}");
        let reports = objects(home.path(), &line, status);
        assert_eq!(reports.len(), images.split(' ').count(), "the last ones are checked, too");
        for (report, image) in reports.iter().zip(images.split(' ')) {
            assert_eq!(report["image"], image);
            let expected = match image {
                "text" => json!(3),
                "nothing" => json!(4),
                _ => json!(null),
            };
            assert_eq!(report["status"], expected, "{report}");
            assert_eq!(report["type"] == "error", !report["error"].is_null(), "{report}");
        }
    }
}

#[test]
fn an_image_whose_name_is_not_utf8_is_named_by_its_bytes() {
    let home = image(FORMATS[0]);
    let name = OsStr::from_bytes(b"a\xff\n.img");
    fs::rename(home.path().join("a.img"), home.path().join(name)).unwrap();
    let found = said(command(home.path(), "check").arg(name).output().unwrap());
    assert!(found.out.starts_with("a\\xff\\n.img: clean: "), "{}", found.out);
    let found = said(command(home.path(), "check --json").arg(name).output().unwrap());
    let report: serde_json::Value = serde_json::from_str(&found.out).unwrap();
    assert_eq!(report["image"], "a\u{fffd}\n.img");
    assert_eq!(report["image_bytes"], "61ff0a2e696d67");
}
