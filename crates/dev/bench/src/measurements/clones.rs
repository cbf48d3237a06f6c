//! Many clones of one base in this process: time of each step, and memory when all are open.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use diskwright::clones::{CommitOptions, ResetTarget, clone, commit, reset, snapshot};
use diskwright::fs::{Ext4Options, FormatOptions, Image, XfsOptions};

use crate::measurements::options::ClonesOptions;
use crate::measurements::table::Table;

/// Size of the base in bytes. It is sparse.
const BASE_BYTES: u64 = 512 << 20;
/// Files of the base: directories, files in each, and one large file.
const DIRECTORIES: u32 = 40;
const FILES: u32 = 50;
const LARGE_BYTES: usize = 64 << 20;
/// Page size in bytes, the kernel's unit of memory.
const PAGE: u64 = 4096;

/// Creates, changes, snapshots, resets and commits clones in both formats.
pub(crate) fn run(options: &ClonesOptions) -> Result<Table, String> {
    let columns = ["format", "step", "clones", "median ms", "longest ms", "MiB", "files"];
    let mut table = Table::new(&columns);
    let formats: [(&str, FormatOptions); 2] =
        [("ext4", Ext4Options::new().into()), ("xfs", XfsOptions::new().into())];
    for (format, created) in formats {
        let dir = tempfile::tempdir_in(&options.scratch).map_err(text)?;
        let base = dir.path().join("base");
        make_base(&base, created).map_err(text)?;
        measure(format, dir.path(), options, &mut table)?;
    }
    Ok(table)
}

fn make_base(base: &Path, format: FormatOptions) -> diskwright::Result<()> {
    let image = Image::create(base, BASE_BYTES, format)?;
    for dir in 0..DIRECTORIES {
        image.create_dir(&*format!("dir-{dir}"))?;
        for file in 0..FILES {
            image.write(&*format!("dir-{dir}/file-{file}"), format!("{dir} {file}\n"))?;
        }
    }
    image.write("large", vec![7; LARGE_BYTES])?;
    image.close()
}

/// Times of one step.
struct Step<'t> {
    format: &'t str,
    table: &'t mut Table,
}

impl Step<'_> {
    /// Calls `act` for each clone, and adds a row with the times.
    fn each<T>(
        &mut self,
        step: &str,
        names: &[PathBuf],
        mut act: impl FnMut(usize, &Path) -> diskwright::Result<T>,
    ) -> Result<Vec<T>, String> {
        let before = use_of_process()?;
        let (mut times, mut results) = (Vec::new(), Vec::new());
        for (number, name) in names.iter().enumerate() {
            let start = Instant::now();
            results.push(act(number, name).map_err(text)?);
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
        let after = use_of_process()?;
        times.sort_by(f64::total_cmp);
        let longest = times.last().copied().unwrap_or_default();
        self.table.row(vec![
            self.format.to_owned(),
            step.to_owned(),
            names.len().to_string(),
            format!("{:.2}", times[times.len() / 2]),
            format!("{longest:.2}"),
            format!("{:.1}", (after.0 as f64 - before.0 as f64) / f64::from(1 << 20)),
            (after.1 as i64 - before.1 as i64).to_string(),
        ]);
        Ok(results)
    }
}

fn measure(
    format: &str,
    dir: &Path,
    options: &ClonesOptions,
    table: &mut Table,
) -> Result<(), String> {
    let base = dir.join("base");
    let name = |kind: &'static str| move |number| dir.join(format!("{kind}.{number}"));
    let names: Vec<PathBuf> = (0..options.count).map(name("clone")).collect();
    let snapshots: Vec<PathBuf> = (0..options.count).map(name("snapshot")).collect();
    let mut step = Step { format, table };
    step.each("clone", &names, |_, clone_name| clone(&base, &[clone_name], None))?;
    let open = step.each("open", &names, |_, name| Image::open_writable(name))?;
    let read = |number: usize| open[number].read("dir-7/file-7");
    step.each("read a file", &names, |number, _| read(number))?;
    step.each("change three files", &names, |number, _| change(&open[number], number))?;
    step.each("list all files", &names, |number, _| {
        open[number].walk("/").try_for_each(|entry| entry.map(drop))
    })?;
    let mut open: Vec<_> = open.into_iter().map(Some).collect();
    step.each("close", &names, |number, _| open[number].take().map_or(Ok(()), Image::close))?;
    step.each("snapshot", &names, |number, name| snapshot(name, &snapshots[number]))?;
    step.each("change again", &names, |number, name| {
        let image = Image::open_writable(name)?;
        image.write("later", format!("{number}"))?;
        image.close()
    })?;
    step.each("reset", &names, |_, name| reset(name, &ResetTarget::Last))?;
    let committed = dir.join("committed");
    let few = &names[..names.len().min(options.commits as usize)];
    step.each("commit", few, |number, name| {
        commit(&CommitOptions::new(name, &committed).force(true), &mut |_| ())?;
        check(&Image::open(&committed)?, number)
    })?;
    dirty(&mut step, dir, options)?;
    for (number, name) in names.iter().enumerate() {
        Image::open(name).and_then(|image| check(&image, number)).map_err(text)?;
    }
    Ok(())
}

/// Snapshot and reset of a clone with many changes.
fn dirty(step: &mut Step<'_>, dir: &Path, options: &ClonesOptions) -> Result<(), String> {
    let base = dir.join("base");
    let names: Vec<PathBuf> = (0..5).map(|number| dir.join(format!("dirty.{number}"))).collect();
    clone(&base, &names, None).map_err(text)?;
    let mib = options.dirty_mib;
    let fill = |name: &Path, file: &str| {
        let image = Image::open_writable(name)?;
        image.write(file, vec![5; mib << 20])?;
        image.close()
    };
    step.each(&format!("write {mib} MiB"), &names, |_, name| fill(name, "first"))?;
    step.each(&format!("snapshot of {mib} MiB"), &names, |number, name| {
        snapshot(name, &dir.join(format!("dirty.snapshot.{number}")))
    })?;
    names.iter().try_for_each(|name| fill(name, "second")).map_err(text)?;
    step.each(&format!("reset of {mib} MiB"), &names, |_, name| reset(name, &ResetTarget::Last))?;
    Ok(())
}

fn change(image: &Image, number: usize) -> diskwright::Result<()> {
    image.write("dir-0/file-0", format!("clone {number}\n"))?;
    image.write(&*format!("new-{number}"), vec![number as u8; 20_000])?;
    image.remove_file("dir-1/file-1")?;
    image.sync()
}

/// Checks that an image has the changes of one clone and no others.
fn check(image: &Image, number: usize) -> diskwright::Result<()> {
    let is_right = image.read("dir-0/file-0")? == format!("clone {number}\n").as_bytes()
        && image.read(&*format!("new-{number}"))? == vec![number as u8; 20_000]
        && !image.exists("dir-1/file-1")?
        && !image.exists("later")?
        && image.read_dir("/")?.count() <= DIRECTORIES as usize + 3;
    assert!(is_right, "clone {number} has other contents");
    Ok(())
}

/// Returns the resident memory of this process in bytes, and the number of its open files.
fn use_of_process() -> Result<(u64, usize), String> {
    let memory = fs::read_to_string("/proc/self/statm").map_err(text)?;
    let pages = memory.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    let files = fs::read_dir("/proc/self/fd").map_err(text)?.count();
    pages.map(|pages| (pages * PAGE, files)).ok_or_else(|| format!("statm: {memory}"))
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_has_a_row() {
        let scratch = std::env::temp_dir();
        let options = ClonesOptions { count: 2, commits: 1, dirty_mib: 1, scratch };
        let table: serde_json::Value =
            serde_json::from_str(&run(&options).unwrap().json()).unwrap();
        let rows = table["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 2 * 13);
        assert!(rows.iter().all(|row| row[3].as_str().unwrap().parse::<f64>().unwrap() > 0.0));
    }
}
