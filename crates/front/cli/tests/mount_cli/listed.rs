//! `diskwright mounts`.

use std::fs;

use testkit::{require, scratch};

use crate::mount::Point;
use crate::mount_cli::common::{ext4, ok};
use crate::program;

#[test]
fn mounts_are_listed_with_image_and_mode() {
    require!(Fuse);
    let dir = scratch();
    let image = fs::canonicalize(ext4(dir.path())).unwrap();
    let point = Point::new();
    let shown = |line: &str| {
        let output = program::ok(dir.path(), line);
        let place = point.path().to_str().unwrap();
        output.lines().find(|line| line.contains(place)).map(str::to_owned)
    };
    assert_eq!(shown("mounts"), None);
    for (options, mode) in [("", "rw"), (" -o ro", "ro")] {
        ok(dir.path(), &point, &format!("mount a.img POINT{options}"));
        let line = format!("{}\t{}\tfuse\t{mode}", point.path().display(), image.display());
        assert_eq!(shown("mounts"), Some(line));
        let object = serde_json::from_str::<serde_json::Value>(&shown("mounts --json").unwrap());
        let expected = serde_json::json!({
            "directory": point.path(),
            "image": image,
            "via": "fuse",
            "read_only": mode == "ro",
        });
        assert_eq!(object.unwrap(), expected);
        ok(dir.path(), &point, "unmount POINT");
    }
    assert_eq!(shown("mounts"), None);
}
