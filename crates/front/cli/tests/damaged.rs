//! Files on bad areas of failing disks: `find --damaged`, `check` and `extract --salvage`.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::program::{ok, run};

const FORMATS: [&str; 2] = ["--fs ext4", "--fs xfs --small"];
const IMAGE_BYTES: u64 = 64 << 20;

/// Runs a command line. Returns exit status, output and messages.
fn said(dir: &Path, line: &str) -> (i32, String, String) {
    let output = run(dir, line);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// Creates an image: a file of 64 KiB with one value for each block, small files, and a directory with many names.
fn image(options: &str) -> TempDir {
    let home = testkit::scratch();
    let tree = home.path().join("tree");
    fs::create_dir_all(tree.join("many")).unwrap();
    let bytes: Vec<u8> = (0..16 * 4096).map(|at| 0x40 + (at / 4096) as u8).collect();
    fs::write(tree.join("blocks"), bytes).unwrap();
    fs::write(tree.join("sound"), "sound\n").unwrap();
    (0..400).for_each(|nth| fs::write(tree.join(format!("many/{nth:050}")), "x").unwrap());
    ok(home.path(), &format!("build tree image.img {options} --size 64M"));
    home
}

/// Returns the location of a block of `/blocks`.
fn block(dir: &Path, nth: u8) -> u64 {
    let bytes = fs::read(dir.join("image.img")).unwrap();
    let is_it = |part: &[u8]| part.iter().all(|&byte| byte == 0x40 + nth);
    bytes.chunks(4096).position(is_it).unwrap() as u64 * 4096
}

/// Writes a mapfile without these areas.
fn without(dir: &Path, areas: &[(u64, u64)]) {
    let mut areas = areas.to_vec();
    areas.sort_unstable();
    let (mut text, mut at) = ("0 ?\n".to_owned(), 0);
    for (start, len) in areas {
        if start > at {
            text += &format!("{at} {} +\n", start - at);
        }
        text += &format!("{start} {len} -\n");
        at = start + len;
    }
    text += &format!("{at} {} +\n", IMAGE_BYTES - at);
    fs::write(dir.join("map"), text).unwrap();
}

#[test]
fn files_on_bad_areas_are_found_by_their_extents() {
    for options in FORMATS {
        let home = image(options);
        let dir = home.path();
        without(dir, &[]);
        assert_eq!(
            said(dir, "find image.img --damaged --mapfile map"),
            (0, String::new(), String::new())
        );
        assert_eq!(said(dir, "find image.img --damaged"), (0, String::new(), String::new()));
        let (status, out, _) = said(dir, "check image.img --mapfile map");
        assert!(status == 0 && out.contains("0 files on bad areas"), "{out}");
        without(dir, &[(block(dir, 3), 4096), (block(dir, 5) + 100, 50), (block(dir, 9), 8192)]);
        let (status, out, messages) = said(dir, "find image.img --damaged --mapfile map");
        let line = "/blocks: 12338 of 65536 bytes lost: 12288+4096, 20580+50, 36864+8192\n";
        assert_eq!((status, &out[..], &messages[..]), (1, line, ""));
        assert_eq!(said(dir, "find image.img --damaged --mapfile map -0").1, "/blocks\0");
        assert_eq!(said(dir, "find image.img --damaged --mapfile map --name s*").0, 0);
        assert_eq!(said(dir, "find image.img /many --damaged --mapfile map --type f").0, 0);
        let (status, out, _) = said(dir, "find image.img --damaged --mapfile map --json");
        let found: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(status, 1);
        let ranges = json!([{ "offset": 12288, "bytes": 4096 }, { "offset": 20580, "bytes": 50 },
            { "offset": 36864, "bytes": 8192 }]);
        assert_eq!((&found["path"], &found["lost"]), (&json!("/blocks"), &ranges));
        assert_eq!((&found["size"], &found["problems"]), (&json!(65536), &json!([])));
        // The check reports the same.
        let (status, out, _) = said(dir, "check image.img --mapfile map");
        assert!(
            status == 1 && out.contains(&format!("files on bad areas (1):\n  {line}")),
            "{out}"
        );
        assert!(out.contains("damaged: 1 file on bad areas; "), "{out}");
        let (status, out, _) = said(dir, "check image.img --mapfile map --json");
        let report: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((status, &report["damaged_files"]["count"]), (1, &json!(1)));
        assert_eq!(report["damaged_files"]["files"][0]["lost"], ranges);
        assert_eq!(report["verdict"], "damaged");
    }
}

#[test]
fn unreadable_metadata_is_damage_and_the_search_continues() {
    for options in FORMATS {
        let home = image(options);
        let dir = home.path();
        // A block of the large directory: its entries contain long names.
        let bytes = fs::read(dir.join("image.img")).unwrap();
        let names =
            |block: &[u8]| block.windows(45).filter(|part| part.iter().all(|&b| b == b'0')).count();
        let at = bytes.chunks(4096).position(|block| names(block) > 120).unwrap() as u64 * 4096;
        without(dir, &[(at, 4096)]);
        let (status, out, messages) = said(dir, "find image.img --damaged --mapfile map");
        assert_eq!(status, 4, "{out} {messages}");
        assert!(out.starts_with("/many: ") && out.contains("was not rescued"), "{out}");
        assert_eq!(out.lines().count(), 1, "{out}");
        assert!(messages.contains("files below them are not listed"), "{messages}");
        let (status, out, _) = said(dir, "check image.img --mapfile map");
        assert_eq!(status, 4, "{out}");
        assert!(out.contains("/many: ") && out.contains("and perhaps more"), "{out}");
        // The same without a mapfile: a damaged block of the directory.
        let disk = File::options().write(true).open(dir.join("image.img")).unwrap();
        disk.write_all_at(&[0xff; 4096], at).unwrap();
        let (status, out, messages) = said(dir, "find image.img --damaged");
        assert_eq!(status, 3, "{out} {messages}");
        assert!(out.starts_with("/many: "), "{out}");
    }
}

#[test]
fn a_salvage_marks_files_that_lost_data() {
    for options in FORMATS {
        let home = image(options);
        let dir = home.path();
        without(dir, &[(block(dir, 2), 4096), (block(dir, 15), 4096)]);
        let lost = "/blocks: 8192 bytes are zeros, because they could not be read: 8192+4096, \
                    61440+4096";
        for destination in ["out", "out.tar"] {
            let line = format!("extract image.img {destination} --salvage --mapfile map --json");
            let (status, out, messages) = said(dir, &line);
            assert_eq!(status, 4, "{messages}");
            assert!(messages.contains(lost), "{messages}");
            let report: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
            let ranges =
                json!([{ "offset": 8192, "bytes": 4096 }, { "offset": 61440, "bytes": 4096 }]);
            assert_eq!(report["lost"][0]["lost"], ranges, "{report}");
            assert_eq!(
                (&report["lost"][0]["path"], &report["unreadable"]),
                (&json!("/blocks"), &json!(1))
            );
            assert_eq!(report["lost"].as_array().unwrap().len(), 1);
        }
        // All other bytes are there.
        let bytes = fs::read(dir.join("out/blocks")).unwrap();
        let expected = |at: usize| match at / 4096 {
            2 | 15 => 0,
            nth => 0x40 + nth as u8,
        };
        assert!(bytes.len() == 65536 && (0..65536).all(|at| bytes[at] == expected(at)));
    }
}
