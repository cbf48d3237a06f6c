//! The build benchmark: its cases, their order and the checks of the results.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Machine;
use crate::report::Summary;
use testkit::{Format, Need};

use crate::measurements::contestant::{BuildJob, Contestant, mkfs_xfs, program_under_test};
use crate::measurements::measure::{peak_memory, timed};
use crate::measurements::options::{BuildFormat, BuildOptions};
use crate::measurements::report::{BuildReport, CaseReport, ContestantRow};
use crate::measurements::sources::{self, Census};
use crate::measurements::versions::versions;

/// mke2fs searches the whole directory for each name it adds, so it takes part only up to this number.
const MKE2FS_FILES_MAX: u64 = 20_000;

/// Inodes 1 to 10 of any ext4 file system, the root among them.
const RESERVED_INODES: u64 = 10;

/// Inodes of an empty XFS in addition to the root: two of the realtime device.
const XFS_INODES: u64 = 2;

/// A contestant that has used this much time gets no further round.
const PEER_TIME_MAX: Duration = Duration::from_secs(180);

enum Source {
    EmptyFiles(u64),
    Tree(PathBuf),
}

impl Source {
    fn name(&self) -> String {
        match self {
            Source::EmptyFiles(count) => format!("{count} empty files"),
            Source::Tree(path) => format!("tree {}", path.display()),
        }
    }
}

/// Settings shared by all cases.
struct Setting {
    scratch: PathBuf,
    rounds: u32,
    format: BuildFormat,
    program: PathBuf,
    mkfs_xfs: Result<PathBuf, String>,
    skipped: Vec<String>,
}

/// Runs all selected cases.
pub(crate) fn run(options: &BuildOptions) -> Result<BuildReport, String> {
    if cfg!(debug_assertions) {
        cli::terminal::message(&"this is no release build, its figures mean little");
    }
    let mut setting = Setting {
        scratch: options.scratch.clone(),
        rounds: options.rounds.unwrap_or(if options.quick { 3 } else { 5 }),
        format: options.fs,
        program: program_under_test(options.program.as_deref())?,
        mkfs_xfs: mkfs_xfs(options.mkfs_xfs.as_deref()),
        skipped: Vec::new(),
    };
    let mkfs_xfs = setting.mkfs_xfs.as_deref().ok();
    let machine = Machine::describe(&setting.scratch, versions(&setting.program, mkfs_xfs));
    let mut cases = Vec::new();
    for source in sources_for(options) {
        let name = source.name();
        if options.only.as_ref().is_none_or(|only| name.contains(only.as_str())) {
            cli::terminal::message(&name);
            cases.push(setting.case(&source)?);
        }
    }
    Ok(BuildReport { machine, cases, skipped: setting.skipped })
}

fn sources_for(options: &BuildOptions) -> Vec<Source> {
    let counts: &[u64] = &[10_000, 20_000, 100_000, 2_000_000];
    let counts = if options.quick { &counts[..3] } else { counts };
    let tree = if options.quick { "/usr/share" } else { "/usr" };
    let tree = options.tree.clone().unwrap_or_else(|| tree.into());
    counts.iter().map(|&count| Source::EmptyFiles(count)).chain([Source::Tree(tree)]).collect()
}

impl Setting {
    fn skip(&mut self, reason: String) {
        eprintln!("SKIPPED {reason}");
        self.skipped.push(reason);
    }

    fn case(&mut self, source: &Source) -> Result<CaseReport, String> {
        let scratch = tempfile::Builder::new()
            .prefix("diskwright-bench-")
            .tempdir_in(&self.scratch)
            .map_err(|error| format!("{}: {error}", self.scratch.display()))?;
        let made = scratch.path().join("source");
        let (directory, census): (&Path, _) = match source {
            Source::EmptyFiles(count) => (&made, sources::empty_files(&made, *count)),
            Source::Tree(path) => (path, sources::census(path)),
        };
        let census = census.map_err(|error| format!("{}: {error}", directory.display()))?;
        let image = scratch.path().join("image");
        let job = BuildJob { source: directory, image: &image, census };
        let contestants = self.contestants(source, census);
        let peak = self.warm_up(&contestants, &job)?;
        let times = self.rounds(&contestants, &job)?;
        let rows = contestants.iter().zip(&times).filter_map(|(contestant, times)| {
            let peak_memory_bytes = contestant.is_ours().then_some(peak);
            Some(ContestantRow {
                program: contestant.name(),
                times: Summary::of(times)?,
                peak_memory_bytes,
            })
        });
        Ok(CaseReport::new(source.name(), census, rows.collect()))
    }

    /// Returns the contestants, the program under test first.
    fn contestants(&mut self, source: &Source, census: Census) -> Vec<Contestant> {
        let mut contestants =
            vec![Contestant::Diskwright(self.program.clone(), self.format.name())];
        let is_tree = matches!(source, Source::Tree(_));
        if self.format == BuildFormat::Xfs {
            // Its peer is mkfs.xfs.
        } else if !is_tree && census.entries > MKE2FS_FILES_MAX {
            self.skip(format!("mke2fs -d of {}: it is quadratic", source.name()));
        } else if let Some(reason) = testkit::missing(Need::Tool("mke2fs")) {
            self.skip(format!("mke2fs -d of {}: {reason}", source.name()));
        } else {
            contestants.push(Contestant::Mke2fs);
        }
        match self.mkfs_xfs.clone() {
            Ok(path) => contestants.push(Contestant::MkfsXfs(path)),
            Err(reason) => self.skip(format!("mkfs.xfs -p of {}: {reason}", source.name())),
        }
        contestants.push(Contestant::Tar);
        contestants
    }

    /// Runs the program under test and tar once without timing, to warm all caches.
    fn warm_up(&self, contestants: &[Contestant], job: &BuildJob<'_>) -> Result<u64, String> {
        timed(&mut Contestant::Tar.prepare(job)?)?;
        let ours = &contestants[0];
        let peak = peak_memory(&mut ours.prepare(job)?)?;
        check(ours, job)?;
        Ok(peak)
    }

    /// Runs all rounds, interleaved, so that temporary disturbances affect all contestants.
    fn rounds(
        &mut self,
        contestants: &[Contestant],
        job: &BuildJob<'_>,
    ) -> Result<Vec<Vec<Duration>>, String> {
        let mut times = vec![Vec::new(); contestants.len()];
        let mut failed = vec![false; contestants.len()];
        for round in 0..self.rounds {
            for (index, contestant) in contestants.iter().enumerate() {
                let used: Duration = times[index].iter().sum();
                if failed[index] || (index > 0 && used > PEER_TIME_MAX) {
                    continue;
                }
                match timed(&mut contestant.prepare(job)?) {
                    Ok(time) => times[index].push(time),
                    Err(error) if index == 0 => return Err(error),
                    Err(error) => {
                        failed[index] = true;
                        self.skip(error);
                        continue;
                    }
                }
                if index == 0 || round == 0 {
                    check(contestant, job)?;
                }
            }
        }
        if job.image.exists() {
            fs::remove_file(job.image).map_err(|error| error.to_string())?;
        }
        Ok(times)
    }
}

/// Checks the new image with the checker, and its number of inodes against the source: a fast but wrong image does not
/// count.
fn check(contestant: &Contestant, job: &BuildJob<'_>) -> Result<(), String> {
    if !contestant.makes_image() {
        return Ok(());
    }
    let format = Format::of(job.image);
    let needs = match format {
        Format::Ext => [Need::Tool("e2fsck"), Need::Tool("debugfs")],
        Format::Xfs => [Need::Tool("xfs_repair"), Need::Tool("xfs_db")],
    };
    if needs.into_iter().any(|need| testkit::missing(need).is_some()) {
        return Ok(());
    }
    let verdict = testkit::verdict(job.image).and_then(|()| {
        let (used, reserved) = match format {
            Format::Ext => (inodes_used(job.image), RESERVED_INODES),
            Format::Xfs => (inodes_used_xfs(job.image), XFS_INODES),
        };
        let used = used.ok_or("the image tells no inode count")?;
        let wanted = job.census.inodes + reserved;
        if used >= wanted { Ok(()) } else { Err(format!("{used} inodes instead of {wanted}")) }
    });
    let Err(output) = verdict else { return Ok(()) };
    let message = format!("the image of {} is wrong:\n{output}", contestant.name());
    if contestant.is_ours() {
        return Err(message);
    }
    cli::terminal::message(&message);
    Ok(())
}

fn inodes_used_xfs(image: &Path) -> Option<u64> {
    let text = testkit::xfs_db(image, &["sb 0", "p icount ifree"]);
    let field = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim_start_matches(" = ").trim().parse::<u64>().ok()
    };
    field("icount")?.checked_sub(field("ifree")?)
}

fn inodes_used(image: &Path) -> Option<u64> {
    let text = testkit::debugfs(image, "stats -h");
    let field = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim().parse::<u64>().ok()
    };
    field("Inode count:")?.checked_sub(field("Free inodes:")?)
}
