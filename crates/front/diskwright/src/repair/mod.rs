//! Repair of an image: planning, execution and restoration.
//!
//! [`Repair::plan`] performs the repair in memory and checks the result, so the remaining damage is known before
//! anything is written. [`Prepared::carry_out`] writes the plan. If the image's own journal or log is usable, each step
//! is one of its transactions. Otherwise the plan is written in place, after an undo file was created. [`restore`]
//! restores an image from an undo file.
//!
//! ```no_run
//! use diskwright::ImageOptions;
//! use diskwright::check::{Collector, Limits, Options};
//! use diskwright::repair::Repair;
//!
//! # fn main() -> diskwright::Result<()> {
//! let repair = Repair::open("root.img".as_ref(), &ImageOptions::default())?;
//! let plan = repair.plan(&Options::default(), &Collector::new(Limits::default()))?;
//! if !plan.steps.is_empty() {
//!     let done = repair.prepare(&plan, None)?.carry_out(&mut |_, _| true)?;
//!     println!("{} steps; {:?} takes them back", plan.steps.len(), done.undo);
//! }
//! # Ok(())
//! # }
//! ```

mod json;
mod standing;
mod text;
mod undo_file;

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::{BlockDevice, OverlayDevice};
use ext4::mmp::MmpDevice;
pub use operations::repair::{Action, Plan, Restored, Step};
use operations::repair::{
    Repairer, Staging, UndoDevice, make_plan, pages_of, try_out, write_in_place, write_through_log,
};

pub use standing::Standing;
pub use text::write_plan;

use crate::check::meter::Meter;
use crate::check::{Collector, Limits, Observer, Options, Report, Summary, format_of_device};
use crate::dispatch::repair as dispatch;
use crate::format::Format;
use crate::{Error, ImageOptions, Result, SuperblockPlace, image, mmp};

/// Image opened for repair. Other programs cannot use it meanwhile.
pub struct Repair {
    path: PathBuf,
    format: Format,
    device: Arc<dyn BlockDevice>,
    /// Same device as `device`, if it is claimed with multiple mount protection.
    claim: Option<Arc<MmpDevice>>,
    /// Same device as `device`, for its counters.
    meter: Arc<Meter>,
    is_writable: bool,
    superblock: Option<SuperblockPlace>,
}

/// Description of an executed plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// True if each step is a transaction of the image's own journal or log.
    pub through_log: bool,
    /// Path of the undo file, if there is one.
    pub undo: Option<PathBuf>,
}

impl Repair {
    /// Opens an image for planning and executing a repair, and detects its format.
    ///
    /// # Errors
    /// If the file cannot be read or written, is in use, or its format cannot be detected.
    pub fn open(path: &Path, options: &ImageOptions) -> Result<Self> {
        Self::with_device(path, image::open_device_to_write(path, options)?, options, true)
    }

    /// Opens an image for planning only. It may be write-protected and read by others.
    ///
    /// # Errors
    /// Same as [`Self::open`], but write access is not required.
    pub fn open_to_plan(path: &Path, options: &ImageOptions) -> Result<Self> {
        let device = image::open_device(path, options)?;
        Self::with_device(path, device, options, false)
    }

    fn with_device(
        path: &Path,
        device: Arc<dyn BlockDevice>,
        options: &ImageOptions,
        is_writable: bool,
    ) -> Result<Self> {
        let meter = Arc::new(Meter::writable(device));
        let device = Arc::clone(&meter) as Arc<dyn BlockDevice>;
        let format = format_of_device(path, &device, options);
        let format = format.map_err(|error| meter.blame(path, error))?;
        let at = |source| Error::image(path, source);
        let claim = if is_writable { mmp::claim(path, format, &device).map_err(at)? } else { None };
        let device = claim.clone().map_or(device, |claim| claim as _);
        let device = dispatch::kept(format, device);
        let superblock = options.superblock;
        Ok(Self { path: path.to_owned(), format, device, claim, meter, is_writable, superblock })
    }

    /// Returns the path of the image.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the format for the repair.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Returns the first device error so far, with its offset. Plans and checks are incomplete then, and unreadable
    /// areas are not written.
    pub fn device_error(&self) -> Option<&str> {
        self.meter.first_error()
    }

    /// Returns the number of failed reads so far.
    pub fn reads_failed(&self) -> u64 {
        self.meter.reads_failed()
    }

    /// Returns the number of bytes read so far.
    pub fn bytes_read(&self) -> u64 {
        self.meter.bytes_read()
    }

    /// Plans the repair. `observer` receives findings and progress. Nothing is written; all changes are kept in memory.
    /// If the device fails to read, [`Self::device_error`] returns the error and the plan has no steps.
    ///
    /// # Errors
    /// If the image cannot be repaired at all, because it has unknown features or too little of it remains.
    pub fn plan(&self, options: &Options, observer: &dyn Observer) -> Result<Plan> {
        let staging = Arc::new(Staging::new(Arc::clone(&self.device)));
        self.plan_in(&staging, options, &|repairer| make_plan(repairer, &staging, observer))
    }

    /// Opens the image for reading in its state after a repair, which is performed in memory only. This allows copying
    /// files from an image that cannot be opened. The plan contains the findings and repairs.
    ///
    /// # Errors
    /// Same as [`Self::plan`], and if the repaired image cannot be opened.
    pub fn salvage(
        &self,
        options: &Options,
        observer: &dyn Observer,
    ) -> Result<(crate::Image, Plan)> {
        let staging = Arc::new(Staging::new(Arc::clone(&self.device)));
        let plan =
            self.plan_in(&staging, options, &|repairer| try_out(repairer, &staging, observer))?;
        let opened = ImageOptions::open_repaired(&self.path, self.format, staging);
        Ok((opened.map_err(|source| self.failed(source))?, plan))
    }

    fn plan_in(
        &self,
        staging: &Arc<Staging>,
        options: &Options,
        make: &dyn Fn(&dyn Repairer) -> vfs::Result<Plan>,
    ) -> Result<Plan> {
        let take = |place| ext4::repair::take_superblock(staging, place);
        let replaced = self.superblock.map(take).transpose();
        let repairer = dispatch::repairer(self.format, options);
        let planned = replaced.and_then(|replaced| Ok((make(&*repairer)?, replaced)));
        let (mut plan, replaced) = match planned {
            Ok((plan, replaced)) => (plan, replaced.flatten()),
            Err(_) if staging.reads_failed() > 0 => (Plan::unknown(staging.reads_failed()), None),
            Err(source) => return Err(self.failed(source)),
        };
        // Findings of the replaced superblock, which the check did not read.
        plan.findings.splice(..0, replaced);
        Ok(plan)
    }

    /// Returns whether a plan will be written through the image's own journal or log. Otherwise it needs an undo file.
    ///
    /// # Errors
    /// If the device fails.
    pub fn has_log_for(&self, plan: &Plan) -> Result<bool> {
        let tried = Arc::new(OverlayDevice::new(Arc::clone(&self.device)));
        let writer =
            dispatch::open_log(self.format, tried).map_err(|source| self.failed(source))?;
        Ok(writer.is_some_and(|writer| operations::repair::fits(&*writer, &plan.steps)))
    }

    /// Prepares a plan of this object for execution and creates the undo file. With `undo`, the old contents are stored
    /// in a new file of that name. Otherwise an undo file next to the image is created only if the image has no usable
    /// log.
    ///
    /// # Errors
    /// If the image cannot be read or the undo file cannot be written.
    ///
    /// # Panics
    /// If the image was opened for planning only.
    pub fn prepare<'r>(&'r self, plan: &'r Plan, undo: Option<&Path>) -> Result<Prepared<'r>> {
        assert!(self.is_writable, "an image that was opened for planning is not written");
        let through_log = self.has_log_for(plan)?;
        let undo = match undo {
            Some(path) => Some((path.to_owned(), undo_file::create(path)?)),
            None if through_log => None,
            None => Some(undo_file::create_for(&self.path)?),
        };
        let (undo, kept) = match undo {
            Some((path, file)) => {
                // Nothing was changed, so the incomplete undo file is useless.
                let kept = self.keep(plan, file, &path).inspect_err(|_| undo_file::remove(&path));
                (Some(path), Some(kept?))
            }
            None => (None, None),
        };
        Ok(Prepared { repair: self, plan, kept, done: Done { through_log, undo } })
    }

    /// Wraps the image with an undo file that contains everything the plan changes.
    fn keep(&self, plan: &Plan, file: File, path: &Path) -> Result<Arc<UndoDevice>> {
        let failed = |error| Error::host("write the undo file", path, error);
        let kept = UndoDevice::begin(Arc::clone(&self.device), Box::new(file)).map_err(failed)?;
        kept.save(pages_of(&plan.steps)).map_err(failed)?;
        Ok(Arc::new(kept))
    }

    /// Checks the current state of the image.
    ///
    /// # Errors
    /// If it cannot be checked at all.
    pub fn check(&self, options: &Options, observer: &dyn Observer) -> Result<Summary> {
        let device = Arc::clone(&self.device);
        crate::check::check_device(self.format, device, options, observer)
            .map_err(|source| self.failed(source))
    }

    /// Returns the findings of a plan as a check report.
    pub fn report_of(&self, plan: &Plan) -> Report {
        self.report(&plan.findings, plan.looked_at)
    }

    /// Returns the findings that a plan cannot repair as a check report.
    pub fn report_of_rest(&self, plan: &Plan) -> Report {
        self.report(&plan.left, plan.summary)
    }

    fn report(&self, findings: &[vfs::check::Finding], summary: Summary) -> Report {
        let collector = Collector::new(Limits::default());
        findings.iter().for_each(|finding| collector.found(finding.clone()));
        let mut report = collector.report_on(&self.path, self.format, summary);
        report.fail(self.device_error());
        report
    }

    fn failed(&self, source: vfs::Error) -> Error {
        self.meter.blame(&self.path, Error::image(&self.path, source))
    }
}

/// Plan that is ready for execution.
pub struct Prepared<'r> {
    repair: &'r Repair,
    plan: &'r Plan,
    kept: Option<Arc<UndoDevice>>,
    done: Done,
}

impl Prepared<'_> {
    /// Returns how the plan will be executed.
    pub fn how(&self) -> &Done {
        &self.done
    }

    /// Abandons the plan. Nothing was changed, and the undo file is removed.
    pub fn give_up(self) {
        if let Some(undo) = &self.done.undo {
            undo_file::remove(undo);
        }
    }

    /// Executes the plan. `progress` receives the amount written and the total, and returns whether to continue.
    ///
    /// # Errors
    /// If the image or the undo file cannot be written, or `progress` cancels. Earlier writes remain: the image can be
    /// repaired again, or restored if there is an undo file.
    pub fn carry_out(self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Done> {
        let device =
            self.kept.clone().map_or_else(|| Arc::clone(&self.repair.device), |kept| kept as _);
        self.write(device, progress).map_err(|source| {
            if let Some(claim) = &self.repair.claim {
                // Other hosts must not mount an image that is partly repaired.
                claim.release_when_dropped(false);
            }
            self.repair.failed(source)
        })?;
        if let (Some(kept), Some(path)) = (&self.kept, &self.done.undo) {
            let repairer = dispatch::repairer(self.repair.format, &Options::default());
            let witnesses = repairer.witnesses(&*self.repair.device);
            let failed = |error| Error::host("write the undo file", path, error);
            kept.finish(&witnesses).map_err(failed)?;
        }
        Ok(self.done)
    }

    fn write(
        &self,
        device: Arc<dyn BlockDevice>,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> vfs::Result<()> {
        let steps = &self.plan.steps;
        if steps.is_empty() {
            return Ok(());
        }
        if self.done.through_log
            && let Some(writer) = dispatch::open_log(self.repair.format, Arc::clone(&device))?
        {
            return write_through_log(device, writer, steps, progress);
        }
        write_in_place(&*device, steps, progress)
    }
}

/// Restores the exact contents of an image before a repair with an undo file. Can be repeated after an interruption,
/// and also after an interrupted repair.
///
/// # Errors
/// If the undo file is invalid or belongs to another image, or the image was changed after the repair; nothing is
/// written then. Also if the image is in use or cannot be written.
pub fn restore(undo: &Path, image: &Path, options: &ImageOptions) -> Result<Restored> {
    let device = image::open_device_to_write(image, options)?;
    // An image of another format, or a damaged one, has no block to claim.
    let claim = ext4::mmp::claim_for_repair(&device, &mmp::options(image))
        .map_err(|source| Error::image(image, source))?;
    let device = claim.map_or(device, |claim| claim as _);
    let file = File::open(undo).map_err(|e| Error::host("open the undo file", undo, e))?;
    operations::repair::restore(&*device, BufReader::new(file)).map_err(|source| Error::Restore {
        image: image.to_owned(),
        undo: undo.to_owned(),
        source,
    })
}
