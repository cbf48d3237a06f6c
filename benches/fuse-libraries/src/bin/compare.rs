//! `compare MOUNTPOINT THREADS[,FILES] RUNS LIBRARY...`: mounts each library in turn, RUNS times, uses it with
//! THREADS threads, and prints a table of medians: the rate, and in brackets the processor time of client and server
//! together, in microseconds.
//!
//! Instead of a library, `NAME=COMMAND` names any program that mounts an empty file system, stays in the foreground
//! and ends when it is unmounted. `{}` in the command is replaced by the mount point.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use fuse_libraries::client::{FILES, Figures, MEASURES, own_work, run};
use rustix::mount::{UnmountFlags, unmount};

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mountpoint, threads, runs, libraries @ ..] = &arguments[..] else {
        return Err(io::Error::other("usage: compare MOUNTPOINT THREADS[,FILES] RUNS LIBRARY..."));
    };
    let mountpoint = Path::new(mountpoint);
    let (threads, files) = match threads.split_once(',') {
        Some((threads, files)) => (threads, files.parse().map_err(io::Error::other)?),
        None => (threads.as_str(), FILES),
    };
    let threads = threads.parse().map_err(io::Error::other)?;
    let runs: usize = runs.parse().map_err(io::Error::other)?;
    let mut figures = vec![Vec::new(); libraries.len()];
    // Libraries alternate, so that other load on the machine affects all of them.
    for _ in 0..runs {
        for (library, figures) in libraries.iter().zip(&mut figures) {
            figures.push(mounted(library, mountpoint, (threads, files))?);
        }
    }
    print(libraries, &figures);
    Ok(())
}

/// Executes one run with a new mount.
fn mounted(
    library: &str,
    mountpoint: &Path,
    (threads, files): (usize, usize),
) -> io::Result<Figures> {
    let before = mountpoint.metadata()?.dev();
    let mut server = server(library, mountpoint)?.spawn()?;
    let figures = ready(&mut server, mountpoint, before).and_then(|()| {
        let pid = server.id();
        run(mountpoint, threads, files, &|| Ok(own_work()? + work_of(pid)?))
    });
    // Lazily, so that a hanging server cannot block this program.
    let unmounted = unmount(mountpoint, UnmountFlags::DETACH);
    if figures.is_err() {
        server.kill()?;
    }
    let status = server.wait()?;
    let figures = figures?;
    unmounted?;
    if !status.success() {
        eprintln!("{library}: ended with {status}");
    }
    Ok(figures)
}

/// Returns the server of a library, or the given command.
fn server(library: &str, mountpoint: &Path) -> io::Result<Command> {
    let Some((_, command)) = library.split_once('=') else {
        let mut bare = Command::new(std::env::current_exe()?.with_file_name("bare"));
        bare.arg(library).arg(mountpoint);
        return Ok(bare);
    };
    let mut words = command.split_whitespace();
    let program = words.next().ok_or_else(|| io::Error::other("a command without a program"))?;
    let mut command = Command::new(program);
    for word in words {
        match word {
            "{}" => command.arg(mountpoint),
            _ => command.arg(word),
        };
    }
    Ok(command)
}

/// Waits until the mount point shows another device than `before`.
fn ready(server: &mut Child, mountpoint: &Path, before: u64) -> io::Result<()> {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(10) {
        if let Some(status) = server.try_wait()? {
            return Err(io::Error::other(format!("the server ended with {status}")));
        }
        if mountpoint.metadata().is_ok_and(|metadata| metadata.dev() != before) {
            return Ok(());
        }
        sleep(Duration::from_millis(10));
    }
    Err(io::Error::other("not mounted after ten seconds"))
}

fn print(libraries: &[String], figures: &[Vec<Figures>]) {
    let names = libraries.iter().map(|library| library.split('=').next().unwrap_or_default());
    println!("| | {} |", names.collect::<Vec<_>>().join(" | "));
    println!("|---|{}", "---:|".repeat(libraries.len()));
    for (measure, (name, unit)) in MEASURES.iter().enumerate() {
        let cells = figures.iter().map(|runs| {
            let rate = median(runs, |figures| figures[measure].rate);
            let work = median(runs, |figures| figures[measure].work);
            format!("{rate:.0} ({work:.0})")
        });
        println!("| {name}, {unit} | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
}

fn median(runs: &[Figures], of: impl Fn(&Figures) -> f64) -> f64 {
    let mut figures: Vec<f64> = runs.iter().map(of).collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Returns the processor time of a process's threads: the first number in `schedstat`, in nanoseconds.
fn work_of(pid: u32) -> io::Result<Duration> {
    let mut work = Duration::ZERO;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let statistics = fs::read_to_string(thread?.path().join("schedstat"))?;
        let nanoseconds = statistics.split(' ').next().and_then(|number| number.parse().ok());
        work += Duration::from_nanos(nanoseconds.ok_or(io::ErrorKind::InvalidData)?);
    }
    Ok(work)
}
