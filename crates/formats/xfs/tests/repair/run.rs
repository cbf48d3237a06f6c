//! Number of cases, and which of them are checked by `xfs_repair`.
//!
//! `DISKWRIGHT_REPAIR_RUN=CASES[,FIRST[,EACH]]` runs CASES cases over all images, with seeds from `FIRST` on (default
//! 0). Every `EACH`th (default 1) is checked by `xfs_repair`, and all by the own check and against the contents before.
//! Errors are printed when found, and progress occasionally: a run may take days.
//!
//! `REPAIR_CASE=IMAGE,SEED` runs one case, and prints all actions of the repair. `REPAIR_IMAGE=IMAGE` runs the cases of
//! one image only.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

/// Number of cases between progress messages.
const WORD_EACH: u64 = 1000;

/// Seeds to try, and how results are checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct RepairRun {
    pub(super) first: u64,
    /// Number of seeds for each image.
    pub(super) seeds: u64,
    /// `xfs_repair` checks one in this many seeds.
    pub(super) each: u64,
    is_told: bool,
}

impl RepairRun {
    /// Returns the run set in the environment; otherwise `seeds` for each image.
    pub(super) fn asked(seeds: u64, images: u64) -> Self {
        let Ok(asked) = std::env::var("DISKWRIGHT_REPAIR_RUN") else {
            return Self { first: 0, seeds, each: 1, is_told: false };
        };
        Self::named(&asked, images).unwrap_or_else(|| {
            panic!("DISKWRIGHT_REPAIR_RUN is {asked}, which is not CASES[,FIRST[,EACH]]")
        })
    }

    fn named(asked: &str, images: u64) -> Option<Self> {
        let numbers: Option<Vec<u64>> = asked.split(',').map(|part| part.parse().ok()).collect();
        let (cases, first, each) = match numbers?[..] {
            [cases] => (cases, 0, 1),
            [cases, first] => (cases, first, 1),
            [cases, first, each] => (cases, first, each.max(1)),
            _ => return None,
        };
        Some(Self { first, seeds: cases.div_ceil(images), each, is_told: true })
    }

    pub(super) const fn is_judged(&self, seed: u64) -> bool {
        seed.is_multiple_of(self.each)
    }
}

/// Results of a run so far.
pub(super) struct Outcome {
    run: RepairRun,
    begun: Instant,
    tried: AtomicU64,
    wrong: Mutex<Vec<String>>,
}

impl Outcome {
    pub(super) fn new(run: RepairRun) -> Self {
        let wrong = Mutex::default();
        Self { run, begun: Instant::now(), tried: AtomicU64::new(0), wrong }
    }

    /// Counts a case, and keeps its error.
    pub(super) fn add(&self, wrong: Option<String>) {
        let tried = self.tried.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(wrong) = wrong {
            if self.run.is_told {
                eprintln!("WRONG {wrong}");
            }
            self.wrong.lock().push(wrong);
        }
        if self.run.is_told && tried.is_multiple_of(WORD_EACH) {
            let took = self.begun.elapsed().as_secs_f64();
            let (wrong, pace) = (self.wrong.lock().len(), tried as f64 / took);
            eprintln!("{tried} cases, {wrong} wrong, in {took:.0} s ({pace:.1} a second)");
        }
    }

    /// Panics with all errors.
    #[track_caller]
    pub(super) fn assert_right(self) {
        let (wrong, tried) = (self.wrong.into_inner(), self.tried.into_inner());
        assert!(wrong.is_empty(), "{} of {tried} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    }
}

#[test]
fn runs_are_named() {
    let run = RepairRun::named("1000,300,50", 5).unwrap();
    assert_eq!((run.seeds, run.first, run.each), (200, 300, 50));
    assert!(run.is_judged(350) && !run.is_judged(351));
    assert_eq!(RepairRun::named("7", 5).unwrap().seeds, 2);
    assert!(RepairRun::named("many", 5).is_none() && RepairRun::named("1,2,3,4", 5).is_none());
}
