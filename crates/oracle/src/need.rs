//! Skipping a test by name when the machine lacks what it needs.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::sync::{Mutex, OnceLock};

use crate::tool;

/// Something a test needs from the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Need {
    /// A program in `PATH` or an `sbin` directory.
    Tool(&'static str),
    /// A program whose `-V` or `--version` reports at least this major and minor version.
    Version(&'static str, u32, u32),
    /// Linux of at least this major and minor version.
    Kernel(u32, u32),
    /// An effective user id of 0.
    Root,
    /// A free loop device, and the right to set it up.
    Loop,
    /// Everything it takes to mount this file-system type from an image.
    Mount(&'static str),
    /// An openable `/dev/fuse`, and the right to mount it or a `fusermount3` that has it.
    Fuse,
}

/// Returns from the calling test, loudly, unless every need is met.
///
/// The calling function must return `()`. With `DISKWRIGHT_REQUIRE_TOOLS=1` in the
/// environment a missing need panics instead, so that CI cannot skip in silence.
///
/// ```
/// # fn some_test() {
/// oracle::require!(Tool("mke2fs"), Mount("ext4"));
/// # }
/// ```
#[macro_export]
macro_rules! require {
    ($($need:ident $(($($argument:expr),+))?),+ $(,)?) => {{
        fn here() {}
        let name = ::std::any::type_name_of_val(&here);
        let needs = [$($crate::Need::$need $(($($argument),+))?),+];
        if !$crate::satisfied(name.trim_end_matches("::here"), &needs) {
            return;
        }
    }};
}

/// Whether all needs are met; says on standard error which one is not.
///
/// # Panics
/// If one is missing and `DISKWRIGHT_REQUIRE_TOOLS` is `1`.
pub fn satisfied(test: &str, needs: &[Need]) -> bool {
    let Some(reason) = needs.iter().find_map(|&need| missing(need)) else { return true };
    let must = std::env::var_os("DISKWRIGHT_REQUIRE_TOOLS").is_some_and(|value| value == "1");
    assert!(!must, "{test} may not be skipped here, but {reason}");
    // The test harness captures what `eprintln!` prints, but not this.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
    false
}

/// Why a need is not met on this machine, or `None` if it is. Asked once per process.
pub fn missing(need: Need) -> Option<String> {
    static ANSWERS: OnceLock<Mutex<HashMap<Need, Option<String>>>> = OnceLock::new();
    let answers = ANSWERS.get_or_init(Mutex::default);
    // `probe` asks about other needs, so the lock is not held across it.
    if let Some(answer) = answers.lock().expect("no probe panics").get(&need) {
        return answer.clone();
    }
    let answer = probe(need);
    answers.lock().expect("no probe panics").insert(need, answer.clone());
    answer
}

fn probe(need: Need) -> Option<String> {
    match need {
        Need::Tool(name) => tool::find(name).is_none().then(|| format!("{name} is not installed")),
        Need::Version(name, major, minor) => probe_version(name, (major, minor)),
        Need::Kernel(major, minor) => probe_kernel((major, minor)),
        Need::Root => (!rustix::process::geteuid().is_root()).then(|| "it needs root".into()),
        Need::Loop => probe_loop(),
        Need::Mount(fs_type) => missing(Need::Loop)
            .or_else(|| missing(Need::Tool("mount")))
            .or_else(|| probe_file_system(fs_type)),
        Need::Fuse => probe_fuse(),
    }
}

fn probe_fuse() -> Option<String> {
    if let Err(error) = OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        return Some(format!("/dev/fuse: {error}"));
    }
    missing(Need::Root).and_then(|_| missing(Need::Tool("fusermount3")))
}

fn probe_version(name: &'static str, wanted: (u32, u32)) -> Option<String> {
    if let Some(reason) = missing(Need::Tool(name)) {
        return Some(reason);
    }
    let found = ["-V", "--version"]
        .iter()
        .find_map(|flag| first_version(&tool::finish(tool::command(name).arg(flag)).text));
    match found {
        Some(found) if found >= wanted => None,
        Some((major, minor)) => {
            Some(format!("{name} is {major}.{minor}, older than {}.{}", wanted.0, wanted.1))
        }
        None => Some(format!("{name} does not tell its version")),
    }
}

fn probe_kernel(wanted: (u32, u32)) -> Option<String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    match first_version(release.split('-').next().unwrap_or_default()) {
        Some(found) if found >= wanted => None,
        _ => {
            let (major, minor) = wanted;
            Some(format!("Linux is {}, older than {major}.{minor}", release.trim()))
        }
    }
}

/// The first `MAJOR.MINOR` in a text.
fn first_version(text: &str) -> Option<(u32, u32)> {
    text.split(|c: char| !c.is_ascii_digit() && c != '.').find_map(|word| {
        let mut parts = word.split('.');
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    })
}

fn probe_loop() -> Option<String> {
    let reason = missing(Need::Root).or_else(|| missing(Need::Tool("losetup")));
    if reason.is_some() {
        return reason;
    }
    let finished = tool::finish(tool::command("losetup").arg("--find"));
    (finished.code != Some(0)).then(|| format!("no loop device: {}", finished.text.trim()))
}

fn probe_file_system(fs_type: &str) -> Option<String> {
    let known = || {
        fs::read_to_string("/proc/filesystems")
            .is_ok_and(|list| list.lines().any(|line| line.split('\t').nth(1) == Some(fs_type)))
    };
    if known() {
        return None;
    }
    if tool::find("modprobe").is_some() {
        tool::finish(tool::command("modprobe").arg(fs_type));
    }
    (!known()).then(|| format!("this kernel does not mount {fs_type}"))
}

#[cfg(test)]
mod tests {
    use super::{Need, first_version, missing};

    #[test]
    fn versions_are_read_from_what_the_tools_print() {
        assert_eq!(first_version("mke2fs 1.47.0 (5-Feb-2023)\n\tUsing EXT2FS"), Some((1, 47)));
        assert_eq!(first_version("mkfs.xfs version 6.17.0"), Some((6, 17)));
        assert_eq!(first_version("usage: no number."), None);
    }

    #[test]
    fn a_missing_tool_is_named() {
        let reason = missing(Need::Tool("no-such-tool-anywhere")).unwrap();
        assert_eq!(reason, "no-such-tool-anywhere is not installed");
        assert!(
            missing(Need::Version("sh", 0, 0)).is_some() || missing(Need::Tool("sh")).is_none()
        );
    }
}
