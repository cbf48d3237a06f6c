//! Description of the machine, for a table of times.

use std::fs;
use std::path::Path;
use std::thread;

use serde::Serialize;

/// The machine of a measurement. Unknown values are empty or `None`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Machine {
    /// Model of the processor.
    pub cpu: String,
    /// Number of processors available to this process.
    pub cores: usize,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Kernel release, on Linux.
    pub kernel: String,
    /// Directory of images, with the type of its file system.
    pub scratch: String,
    /// Load average of the minute before the start: measurements on a busy machine are unreliable.
    pub load: Option<f64>,
    /// Frequency governor of the processors: `performance`, `schedutil`.
    pub governor: Option<String>,
    /// The hypervisor, on a virtual machine.
    pub virtual_machine: Option<String>,
    /// Name and version of this program, then those of the compared programs.
    pub versions: Vec<String>,
}

impl Machine {
    /// Examines this machine. `scratch` is the directory of images; `versions` are those of the programs.
    pub fn describe(scratch: &Path, versions: Vec<String>) -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        Self {
            cpu: cpu(&cpuinfo),
            cores: thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory_bytes(&read("/proc/meminfo")),
            kernel: release(),
            scratch: format!("{} ({})", scratch.display(), fs_type(&read("/proc/mounts"), scratch)),
            load: read("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()),
            governor: known(&read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
            virtual_machine: virtual_machine(&cpuinfo, &read("/sys/class/dmi/id/sys_vendor")),
            versions,
        }
    }

    /// Returns a few human-readable lines.
    pub fn lines(&self) -> Vec<String> {
        let gib = self.memory_bytes as f64 / f64::from(1 << 30);
        let mut first = format!("{} × {}, {gib:.1} GiB of memory", self.cores, self.cpu);
        if let Some(host) = &self.virtual_machine {
            first += &format!(", virtual ({host})");
        }
        let host = if self.kernel.is_empty() {
            format!("{}, processor times are not measured", std::env::consts::OS)
        } else {
            format!("Linux {}", self.kernel)
        };
        let mut second = format!("{host}, images in {}", self.scratch);
        if let Some(load) = self.load {
            second += &format!(", load {load:.2} at the start");
        }
        second += &match &self.governor {
            Some(governor) => format!(", frequency governor {governor}"),
            None => ", frequency governor unknown".to_owned(),
        };
        let mut lines = vec![first, second];
        lines.extend(self.versions.iter().cloned());
        lines
    }
}

/// Returns the Linux release.
#[cfg(target_os = "linux")]
fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// Not Linux.
#[cfg(not(target_os = "linux"))]
fn release() -> String {
    String::new()
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn known(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Returns the value of the first line with this key.
fn field<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(found, _)| found.trim() == key).map(|(_, value)| value.trim())
}

/// Some architectures do not report the model.
fn cpu(cpuinfo: &str) -> String {
    let name = field(cpuinfo, "model name").or_else(|| field(cpuinfo, "cpu model"));
    name.map_or_else(|| format!("{} processor", std::env::consts::ARCH), str::to_owned)
}

fn memory_bytes(meminfo: &str) -> u64 {
    let kib = field(meminfo, "MemTotal").and_then(|value| value.split(' ').next()?.parse().ok());
    kib.unwrap_or(0_u64) << 10
}

/// A hypervisor sets a processor flag for its guests, and its vendor is in the firmware tables.
fn virtual_machine(cpuinfo: &str, vendor: &str) -> Option<String> {
    let is_guest = field(cpuinfo, "flags")?.split(' ').any(|flag| flag == "hypervisor");
    is_guest.then(|| known(vendor).unwrap_or_else(|| "unknown hypervisor".to_owned()))
}

/// Returns the type of the file system of a directory, by the longest matching mount point.
fn fs_type(mounts: &str, directory: &Path) -> String {
    let fields = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let holding = fields.filter(|(point, _)| directory.starts_with(point));
    holding.max_by_key(|(point, _)| point.len()).map_or("?", |(_, kind)| kind).to_owned()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Machine, cpu, fs_type, memory_bytes, virtual_machine};

    const CPUINFO: &str =
        "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nflags\t\t: fpu hypervisor\n";

    #[test]
    fn the_kernel_says_what_the_machine_is() {
        assert_eq!(cpu(CPUINFO), "Some CPU @ 2 GHz");
        assert!(cpu("").ends_with("processor"));
        assert_eq!(memory_bytes("MemTotal:       24117248 kB\nMemFree: 1 kB\n"), 23 << 30);
        assert_eq!(memory_bytes(""), 0);
        assert_eq!(virtual_machine(CPUINFO, "Maker\n"), Some("Maker".to_owned()));
        assert_eq!(virtual_machine(CPUINFO, ""), Some("unknown hypervisor".to_owned()));
        assert_eq!(virtual_machine("flags : fpu", "Maker"), None);
    }

    #[test]
    fn the_longest_mount_point_counts() {
        let mounts = "a / ext4 rw 0 0\nb /dev devtmpfs rw 0 0\nc /dev/shm tmpfs rw 0 0\n";
        assert_eq!(fs_type(mounts, Path::new("/dev/shm/x")), "tmpfs");
        assert_eq!(fs_type(mounts, Path::new("/dev/shmx")), "devtmpfs");
        assert_eq!(fs_type("", Path::new("/x")), "?");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_can_be_described() {
        let machine = Machine::describe(Path::new("/"), vec!["program 1".to_owned()]);
        assert!(machine.cores > 0 && machine.memory_bytes > 1 << 20);
        let lines = machine.lines().join("\n");
        assert!(lines.contains("Linux ") && lines.ends_with("program 1"), "{lines}");
    }
}
