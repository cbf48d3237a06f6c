//! Creating and removing many files.

use std::thread;
use std::time::{Duration, Instant};

use super::Timing;
use super::target::{Contestant, Image, Target};

/// Makes `files` files in one directory per thread, and removes them in the same order.
pub(super) fn run(
    contestant: Contestant,
    image: &Image,
    threads: u32,
    files: u32,
) -> Result<Vec<(&'static str, Timing)>, String> {
    let target = image.open(contestant)?;
    for thread in 0..threads {
        target.add_directory(&format!("d{thread}"))?;
    }
    target.sync()?;
    let create = in_threads(&*target, threads, |target, directory| {
        let mut name = String::new();
        for file in 0..files {
            name_of(file, &mut name);
            target.create(directory, &name)?;
        }
        Ok(())
    })?;
    let unlink = in_threads(&*target, threads, |target, directory| {
        let mut name = String::new();
        for file in 0..files {
            name_of(file, &mut name);
            target.unlink(directory, &name)?;
        }
        Ok(())
    })?;
    target.close()?;
    Ok(vec![("create", create), ("unlink", unlink)])
}

fn name_of(file: u32, name: &mut String) {
    use std::fmt::Write;
    name.clear();
    let _ = write!(name, "file-{file:08}");
}

/// Runs `work` once per thread, then a sync.
pub(super) fn in_threads(
    target: &dyn Target,
    threads: u32,
    work: impl Fn(&dyn Target, usize) -> Result<(), String> + Sync,
) -> Result<Timing, String> {
    let start = Instant::now();
    thread::scope(|scope| {
        let handles: Vec<_> = (0..threads as usize)
            .map(|thread| {
                let work = &work;
                scope.spawn(move || work(target, thread))
            })
            .collect();
        handles.into_iter().try_for_each(|handle| {
            handle.join().unwrap_or_else(|_| Err("a thread panicked".to_owned()))
        })
    })?;
    let operations: Duration = start.elapsed();
    target.sync()?;
    Ok(Timing { operations, durable: start.elapsed() })
}
