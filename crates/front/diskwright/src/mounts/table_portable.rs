//! The table of mounts, as mount(8) of BSD and macOS prints it.

use std::io;
use std::process::{Command, Stdio};

use super::entry::MountEntry;

/// Reads the table.
pub(super) fn read() -> io::Result<Vec<MountEntry>> {
    let output = Command::new("mount").stdin(Stdio::null()).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(parse).collect())
}

/// Parses a line such as `/dev/disk1s1 on / (apfs, local, read-only)`.
fn parse(line: &str) -> Option<MountEntry> {
    let (source, rest) = line.split_once(" on ")?;
    let (point, options) = rest.strip_suffix(')')?.rsplit_once(" (")?;
    let (fs_type, options) = options.split_once(", ").unwrap_or((options, ""));
    let option = |word| if word == "read-only" { "ro" } else { word };
    Some(MountEntry {
        source: source.into(),
        point: point.into(),
        fs_type: fs_type.to_owned(),
        options: options.split(", ").map(option).collect::<Vec<_>>().join(","),
        way: None,
    })
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn lines_are_parsed_and_others_skipped() {
        let line = "127.0.0.1:/a1 on /private/tmp/a b (nfs, nodev, read-only, mounted by me)";
        let mount = parse(line).unwrap();
        assert_eq!(
            (mount.source.to_str(), mount.point.to_str()),
            (Some("127.0.0.1:/a1"), Some("/private/tmp/a b"))
        );
        assert_eq!((&*mount.fs_type, &*mount.options), ("nfs", "nodev,ro,mounted by me"));
        assert_eq!(parse("map auto_home on /home (autofs)").unwrap().fs_type, "autofs");
        assert!(parse("broken").is_none());
    }
}
