//! `compare MOUNTPOINT THREADS RUNS LIBRARY...`: mounts each library in turn, as often as there are
//! runs, uses it with as many threads, and prints a table of the medians.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use fuse_libraries::client::{Figures, MEASURES, run};
use rustix::mount::{UnmountFlags, unmount};

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mountpoint, threads, runs, libraries @ ..] = &arguments[..] else {
        return Err(io::Error::other("usage: compare MOUNTPOINT THREADS RUNS LIBRARY..."));
    };
    let mountpoint = Path::new(mountpoint);
    let threads = threads.parse().map_err(io::Error::other)?;
    let runs: usize = runs.parse().map_err(io::Error::other)?;
    let mut figures = vec![Vec::new(); libraries.len()];
    // In turn, so that what else the machine does hits all of them.
    for _ in 0..runs {
        for (library, figures) in libraries.iter().zip(&mut figures) {
            figures.push(mounted(library, mountpoint, threads)?);
        }
    }
    print(libraries, &figures);
    Ok(())
}

/// One run with a mount of its own.
fn mounted(library: &str, mountpoint: &Path, threads: usize) -> io::Result<Figures> {
    let before = mountpoint.metadata()?.dev();
    let bare = std::env::current_exe()?.with_file_name("bare");
    let mut server = Command::new(bare).arg(library).arg(mountpoint).spawn()?;
    let figures = ready(&mut server, mountpoint, before).and_then(|()| run(mountpoint, threads));
    // Lazily: a server that hangs must not hang this too.
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

/// Waits until something else than `before` is at the mount point.
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
    println!("| | {} |", libraries.join(" | "));
    println!("|---|{}", "---:|".repeat(libraries.len()));
    for (measure, (name, unit)) in MEASURES.iter().enumerate() {
        let cells = figures.iter().map(|runs| format!("{:.0}", median(runs, measure)));
        println!("| {name}, {unit} | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
}

fn median(runs: &[Figures], measure: usize) -> f64 {
    let mut figures: Vec<f64> = runs.iter().map(|run| run[measure]).collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
