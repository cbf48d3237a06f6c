//! What a table of times must say about where it was made.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde::Serialize;

/// Machine, kernel and the versions of all programs compared.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) memory_gib: u64,
    pub(crate) kernel: String,
    pub(crate) scratch: String,
    pub(crate) versions: Vec<String>,
}

impl Machine {
    pub(crate) fn describe(scratch: &Path, program: &Path, mkfs_xfs: Option<&Path>) -> Self {
        let field = |path: &str, key: &str| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
            line.split_once(':').map_or(String::new(), |(_, value)| value.trim().to_owned())
        };
        let memory_kib = field("/proc/meminfo", "MemTotal");
        let memory_kib = memory_kib.split(' ').next().and_then(|number| number.parse().ok());
        let mut versions = vec![
            version(program, "--version"),
            version(Path::new("mke2fs"), "-V"),
            version(Path::new("tar"), "--version"),
        ];
        versions.extend(mkfs_xfs.map(|path| version(path, "-V")));
        let uname = rustix::system::uname();
        Machine {
            cpu: field("/proc/cpuinfo", "model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_gib: memory_kib.unwrap_or(0_u64) >> 20,
            kernel: uname.release().to_string_lossy().into_owned(),
            scratch: format!("{} ({})", scratch.display(), fs_type(scratch)),
            versions,
        }
    }
}

/// The first line a program prints about its version.
fn version(program: &Path, flag: &str) -> String {
    let Ok(output) = Command::new(program).arg(flag).output() else {
        return format!("{}: not installed", program.display());
    };
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    text.lines().next().unwrap_or("no version").to_owned()
}

/// The type of the file system that holds a directory, by the longest matching mount point.
fn fs_type(directory: &Path) -> String {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let fields = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let holding = fields.filter(|(point, _)| directory.starts_with(point));
    holding.max_by_key(|(point, _)| point.len()).map_or("?", |(_, kind)| kind).to_owned()
}
