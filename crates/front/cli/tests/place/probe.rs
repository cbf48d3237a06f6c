//! The probe: system calls that need a language with pointers (`probe.c`), compiled by each test
//! program.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use rustix::io::Errno;

use super::{run, tool};

fn probe() -> Command {
    static PROBE: OnceLock<PathBuf> = OnceLock::new();
    let program = PROBE.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/place/probe.c");
        let program =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("probe-{}", std::process::id()));
        run(tool("cc").args(["-O2", "-Wall", "-o"]).arg(&program).arg(source));
        // Other test programs may be about to execute the existing file.
        let name = program.with_file_name("probe");
        std::fs::rename(program, &name).unwrap();
        name
    });
    Command::new(program)
}

/// Calls ioctl(2) with `data`. Returns the contents of the buffer afterwards.
pub(crate) fn ioctl(path: &Path, number: u32, data: &[u8]) -> Result<Vec<u8>, Errno> {
    ioctl_as(0, path, number, data)
}

/// Like [`ioctl`], as another user.
pub(crate) fn ioctl_as(uid: u32, path: &Path, number: u32, data: &[u8]) -> Result<Vec<u8>, Errno> {
    let hex: String = data.iter().map(|byte| format!("{byte:02x}")).collect();
    let said = run(probe().arg("ioctl").arg(path).arg(number.to_string()).arg(hex).uid(uid));
    let said = said.trim();
    if let Some(error) = said.strip_prefix("error ") {
        return Err(Errno::from_raw_os_error(error.parse().unwrap()));
    }
    let pairs = said.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    Ok(pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect())
}

/// Creates an ID-mapped mount of a mount, in which IDs below `count` are shown from `first` on.
pub(crate) fn map_ids(source: &Path, target: &Path, first: u32, count: u32) {
    run(probe().arg("idmap").arg(source).arg(target).args([first, count].map(|n| n.to_string())));
}

/// Returns eight bytes of a seed's pattern, at eight times `number`.
fn pattern_word(seed: u64, number: u64) -> [u8; 8] {
    let start = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    start.wrapping_add(number.wrapping_mul(0xbf58_476d_1ce4_e5b9)).to_le_bytes()
}

/// Returns a part of a seed's pattern.
pub(crate) fn pattern(seed: u64, offset: u64, len: u64) -> Vec<u8> {
    let words = offset / 8..(offset + len).div_ceil(8);
    let before = (offset % 8) as usize;
    let mut bytes = Vec::with_capacity(8 * (words.end - words.start) as usize);
    words.for_each(|number| bytes.extend_from_slice(&pattern_word(seed, number)));
    bytes.truncate(before + len as usize);
    bytes.drain(..before);
    bytes
}

/// Writes a pattern into a file through a shared mapping, optionally with msync.
pub(crate) fn map(path: &Path, offset: u64, len: u64, seed: u64, synced: bool) {
    run(&mut mapping(path, offset, len, seed, synced));
}

/// Returns whether a pattern can be written into a file through a shared mapping, and synced.
pub(crate) fn try_map(path: &Path, offset: u64, len: u64, seed: u64) -> bool {
    mapping(path, offset, len, seed, true).output().unwrap().status.success()
}

fn mapping(path: &Path, offset: u64, len: u64, seed: u64, synced: bool) -> Command {
    let mut command = probe();
    command.arg("map").arg(path).args([offset, len, seed].map(|number| number.to_string()));
    if synced {
        command.arg("sync");
    }
    command
}

/// Returns a file's handle.
pub(crate) fn handle(path: &Path) -> String {
    run(probe().arg("handle").arg(path)).trim().to_owned()
}

/// Returns the contents of the file of a handle, or `error NUMBER`.
pub(crate) fn open_handle(root: &Path, handle: &str) -> String {
    run(probe().arg("open").arg(root).arg(handle))
}

/// Rewrites a file by asynchronous direct I/O with io_submit(2), reads it through the cache at the
/// same time, and compares cache and disk after each round.
///
/// # Panics
/// If they differ, with the difference.
pub(crate) fn asynchronous_writes(path: &Path, rounds: u32) {
    let output = probe().arg("aio").arg(path).arg(rounds.to_string()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
}
