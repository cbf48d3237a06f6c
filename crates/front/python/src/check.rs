//! Properties, checks and repairs of images. Reports are JSON in the format of `docs/check.md`.

use std::num::NonZero;
use std::path::Path;

use diskwright::check::{Collector, Finding, ImageCheck, Limits, Observer, Options, Phase};
use diskwright::repair::{Done, Plan, Repair, Standing};
use diskwright::{Image, Result};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::error;
use crate::hook::Hook;
use crate::names::HostPath;
use crate::place::{ImageSource, part};

/// Name of an image on a device without a name.
const UNNAMED: &str = "the image";

/// Observer that collects findings and can be cancelled by a hook.
struct HookedObserver<'a> {
    collector: &'a Collector,
    hook: &'a Hook,
}

impl Observer for HookedObserver<'_> {
    fn found(&self, finding: Finding) {
        self.collector.found(finding);
    }

    fn progress(&self, phase: Phase, done: u64, total: u64) {
        self.hook.tell((phase.word(), done, total));
        self.hook.goes_on();
    }

    fn is_cancelled(&self) -> bool {
        self.hook.stops()
    }
}

fn options(threads: Option<usize>) -> PyResult<Options> {
    let Some(threads) = threads else { return Ok(Options::default()) };
    let threads = NonZero::new(threads);
    let threads = threads.ok_or_else(|| PyValueError::new_err("threads must be at least 1"))?;
    Ok(Options::default().with_threads(threads))
}

/// Returns the properties of an image as JSON.
#[pyfunction]
pub(crate) fn info(
    py: Python<'_>,
    source: HostPath,
    partition: Option<u32>,
    offset: u64,
) -> PyResult<String> {
    let info = py.detach(|| part(partition, offset, false).info(&source.0));
    let info = info.map_err(|error| error::plain(py, &error))?;
    serde_json::to_string(&info).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// Checks an image and returns the report as JSON.
#[pyfunction]
pub(crate) fn check(
    py: Python<'_>,
    source: &Bound<'_, PyAny>,
    partition: Option<u32>,
    offset: u64,
    threads: Option<usize>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let (place, origin) = ImageSource::of(source)?;
    let (options, hook) = (options(threads)?, Hook::new(progress));
    let checked = py.detach(|| -> Result<_> {
        let open = part(partition, offset, false);
        let subject = match place {
            ImageSource::Path(path) => ImageCheck::open(&path, &open),
            ImageSource::Device(device) => ImageCheck::on_device(Path::new(UNNAMED), device, &open),
        }?;
        let collector = Collector::new(Limits::default());
        let watch = HookedObserver { collector: &collector, hook: &hook };
        let summary = subject.check(&options, &watch)?;
        Ok(collector.report(&subject, summary).json_line())
    });
    hook.end(checked.map_err(|error| error::exception(py, &error, &origin)))
}

/// Opens an image for reading in its state after a repair. Nothing is written.
pub(crate) fn salvaged(
    py: Python<'_>,
    path: &Path,
    open: &diskwright::ImageOptions,
) -> PyResult<Image> {
    let hook = Hook::new(None);
    let opened = py.detach(|| -> Result<_> {
        let repair = Repair::open_to_plan(path, open)?;
        let collector = Collector::new(Limits::NONE);
        let watch = HookedObserver { collector: &collector, hook: &hook };
        Ok(repair.salvage(&Options::default(), &watch)?.0)
    });
    hook.end(opened.map_err(|error| error::plain(py, &error)))
}

/// Plans a repair of an image and, unless only the plan is requested, executes it. Returns findings and results as
/// JSON.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "callers pass keyword arguments")]
pub(crate) fn repair(
    py: Python<'_>,
    source: HostPath,
    partition: Option<u32>,
    offset: u64,
    plan_only: bool,
    undo: Option<HostPath>,
    threads: Option<usize>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    if plan_only && undo.is_some() {
        return Err(PyTypeError::new_err("a plan needs no undo file"));
    }
    let (options, hook) = (options(threads)?, Hook::new(progress));
    let repaired = py.detach(|| -> Result<String> {
        let open = part(partition, offset, false);
        let repair = match plan_only {
            true => Repair::open_to_plan(&source.0, &open),
            false => Repair::open(&source.0, &open),
        }?;
        let collector = Collector::new(Limits::NONE);
        let plan = repair.plan(&options, &HookedObserver { collector: &collector, hook: &hook })?;
        if plan_only || hook.stops() {
            return Ok(repair.json_line(&plan, standing_of(&plan), None));
        }
        let undo = undo.as_ref().map(|undo| undo.0.as_path());
        let (standing, done) = carry_out(&repair, &plan, undo, &options, &hook)?;
        Ok(repair.json_line(&plan, standing, done.as_ref()))
    });
    hook.end(repaired.map_err(|error| error::plain(py, &error)))
}

/// Returns the state of a plan that is not executed.
fn standing_of(plan: &Plan) -> Standing {
    match () {
        () if !plan.steps.is_empty() => Standing::Planned,
        () if plan.findings.is_empty() && plan.summary.is_complete => Standing::Clean,
        () => Standing::Damaged,
    }
}

fn carry_out(
    repair: &Repair,
    plan: &Plan,
    undo: Option<&Path>,
    options: &Options,
    hook: &Hook,
) -> Result<(Standing, Option<Done>)> {
    if plan.steps.is_empty() {
        return Ok((standing_of(plan), None));
    }
    let prepared = repair.prepare(plan, undo)?;
    let done = prepared.carry_out(&mut |written, of| {
        hook.tell(("writing", written, of));
        hook.goes_on()
    })?;
    Ok((repair.standing_after(plan, options)?, Some(done)))
}

/// Restores an image to its state before a repair with an undo file. Returns the number of pages written.
#[pyfunction]
pub(crate) fn restore(
    py: Python<'_>,
    source: HostPath,
    undo: HostPath,
    partition: Option<u32>,
    offset: u64,
) -> PyResult<u64> {
    let open = part(partition, offset, false);
    let restored = py.detach(|| diskwright::repair::restore(&undo.0, &source.0, &open));
    restored.map(|restored| restored.pages).map_err(|error| error::plain(py, &error))
}
