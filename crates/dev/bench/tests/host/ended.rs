//! Programs stopped or killed during a workload.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Instant;

use bench::contestant::{Contestant, Session};
use bench::environments::{Directory, Kernel};
use bench::jobs::{Case, Context, Job, TimedStep};
use bench::target::Target;
use bench::{Error, Result, run, with_target};
use diskwright::stop_on_signals;
use rustix::process::{Pid, Signal, kill_process};
use testkit::{require, wait_until};

use super::NEED;
use super::kernel::spec;
use super::traces::{assert_no_trace, assert_no_trace_at_last, loop_devices};

/// Arguments that make this program a child.
const CHILD: [&str; 4] = ["host::ended::child", "--exact", "--ignored", "--nocapture"];
/// Variable with the child's target.
const TARGET: &str = "DISKWRIGHT_TEST_TARGET";
const SCRATCH: &str = "DISKWRIGHT_TEST_SCRATCH";
/// Variable that makes a child ignore stop requests.
const DEAF: &str = "DISKWRIGHT_TEST_DEAF";
/// A child prints this when its workload has begun.
const READY: &str = "ready";

/// Number of children killed during their start.
fn kills() -> u32 {
    testkit::effort(8, 16, 200)
}

/// Exit status of a child that stopped on request.
const STOPPED: i32 = 42;
/// Exit status of a child whose target is unavailable.
const REFUSED: i32 = 43;
/// User ID of `nobody`, without privileges.
const NOBODY: u32 = 65534;

/// Creates and removes files until stopped.
struct Endless;

impl Job for Endless {
    fn name(&self) -> &'static str {
        "endless"
    }

    fn what(&self) -> String {
        "makes and removes files".into()
    }

    fn axis(&self) -> &'static str {
        "files"
    }

    fn unit(&self) -> &'static str {
        "files/s"
    }

    fn cases(&self) -> Vec<Case> {
        vec![Case { x: 1, need: NEED, operations: u64::MAX, rounds_max: 1 }]
    }

    fn run(
        &self,
        _: &Case,
        session: &mut dyn Session,
        context: &Context<'_>,
    ) -> Result<Vec<TimedStep>> {
        with_target!(session.target(), target => forever(target, context))
    }
}

fn forever<T: Target>(target: &T, context: &Context<'_>) -> Result<Vec<TimedStep>> {
    let top = target.top()?;
    let is_deaf = std::env::var_os(DEAF).is_some();
    for round in 0_u64.. {
        for number in 0..100 {
            let file = target.create(&top, format!("{number}").as_bytes(), false)?;
            target.write(&file, 0, &[7; 5000])?;
            target.close(file)?;
        }
        if round == 1 {
            println!("{READY}");
        }
        for number in 0..50 {
            target.unlink(&top, format!("{number}").as_bytes())?;
        }
        let goes_on = context.advance(150);
        if !is_deaf {
            goes_on?;
        }
    }
    Ok(Vec::new())
}

/// Not a test: the program that the other tests start.
#[test]
#[ignore = "a part of other tests, which start it"]
fn child() {
    let Ok(target) = std::env::var(TARGET) else { return };
    let scratch = std::env::var(SCRATCH).unwrap();
    let stop = stop_on_signals().unwrap();
    let contestant: Box<dyn Contestant> = if target == "directory" {
        Box::new(Directory::new(scratch, None))
    } else {
        Box::new(Kernel::new(spec(&target), None, scratch))
    };
    let done = AtomicU64::new(0);
    let progress = |operations| {
        done.fetch_add(operations, Ordering::Relaxed);
    };
    let case = Endless.cases()[0];
    let ended = run::once(&Endless, &case, &*contestant, 1, stop, &progress);
    if let Err(Error::Unsupported(why)) = ended {
        println!("{why}");
        std::process::exit(REFUSED);
    }
    assert!(matches!(ended, Err(Error::Interrupted)), "{:?}", ended.map(|steps| steps.len()));
    assert!(done.load(Ordering::Relaxed) > 0);
    std::process::exit(STOPPED);
}

fn command(target: &str, scratch: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(CHILD);
    command.env(TARGET, target).env(SCRATCH, scratch).stdout(Stdio::piped());
    command
}

/// Starts a child and waits until its workload has begun.
fn started(command: &mut Command) -> Child {
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // The test harness may have printed the start of the line.
    let is_ready = lines.map_while(|line| line.ok()).any(|line| line.ends_with(READY));
    assert!(is_ready, "it ended early: {:?}", child.wait());
    child
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Returns whether a signal to a process is still pending.
fn is_pending(child: &Child, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).unwrap();
    u64::from_str_radix(pending.trim(), 16).unwrap() >> (signal.as_raw() - 1) & 1 == 1
}

/// Returns whether a process runs with this word in its command line.
fn is_in_a_command(word: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut lines = processes.flat_map(|process| fs::read(process.path().join("cmdline")));
    lines.any(|line| String::from_utf8_lossy(&line).contains(word))
}

fn signalled(target: &str, signal: Signal) -> ExitStatus {
    let scratch = testkit::scratch();
    let mut child = started(&mut command(target, scratch.path()));
    if target == "directory" {
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1);
    } else {
        assert_eq!(loop_devices(scratch.path()).len(), 1);
    }
    send(&child, signal);
    let status = child.wait().unwrap();
    if signal == Signal::KILL {
        assert_no_trace_at_last(scratch.path());
    } else {
        assert_no_trace(scratch.path());
    }
    status
}

#[test]
fn signals_end_a_run_in_a_directory_and_nothing_stays() {
    assert_eq!(signalled("directory", Signal::INT).code(), Some(STOPPED));
    assert_eq!(signalled("directory", Signal::TERM).code(), Some(STOPPED));
}

#[test]
fn signals_end_a_run_on_a_kernel_target_and_nothing_stays() {
    require!(Mount("ext4"), Mount("xfs"));
    assert_eq!(signalled("kernel:ext4", Signal::INT).code(), Some(STOPPED));
    assert_eq!(signalled("kernel:xfs", Signal::TERM).code(), Some(STOPPED));
}

#[test]
fn nothing_stays_of_kernel_targets_of_a_killed_program() {
    require!(Mount("ext4"), Mount("xfs"));
    assert_eq!(signalled("kernel:ext4", Signal::KILL).signal(), Some(9));
    assert_eq!(signalled("kernel:xfs", Signal::KILL).signal(), Some(9));
}

#[test]
fn the_second_signal_ends_a_program_at_once() {
    let scratch = testkit::scratch();
    let mut child = started(command("directory", scratch.path()).env(DEAF, "1"));
    send(&child, Signal::INT);
    // Two pending signals would be merged.
    wait_until("the first signal to be taken", || !is_pending(&child, Signal::INT));
    assert!(child.try_wait().unwrap().is_none(), "the first one only asks");
    send(&child, Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

/// Kills at moments throughout the start of the program, also while the image is created, mounted
/// and unmounted.
#[test]
fn nothing_stays_whenever_a_program_is_killed() {
    require!(Mount("ext4"), Mount("xfs"));
    let scratch = testkit::scratch();
    let clock = Instant::now();
    let mut first = started(&mut command("kernel:xfs", scratch.path()));
    let whole = clock.elapsed();
    first.kill().unwrap();
    first.wait().unwrap();
    let mut random = fastrand::Rng::with_seed(3);
    for round in 0..kills() {
        let target = if round % 2 == 0 { "kernel:ext4" } else { "kernel:xfs" };
        let mut child = command(target, scratch.path()).stdout(Stdio::null()).spawn().unwrap();
        let share = (f64::from(round) + random.f64()) / f64::from(kills());
        sleep(whole.mul_f64(share));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // A `mount` process may outlive the process that started it, and mount later.
    let name = scratch.path().file_name().unwrap().to_str().unwrap();
    wait_until("what killed programs have started to end", || !is_in_a_command(name));
    assert_no_trace_at_last(scratch.path());
}

#[test]
fn users_without_rights_are_told_what_is_missing() {
    require!(Root);
    let scratch = testkit::scratch();
    // The test program, but not by its path, which may contain directories without access for
    // others.
    let mut user = Command::new("/proc/self/exe");
    user.args(CHILD).env(TARGET, "kernel:ext4").env(SCRATCH, scratch.path()).current_dir("/");
    let output = user.uid(NOBODY).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(REFUSED), "{said}");
    assert!(said.contains("kernel targets need root"), "{said}");
    assert_no_trace(scratch.path());
}
