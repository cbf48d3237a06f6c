//! `diskwright repair`.

use std::io::{self, IsTerminal, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use diskwright::check::{Finding, Observer, Options, Phase};
use diskwright::repair::{Done, Plan, Prepared, Repair, Standing, restore, write_plan};
use diskwright::{Error, ImageOptions, Outcome, Result, text};

use crate::commands::arguments::{PlaceArgs, SuperblockArgs};
use crate::terminal::{self, RepairProgress};

const NOTES: &str = "\
Examples:
  diskwright repair --plan root.img
  diskwright repair root.img
  diskwright repair --yes --undo root.undo root.img
  diskwright repair --restore root.undo root.img

First, the journal or log is replayed and the repair is computed in memory. The result is checked, and the \
planned repairs and the damage that cannot be repaired are shown. Then the repair is written through the journal or \
log of the image, in transactions. If that journal or log is unusable, the repair is written in place, after the \
overwritten blocks are saved to an undo file: IMAGE.undo, or the file of --undo. After a crash, run the repair \
again, or undo it with --restore if there is an undo file. docs/check.md lists all findings and their repairs.

Exit status:
  0    no damage remains, or --restore restored the image
  1    damage remains: it cannot be repaired, or --plan changed nothing; or --restore refused an
       image that was changed after the repair, or another image
  2    invalid arguments, or --yes is missing and there is no terminal to ask on
  3    unknown format, unsupported features, or too little of the image is left
  4    the image is in use or cannot be read or written, or its device returned read errors
  130  interrupted";

/// Interval at which progress is shown.
const TICK: Duration = Duration::from_millis(100);

/// Repair the damage that check finds in an image
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct RepairArgs {
    /// Image file or block device
    image: PathBuf,

    /// Show the planned repairs without changing the image
    #[arg(long, conflicts_with_all = ["yes", "undo", "restore"])]
    plan: bool,

    /// Repair without asking for confirmation
    #[arg(long, short)]
    yes: bool,

    /// Save the overwritten blocks to FILE, which must not exist, so that --restore can undo the repair
    #[arg(long, value_name = "FILE")]
    undo: Option<PathBuf>,

    /// Undo a repair: restore the image from the undo file that the repair wrote
    #[arg(long, value_name = "FILE", conflicts_with_all = ["yes", "undo", "json", "threads"])]
    restore: Option<PathBuf>,

    /// Write the findings and repairs as one JSON object to standard output
    #[arg(long)]
    json: bool,

    /// Use at most N threads; the repairs do not depend on N [default: one per processor, at most 8]
    #[arg(long, value_name = "N")]
    threads: Option<NonZero<usize>>,

    #[command(flatten)]
    place: PlaceArgs,

    #[command(flatten)]
    superblock: SuperblockArgs,
}

pub(crate) fn run(args: &RepairArgs) -> Result<Outcome> {
    let mut open = args.place.options(false);
    open.superblock = args.superblock.superblock;
    if let Some(undo) = &args.restore {
        return bring_back(undo, &args.image, &open);
    }
    let stop = diskwright::stop_on_signals()?;
    let repair = match args.plan {
        true => Repair::open_to_plan(&args.image, &open)?,
        false => Repair::open(&args.image, &open)?,
    };
    let options = Options::default();
    let options = args.threads.map_or(options, |threads| options.with_threads(threads));
    let plan = {
        let watch = PlanProgress::new(stop);
        let plan = repair.plan(&options, &watch);
        drop(watch);
        plan?
    };
    if stop.load(Ordering::Relaxed) {
        terminal::message(&"interrupted: nothing was changed");
        return Ok(Outcome::Interrupted);
    }
    Job { args, repair, plan, options, stop }.run()
}

fn bring_back(undo: &Path, image: &Path, open: &ImageOptions) -> Result<Outcome> {
    let restored = restore(undo, image, open)?;
    let pages = restored.pages;
    let what = match (pages, restored.was_finished) {
        (0, _) => "nothing to restore: the image is in its state before the repair".into(),
        (_, true) => format!("restored {pages} pages: the image is in its state before the repair"),
        (_, false) => format!(
            "restored {pages} pages: the image is in its state before the incomplete repair"
        ),
    };
    terminal::message(&what);
    Ok(Outcome::Done)
}

/// A repair with a finished plan.
struct Job<'a> {
    args: &'a RepairArgs,
    repair: Repair,
    plan: Plan,
    options: Options,
    stop: &'static AtomicBool,
}

impl Job<'_> {
    fn run(&self) -> Result<Outcome> {
        if !self.args.json {
            self.show_plan()?;
        }
        if self.plan.steps.is_empty() {
            let is_clean = self.plan.findings.is_empty() && self.plan.summary.is_complete;
            let standing = if is_clean { Standing::Clean } else { Standing::Damaged };
            return self.end(self.unless_device_failed(standing), None);
        }
        if self.args.plan {
            return self.end(self.unless_device_failed(Standing::Planned), None);
        }
        if !self.may_begin()? {
            terminal::message(&"nothing was changed");
            return Ok(Outcome::No);
        }
        let prepared = self.repair.prepare(&self.plan, self.args.undo.as_deref())?;
        if self.stop.load(Ordering::Relaxed) {
            prepared.give_up();
            terminal::message(&"interrupted: nothing was changed");
            return Ok(Outcome::Interrupted);
        }
        let Some(done) = self.carry_out(prepared)? else {
            terminal::message(&"interrupted: the repair is incomplete; run it again");
            return Ok(Outcome::Interrupted);
        };
        let standing = self.repair.standing_after(&self.plan, &self.options)?;
        self.end(standing, Some(&done))
    }

    /// Returns `standing`, or incomplete if the device has failed.
    fn unless_device_failed(&self, standing: Standing) -> Standing {
        self.repair.device_error().map_or(standing, |_| Standing::Incomplete)
    }

    fn show_plan(&self) -> Result<()> {
        terminal::with_output(|out| {
            self.repair.report_of(&self.plan).write_text(out).map_err(Error::Output)?;
            write_plan(&self.plan, out).map_err(Error::Output)?;
            if !self.plan.steps.is_empty() && !self.plan.left.is_empty() {
                writeln!(out, "remaining damage:").map_err(Error::Output)?;
                self.repair.report_of_rest(&self.plan).write_text(out).map_err(Error::Output)?;
            }
            Ok(())
        })
    }

    /// Asks for confirmation unless it was given on the command line.
    fn may_begin(&self) -> Result<bool> {
        if self.args.yes {
            return Ok(true);
        }
        let (mut err, stdin) = (io::stderr(), io::stdin());
        if !stdin.is_terminal() || !err.is_terminal() {
            let what = "nothing was changed: use --yes to carry out the repairs, or --plan to show \
                        them only";
            return Err(Error::Usage(what.into()));
        }
        let image = text::shown(&self.args.image);
        let _ = write!(err, "repair {image} as shown? [y/N] ");
        let mut answer = String::new();
        stdin.read_line(&mut answer).map_err(Error::Output)?;
        Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
    }

    /// Carries out the plan. Returns `None` if interrupted.
    fn carry_out(&self, prepared: Prepared<'_>) -> Result<Option<Done>> {
        // Print this first: it is needed if the process is killed.
        if let Some(undo) = &prepared.how().undo {
            let [undo, image] = [undo, &*self.args.image].map(|path| text::shown(path).to_string());
            terminal::message(&format_args!(
                "overwritten blocks are saved to {undo}; to undo the repair: diskwright repair \
                 --restore {undo} {image}"
            ));
        }
        let bar = RepairProgress::new("writing");
        let carried_out = prepared.carry_out(&mut |done, total| {
            bar.show("", done, total);
            !self.stop.load(Ordering::Relaxed)
        });
        drop(bar);
        match carried_out {
            Err(error) if self.stop.load(Ordering::Relaxed) => {
                terminal::message(&error);
                Ok(None)
            }
            carried_out => carried_out.map(Some),
        }
    }

    /// Prints the result.
    fn end(&self, standing: Standing, done: Option<&Done>) -> Result<Outcome> {
        if self.args.json {
            let line = self.repair.json_line(&self.plan, standing, done);
            terminal::with_output(|out| out.write_all(line.as_bytes()).map_err(Error::Output))?;
        } else if self.plan.steps.is_empty() && standing == Standing::Damaged {
            terminal::message(&"none of the damage can be repaired");
        } else if done.is_some() || standing == Standing::Incomplete {
            terminal::message(&standing.sentence());
        }
        Ok(match standing {
            Standing::Clean | Standing::Repaired => Outcome::Done,
            Standing::Planned | Standing::Damaged => Outcome::No,
            Standing::Incomplete => Outcome::Io,
        })
    }
}

/// Shows the progress of planning.
pub(super) struct PlanProgress {
    stop: &'static AtomicBool,
    bar: RepairProgress,
    shown: Mutex<Instant>,
}

impl PlanProgress {
    pub(super) fn new(stop: &'static AtomicBool) -> Self {
        Self { stop, bar: RepairProgress::new("planning"), shown: Mutex::new(Instant::now()) }
    }
}

impl Observer for PlanProgress {
    fn found(&self, _: Finding) {}

    fn progress(&self, phase: Phase, done: u64, total: u64) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.elapsed() >= TICK {
            *shown = Instant::now();
            self.bar.show(phase.word(), done, total);
        }
    }

    fn is_cancelled(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
