//! Contestants that do nothing, and workloads with invented costs.

pub(crate) mod chromium;
pub(crate) mod everything;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bench::contestant::{AnyTarget, Contestant, Description, Need, Origin, Session};
use bench::jobs::{Case, Context, Extra, Headline, Job, Published, TimedStep};
use bench::report::Report;
use bench::run::{Observer, Options, ScheduledJob, run};
use bench::target::Host;
use bench::{Cost, Error, Machine, Result};

/// Size of the nonexistent file systems.
pub(crate) const SIZE: u64 = 8 << 30;

/// A contestant that records its starts.
pub(crate) struct Fake {
    pub(crate) description: Description,
    /// Reason for refusing cases with at least this many inodes.
    pub(crate) unsupported: Option<(u64, String)>,
    pub(crate) starts: Rc<RefCell<Vec<String>>>,
}

impl Fake {
    pub(crate) fn new(name: &str) -> Self {
        let side = match name.split(':').next() {
            Some("memory" | "mount") => Origin::Ours,
            Some("kernel") => Origin::Kernel,
            _ => Origin::Other,
        };
        let description = Description {
            name: name.to_owned(),
            side,
            what: format!("What {name} is."),
            ..Description::default()
        };
        Self { description, unsupported: None, starts: Rc::default() }
    }
}

impl Contestant for Fake {
    fn describe(&self) -> Description {
        self.description.clone()
    }

    fn start(&self, need: &Need) -> Result<Box<dyn Session>> {
        if let Some((from, why)) = &self.unsupported
            && need.inodes >= *from
        {
            return Err(Error::Unsupported(why.clone()));
        }
        self.starts.borrow_mut().push(self.description.name.clone());
        Ok(Box::new(FakeSession(Host::new(&self.description.name))))
    }
}

struct FakeSession(Host);

impl Session for FakeSession {
    fn target(&self) -> AnyTarget<'_> {
        AnyTarget::Host(&self.0)
    }

    fn drop_caches(&mut self) -> Result<()> {
        Ok(())
    }

    fn size(&self) -> u64 {
        SIZE
    }

    fn finish(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// Input of an invented workload: contestant, size, and number of the run of these two.
pub(crate) struct Asked<'a> {
    pub(crate) contestant: &'a str,
    pub(crate) x: u64,
    pub(crate) run: u32,
}

type Responder = dyn Fn(&Asked<'_>) -> Result<Vec<TimedStep>>;

/// A workload with given results.
pub(crate) struct FakeJob {
    pub(crate) name: &'static str,
    pub(crate) what: String,
    pub(crate) axis: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) cases: Vec<Case>,
    pub(crate) published: Vec<Published>,
    pub(crate) headlines: Vec<Headline>,
    pub(crate) answer: Box<Responder>,
    pub(crate) runs: RefCell<Vec<(String, u64)>>,
}

impl FakeJob {
    pub(crate) fn new(
        cases: Vec<Case>,
        answer: impl Fn(&Asked<'_>) -> Result<Vec<TimedStep>> + 'static,
    ) -> Self {
        Self {
            name: "create",
            what: "Makes files.".to_owned(),
            axis: "files",
            unit: "files/s",
            cases,
            published: Vec::new(),
            headlines: Vec::new(),
            answer: Box::new(answer),
            runs: RefCell::default(),
        }
    }
}

impl Job for FakeJob {
    fn name(&self) -> &'static str {
        self.name
    }

    fn what(&self) -> String {
        self.what.clone()
    }

    fn axis(&self) -> &'static str {
        self.axis
    }

    fn unit(&self) -> &'static str {
        self.unit
    }

    fn cases(&self) -> Vec<Case> {
        self.cases.clone()
    }

    fn run(
        &self,
        case: &Case,
        session: &mut dyn Session,
        context: &Context<'_>,
    ) -> Result<Vec<TimedStep>> {
        let AnyTarget::Host(host) = session.target() else {
            return Err(Error::Wrong("not the session of these tests".to_owned()));
        };
        let contestant = host.path().display().to_string();
        let this = (contestant.clone(), case.x);
        self.runs.borrow_mut().push(this.clone());
        let run = self.runs.borrow().iter().filter(|one| **one == this).count() as u32;
        context.advance(case.operations / 2)?;
        (self.answer)(&Asked { contestant: &contestant, x: case.x, run })
    }

    fn published(&self) -> Vec<Published> {
        self.published.clone()
    }

    fn headlines(&self) -> Vec<Headline> {
        self.headlines.clone()
    }
}

/// Returns a case of `x` files with the same number of operations.
pub(crate) fn case(x: u64, rounds_max: u32) -> Case {
    let need = Need { inodes: x, bytes: 0, threads: 1, existing: false };
    Case { x, need, operations: x, rounds_max }
}

/// Returns a step with all times in milliseconds.
pub(crate) fn step(
    name: &'static str,
    operations: u64,
    [wall, user, system]: [u64; 3],
) -> TimedStep {
    let [wall, user, system] = [wall, user, system].map(Duration::from_millis);
    TimedStep { name, operations, cost: Cost { wall, user, system }, extras: Vec::new() }
}

pub(crate) fn extra(name: &'static str, unit: &'static str, value: f64) -> Extra {
    Extra { name, unit, value }
}

/// Records all notifications, and cancels after a number of runs.
#[derive(Default)]
pub(crate) struct Notes {
    pub(crate) told: Mutex<Vec<String>>,
    pub(crate) done: Mutex<u64>,
    pub(crate) totals: Mutex<Vec<u64>>,
    pub(crate) stop: AtomicBool,
    pub(crate) stop_at_begin: Option<usize>,
}

impl Notes {
    pub(crate) fn told(&self, about: &str) -> Vec<String> {
        let told = self.told.lock().unwrap();
        told.iter().filter(|line| line.starts_with(about)).cloned().collect()
    }
}

impl Observer for Notes {
    fn total(&self, operations: u64) {
        self.totals.lock().unwrap().push(operations);
    }

    fn begin(&self, workload: &str, contestant: &str, x: u64, round: u32, operations: u64) {
        let line = format!("begin {workload} {contestant} {x} {round} {operations}");
        self.told.lock().unwrap().push(line);
        if self.stop_at_begin == Some(self.told("begin").len()) {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    fn advance(&self, operations: u64) {
        *self.done.lock().unwrap() += operations;
    }

    fn skipped(&self, contestant: &str, why: &str) {
        self.told.lock().unwrap().push(format!("skipped {contestant}: {why}"));
    }

    fn failed(&self, workload: &str, contestant: &str, x: u64, why: &str) {
        self.told.lock().unwrap().push(format!("failed {workload} {contestant} {x}: {why}"));
    }
}

pub(crate) fn entry(job: FakeJob, contestants: Vec<Fake>) -> ScheduledJob {
    let contestants = contestants.into_iter().map(|one| Rc::new(one) as Rc<dyn Contestant>);
    ScheduledJob { job: Box::new(job), contestants: contestants.collect() }
}

pub(crate) fn options(rounds: u32) -> Options {
    Options {
        rounds,
        rounds_most: rounds,
        step_least: Duration::ZERO,
        seed: 7,
        command: "diskwright-bench compare".to_owned(),
        date: "2026-11-21 14:00 UTC".to_owned(),
        machine: Machine {
            cpu: "Example CPU".to_owned(),
            cores: 2,
            memory_bytes: 24 << 30,
            kernel: "6.18.5".to_owned(),
            scratch: "/dev/shm (tmpfs)".to_owned(),
            load: Some(0.25),
            governor: None,
            virtual_machine: Some("Example".to_owned()),
            versions: vec!["diskwright 0.1.0".to_owned()],
        },
    }
}

/// Runs with the observer `notes`.
pub(crate) fn run_with(entries: &[ScheduledJob], rounds: u32, notes: &Notes) -> Report {
    run(entries, &options(rounds), &notes.stop, notes).unwrap()
}
