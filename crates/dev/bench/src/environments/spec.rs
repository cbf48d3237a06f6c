//! Syntax of targets: `memory:xfs,^parent`, `kernel:ext4,size=8G`, or a path.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use ext4::OrphanPolicy;
use xfs::FreeIndexStrategy;

use super::format::{FsPlan, NOTHING};
use diskwright::Format;
use diskwright::build::FeatureChange;
use diskwright::text::parse_size;

/// Target of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetSpec {
    /// File system of this program, in memory.
    Memory(FsSpec),
    /// Same file system, mounted by the kernel.
    Kernel(FsSpec),
    /// Image file, or directory of a mounted file system.
    Path(PathBuf),
}

/// File system created for a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsSpec {
    /// Its format.
    pub format: Format,
    /// Changes to the format's default features, in order.
    pub features: Vec<FeatureChange>,
    /// Search strategy for free space in directories; only for XFS in memory.
    pub free_index: Option<FreeIndexStrategy>,
    /// Policy for orphan records; only for ext4 in memory.
    pub orphans: Option<OrphanPolicy>,
    /// True to defer creates in large directories; only in memory.
    pub defer_creates: bool,
    /// Size in bytes; `None` derives it from the workload.
    pub size: Option<u64>,
}

/// Implementation that runs a file system.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Driver {
    Memory,
    Kernel,
}

impl Driver {
    const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Kernel => "kernel",
        }
    }
}

impl FromStr for TargetSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let at = |problem| format!("{text:?}: {problem}");
        match text.split_once(':') {
            Some(("memory", rest)) => {
                FsSpec::parse(Driver::Memory, rest).map(Self::Memory).map_err(at)
            }
            Some(("kernel", rest)) => {
                FsSpec::parse(Driver::Kernel, rest).map(Self::Kernel).map_err(at)
            }
            _ if text.is_empty() => Err("write memory:FORMAT, kernel:FORMAT or a path".into()),
            _ => Ok(Self::Path(text.into())),
        }
    }
}

/// Formats the normal form, which [`FromStr`] parses.
impl fmt::Display for TargetSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(spec) => write!(f, "{}:{spec}", Driver::Memory.name()),
            Self::Kernel(spec) => write!(f, "{}:{spec}", Driver::Kernel.name()),
            Self::Path(path) => path.display().fmt(f),
        }
    }
}

impl fmt::Display for FsSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.format.name())?;
        self.features.iter().try_for_each(|change| write!(f, ",{change}"))?;
        if let Some(strategy) = self.free_index {
            write!(f, ",free-index={}", strategy.name())?;
        }
        if let Some(policy) = self.orphans {
            write!(f, ",orphans={}", policy.name())?;
        }
        if self.defer_creates {
            f.write_str(",defer-creates=on")?;
        }
        self.size.map_or(Ok(()), |bytes| write!(f, ",size={}", shortest_size(bytes)))
    }
}

impl FsSpec {
    /// Parses the part after `memory:` or `kernel:`, and checks that such a file system is possible.
    fn parse(driver: Driver, text: &str) -> Result<Self, String> {
        let mut items = text.split(',');
        let format = match items.next() {
            Some("ext4") => Format::Ext4,
            Some("xfs") => Format::Xfs,
            _ => return Err(format!("write {0}:ext4 or {0}:xfs", driver.name())),
        };
        let mut spec = Self::plain(format);
        for item in items {
            spec.add(driver, item)?;
        }
        let plan = FsPlan::new(&spec, &NOTHING).map_err(|error| error.to_string())?;
        if spec.orphans.is_some() && !plan.has_feature("has_journal") {
            return Err("orphans are recorded only with a journal".into());
        }
        Ok(spec)
    }

    /// Returns a file system with the defaults of its format.
    pub(super) fn plain(format: Format) -> Self {
        Self {
            format,
            features: Vec::new(),
            free_index: None,
            orphans: None,
            defer_creates: false,
            size: None,
        }
    }

    fn add(&mut self, driver: Driver, item: &str) -> Result<(), String> {
        let Some((key, value)) = item.split_once('=') else {
            let change: FeatureChange =
                item.parse().map_err(|error| format!("{item:?}: {error}"))?;
            // The last change of a feature takes effect.
            self.features.retain(|earlier| earlier.name != change.name);
            self.features.push(change);
            return Ok(());
        };
        let is_first = match key {
            "free-index" => {
                self.require(
                    driver,
                    Format::Xfs,
                    key,
                    "a kernel target has only the kernel's own way",
                )?;
                let names = FreeIndexStrategy::ALL.map(FreeIndexStrategy::name);
                let found = FreeIndexStrategy::from_name(value);
                self.free_index.replace(found.ok_or_else(|| one_of(item, &names))?).is_none()
            }
            "orphans" => {
                let instead = "kernels always record orphans, on the list if ^orphan_file is set";
                self.require(driver, Format::Ext4, key, instead)?;
                let names = OrphanPolicy::ALL.map(OrphanPolicy::name);
                let found = OrphanPolicy::from_name(value);
                self.orphans.replace(found.ok_or_else(|| one_of(item, &names))?).is_none()
            }
            "defer-creates" => {
                if driver == Driver::Kernel {
                    return Err("defer-creates is for memory: targets only".into());
                }
                if value != "on" {
                    return Err(one_of(item, &["on"]));
                }
                !std::mem::replace(&mut self.defer_creates, true)
            }
            "size" => self.size.replace(parse_size(value)?).is_none(),
            _ => {
                return Err(format!(
                    "{item:?}: write features (+name or ^name), size=SIZE, defer-creates=on, \
                     free-index=WAY for memory:xfs, or orphans=WHEN for memory:ext4"
                ));
            }
        };
        if is_first { Ok(()) } else { Err(format!("{key} is given twice")) }
    }

    /// Rejects an item that is valid only for one format in memory.
    fn require(
        &self,
        driver: Driver,
        format: Format,
        key: &str,
        kernels: &str,
    ) -> Result<(), String> {
        match driver {
            Driver::Memory if self.format == format => Ok(()),
            Driver::Memory => Err(format!("{key} is for memory:{} only", format.name())),
            Driver::Kernel => Err(format!("{key} is for memory:{} only: {kernels}", format.name())),
        }
    }
}

fn one_of(item: &str, names: &[&str]) -> String {
    format!("{item:?}: choose one of {}", names.join(", "))
}

/// Formats a number of bytes in the largest unit that divides it.
fn shortest_size(bytes: u64) -> String {
    let units = ["", "K", "M", "G", "T", "P", "E"];
    let mut power = 0;
    while bytes > 0
        && power + 1 < units.len()
        && bytes.trailing_zeros() as usize >= 10 * (power + 1)
    {
        power += 1;
    }
    format!("{}{}", bytes >> (10 * power), units[power])
}
