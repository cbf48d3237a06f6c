//! Random operations on a file system and on the reference model: the same results, and the same tree at the end.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use disk::MemoryDevice;
use vfs::{FileSystem, Ino, NewInode};

use super::{Trial, Watchdog};
use crate::fs_tree::{FsTree, Rules};
use crate::model::Model;
use crate::operation::{Generator, Mix, Session, same_outcome};

/// Time limit of a run.
const LIMIT: Duration = Duration::from_secs(1800);

#[track_caller]
fn assert_same(expected: &FsTree, found: &FsTree, what: &str) {
    let list = expected.differences(found, Rules::default());
    assert!(list.is_empty(), "{what}:\n{}", list.join("\n"));
}

/// Runs operations on both, and compares every result and occasionally the trees.
///
/// # Panics
/// If there is a difference.
pub fn one_thread(trial: &Trial<'_>, mix: Mix, seed: u64, steps: usize) -> Arc<MemoryDevice> {
    let device = trial.make();
    let mounted = trial.open(device.clone());
    let model = Model::comparing_as(mounted.file_system(), trial.block_bytes).unwrap();
    let mix = trial.target.adjusted(mix);
    let mix = Mix { respells: mix.respells || model.folds_names(), ..mix };
    Session::prepare(mounted.file_system()).unwrap();
    Session::prepare(&model).unwrap();
    mounted.close().unwrap();
    run(&RandomTrial { trial, model, mix, seed, steps, rules: Rules::default() }, &device);
    device
}

/// Runs operations on an image with existing contents. Space past the end of files, which the tree lacks, is not
/// compared.
///
/// # Panics
/// If there is a difference.
pub fn on_image(trial: &Trial<'_>, mix: Mix, seed: u64, steps: usize) -> Arc<MemoryDevice> {
    let device = trial.make();
    let mounted = trial.open(device.clone());
    let model = Model::of(&FsTree::of(mounted.file_system()).unwrap()).unwrap();
    mounted.close().unwrap();
    let (mix, rules) = (trial.target.adjusted(mix), Rules { holes: false, ..Rules::default() });
    run(&RandomTrial { trial, model, mix, seed, steps, rules }, &device);
    device
}

struct RandomTrial<'r> {
    trial: &'r Trial<'r>,
    /// Expected state of the image.
    model: Model,
    mix: Mix,
    seed: u64,
    steps: usize,
    rules: Rules,
}

impl RandomTrial<'_> {
    #[track_caller]
    fn compare(&self, fs: &dyn FileSystem, what: &str) {
        let (expected, found) = (FsTree::of(&self.model).unwrap(), FsTree::of(fs).unwrap());
        let list = expected.differences(&found, self.rules);
        assert!(list.is_empty(), "{what}:\n{}", list.join("\n"));
    }
}

fn run(run: &RandomTrial<'_>, device: &Arc<MemoryDevice>) {
    let &RandomTrial { trial, ref model, mix, seed, steps, .. } = run;
    let what = format!("{}, seed {seed}", trial.name);
    let _watchdog = Watchdog::new(LIMIT, what.clone());
    let mut fs = trial.open(device.clone());
    let (mut session, mut model_session) = (Session::new(), Session::new());
    let mut generator = Generator::new(seed, mix);
    for number in 1..=steps {
        let step = generator.next_step(model, &model_session);
        let expected = model_session.apply(model, &step);
        let found = session.apply(fs.file_system(), &step);
        let same = same_outcome(&step, &expected, &found);
        assert!(same, "{what}: {step:?}: expected {expected:?}, found {found:?}");
        if number % 97 == 0 {
            run.compare(fs.file_system(), &what);
        }
        if number % 401 == 0 {
            session.close_all(fs.file_system()).unwrap();
            model_session.close_all(model).unwrap();
            fs.close().unwrap();
            fs = trial.open(device.clone());
        }
    }
    run.compare(fs.file_system(), &what);
    // Files that are still open are freed when the file system is closed.
    fs.close().unwrap();
    (trial.check)(device);
}

/// A thread's view of a directory, with its expected contents.
struct Corner {
    model: Model,
    model_session: Session,
    session: Session,
    generator: Generator,
}

impl Corner {
    fn new(fs: &dyn FileSystem, block_bytes: u64, dir: Ino, seed: u64, mix: Mix) -> Self {
        let model = Model::comparing_as(fs, block_bytes).unwrap();
        let mix = Mix { respells: model.folds_names(), ..mix };
        Session::prepare(&model).unwrap();
        let (session, model_session) = (Session::below(dir), Session::new());
        let generator = Generator::new(seed, mix);
        Self { model, model_session, session, generator }
    }

    fn with_prefix(self, prefix: String) -> Self {
        Self { generator: self.generator.with_prefix(prefix), ..self }
    }

    fn step(&mut self, fs: &dyn FileSystem) {
        let step = self.generator.next_step(&self.model, &self.model_session);
        let found = self.session.apply(fs, &step);
        let expected = self.model_session.apply(&self.model, &step);
        let same = same_outcome(&step, &expected, &found);
        assert!(same, "{step:?}: expected {expected:?}, found {found:?}");
    }

    fn tree(mut self, fs: &dyn FileSystem) -> FsTree {
        self.session.close_all(fs).unwrap();
        FsTree::of(&self.model).unwrap()
    }
}

/// Runs several threads, each in its own directory and in a shared one.
///
/// # Panics
/// If there is a difference.
pub fn several_threads(
    trial: &Trial<'_>,
    threads: usize,
    seed: u64,
    steps: usize,
) -> Arc<MemoryDevice> {
    let what = format!("{}, {threads} threads, seed {seed}", trial.name);
    let _watchdog = Watchdog::new(LIMIT, what.clone());
    let device = trial.make();
    let mounted = trial.open(device.clone());
    let fs = mounted.file_system();
    let make = |name: String| fs.mkdir(fs.root(), name.as_bytes(), &NewInode::default()).unwrap();
    let shared = make("shared".into());
    let own: Vec<Ino> = (0..threads).map(|number| make(format!("own{number}"))).collect();
    own.iter().for_each(|&dir| Session::prepare_directory(fs, dir).unwrap());
    let start = Barrier::new(threads);
    let mix = trial.target.adjusted(Mix::ALL);
    let in_shared = Mix { depth_max: 0, names_per_directory: 60, ..mix };
    let work = |number: usize| {
        let seed = seed + number as u64 * 1_000;
        let mut mine = Corner::new(fs, trial.block_bytes, own[number], seed, mix);
        let mut ours = Corner::new(fs, trial.block_bytes, shared, seed + 500, in_shared)
            .with_prefix(format!("t{number}-"));
        start.wait();
        for _ in 0..steps {
            mine.step(fs);
            ours.step(fs);
        }
        (mine.tree(fs), ours.tree(fs))
    };
    let trees: Vec<(FsTree, FsTree)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|number| {
                scope.spawn({
                    let work = &work;
                    move || work(number)
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    let all_shared = FsTree::below(fs, shared).unwrap();
    for (number, (mine, ours)) in trees.iter().enumerate() {
        assert_same(mine, &FsTree::below(fs, own[number]).unwrap(), &what);
        let prefix = format!("t{number}-");
        let is_ours = |path: &[u8]| {
            path.get(..prefix.len()).is_some_and(|own| own.eq_ignore_ascii_case(prefix.as_bytes()))
        };
        let found = all_shared.filter(is_ours);
        assert_same(&ours.filter(|path| !path.is_empty()), &found, &what);
    }
    mounted.close().unwrap();
    (trial.check)(&device);
    device
}
