//! Repairing an image: the plan of what is to be done, carrying it out, and taking it back.
//!
//! [`Repair::plan`] tries the repair out in memory and checks what comes of it, so that what the plan leaves is known
//! before anything is written. [`Prepared::carry_out`] writes the plan: through the image's own journal or log where that
//! can be trusted, each step a transaction, and else in place, with an undo file that is made first. [`restore`] brings
//! an image back by an undo file.
//!
//! ```no_run
//! use diskwright::OpenImage;
//! use diskwright::check::{Collector, Limits, Options};
//! use diskwright::repair::Repair;
//!
//! # fn main() -> diskwright::Result<()> {
//! let repair = Repair::open("root.img".as_ref(), &OpenImage::default())?;
//! let plan = repair.plan(&Options::default(), &Collector::new(Limits::default()))?;
//! if !plan.steps.is_empty() {
//!     let done = repair.prepare(&plan, None)?.carry_out(&mut |_, _| true)?;
//!     println!("{} steps; {:?} takes them back", plan.steps.len(), done.undo);
//! }
//! # Ok(())
//! # }
//! ```

mod dispatch;
mod json;
mod text;
mod undo_file;

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use ::repair::{Action, Plan, Restored, Step};
use ::repair::{
    Repairer, Staging, UndoDevice, make_plan, pages_of, try_out, write_in_place, write_through_log,
};
use blockdev::{BlockDevice, FileDevice, OverlayDevice};

pub use json::Standing;
pub use text::{paths_of, write_plan};

use crate::check::meter::Meter;
use crate::check::{Collector, Limits, Observer, Options, Report, Summary, format_of_device};
use crate::format::Format;
use crate::{Error, OpenImage, Result, SuperblockPlace, image, lock};

/// An image that is open to be repaired. Nobody else can use it meanwhile.
pub struct Repair {
    path: PathBuf,
    format: Format,
    device: Arc<dyn BlockDevice>,
    /// The same device.
    meter: Arc<Meter>,
    is_writable: bool,
    superblock: Option<SuperblockPlace>,
}

/// How a plan was carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Whether each step was a transaction of the image's own journal or log.
    pub through_log: bool,
    /// The undo file, if one was made.
    pub undo: Option<PathBuf>,
}

impl Repair {
    /// Opens an image to plan its repair and to carry it out, and finds its format.
    ///
    /// # Errors
    /// If the file cannot be read or written or is in use, or nothing in it tells a format.
    pub fn open(path: &Path, options: &OpenImage) -> Result<Self> {
        let file = lock::open_to_write(path)?;
        let device = FileDevice::new(file).map_err(|e| Error::host("read", path, e))?;
        let device = image::window(path, Arc::new(device), options)?;
        Self::with_device(path, device, options, true)
    }

    /// Opens an image to plan its repair only: it may be write-protected, and others may read it.
    ///
    /// # Errors
    /// As [`Self::open`], but for the right to write.
    pub fn open_to_plan(path: &Path, options: &OpenImage) -> Result<Self> {
        let device = image::open_device(path, options)?;
        Self::with_device(path, device, options, false)
    }

    fn with_device(
        path: &Path,
        device: Arc<dyn BlockDevice>,
        options: &OpenImage,
        is_writable: bool,
    ) -> Result<Self> {
        let meter = Arc::new(Meter::writable(device));
        let device = Arc::clone(&meter) as Arc<dyn BlockDevice>;
        let format = format_of_device(path, &device, options);
        let format = format.map_err(|error| meter.blame(path, error))?;
        let superblock = options.superblock;
        Ok(Self { path: path.to_owned(), format, device, meter, is_writable, superblock })
    }

    /// The image file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The format that it is repaired as.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The first error of its device until now, with its place. Then a plan, or a check, is incomplete: nothing is
    /// written where nothing could be read.
    pub fn device_error(&self) -> Option<&str> {
        self.meter.first_error()
    }

    /// Number of reads that failed until now.
    pub fn reads_failed(&self) -> u64 {
        self.meter.reads_failed()
    }

    /// Finds out what must be done. `observer` is told of what is found, and how far it is. Nothing is written. Memory
    /// is taken for all that changes. If the device fails to read, [`Self::device_error`] has the error, and the plan has
    /// no steps.
    ///
    /// # Errors
    /// If the image cannot be repaired at all: it has features that are not known, or not enough is left of it.
    pub fn plan(&self, options: &Options, observer: &dyn Observer) -> Result<Plan> {
        let staging = Arc::new(Staging::new(Arc::clone(&self.device)));
        self.plan_in(&staging, options, &|repairer| make_plan(repairer, &staging, observer))
    }

    /// Opens the image for reading as it would be after a repair, which is tried out in memory only: for taking out
    /// what is left of an image that cannot be opened. The plan tells what is wrong, and what was done about it.
    ///
    /// # Errors
    /// As [`Self::plan`]; and if the image cannot be opened even so.
    pub fn salvage(
        &self,
        options: &Options,
        observer: &dyn Observer,
    ) -> Result<(crate::Image, Plan)> {
        let staging = Arc::new(Staging::new(Arc::clone(&self.device)));
        let plan =
            self.plan_in(&staging, options, &|repairer| try_out(repairer, &staging, observer))?;
        let opened = image::open_repaired(self.format, staging);
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
        // The check did not see the superblock that the copy replaced.
        plan.findings.splice(..0, replaced);
        Ok(plan)
    }

    /// Whether a plan will be written through the image's own journal or log. Otherwise it needs an undo file.
    ///
    /// # Errors
    /// If the device fails.
    pub fn has_log_for(&self, plan: &Plan) -> Result<bool> {
        let tried = Arc::new(OverlayDevice::new(Arc::clone(&self.device)));
        let writer =
            dispatch::open_log(self.format, tried).map_err(|source| self.failed(source))?;
        Ok(writer.is_some_and(|writer| ::repair::fits(&*writer, &plan.steps)))
    }

    /// Makes ready to carry out a plan that was made by this object: makes the undo file. With `undo`, what was there
    /// before is kept in a new file of that name; without, it is kept only if the image has no log that the plan can be
    /// written through, beside the image.
    ///
    /// # Errors
    /// If the image cannot be read or the undo file cannot be written.
    ///
    /// # Panics
    /// If the image was opened to plan only.
    pub fn prepare<'r>(&'r self, plan: &'r Plan, undo: Option<&Path>) -> Result<Prepared<'r>> {
        assert!(self.is_writable, "an image that was opened to plan only is not written to");
        let through_log = self.has_log_for(plan)?;
        let undo = match undo {
            Some(path) => Some((path.to_owned(), undo_file::create(path)?)),
            None if through_log => None,
            None => Some(undo_file::create_for(&self.path)?),
        };
        let (undo, kept) = match undo {
            Some((path, file)) => {
                // Nothing was changed: what there is of it is of no use, and its name is wanted again.
                let kept = self.keep(plan, file, &path).inspect_err(|_| undo_file::remove(&path));
                (Some(path), Some(kept?))
            }
            None => (None, None),
        };
        Ok(Prepared { repair: self, plan, kept, done: Done { through_log, undo } })
    }

    /// The image, with an undo file of all that the plan changes.
    fn keep(&self, plan: &Plan, file: File, path: &Path) -> Result<Arc<UndoDevice>> {
        let failed = |error| Error::host("write the undo file", path, error);
        let kept = UndoDevice::begin(Arc::clone(&self.device), Box::new(file)).map_err(failed)?;
        kept.save(pages_of(&plan.steps)).map_err(failed)?;
        Ok(Arc::new(kept))
    }

    /// Checks the image as it is now.
    ///
    /// # Errors
    /// If it cannot be checked at all.
    pub fn check(&self, options: &Options, observer: &dyn Observer) -> Result<Summary> {
        let device = Arc::clone(&self.device);
        crate::check::check_device(self.format, device, options, observer)
            .map_err(|source| self.failed(source))
    }

    /// What a plan found, as a report of a check.
    pub fn report_of(&self, plan: &Plan) -> Report {
        self.report(&plan.findings, plan.looked_at)
    }

    /// What a plan cannot repair, as a report of a check.
    pub fn report_of_rest(&self, plan: &Plan) -> Report {
        self.report(&plan.left, plan.summary)
    }

    fn report(&self, findings: &[::check::Finding], summary: Summary) -> Report {
        let collector = Collector::new(Limits::default());
        findings.iter().for_each(|finding| collector.found(finding.clone()));
        let mut report = collector.report_on(&self.path, self.format, summary);
        report.fail(self.device_error());
        report
    }

    fn failed(&self, source: vfs::Error) -> Error {
        self.meter.blame(&self.path, Error::Image { image: self.path.clone(), source })
    }
}

/// A plan that is about to be carried out.
pub struct Prepared<'r> {
    repair: &'r Repair,
    plan: &'r Plan,
    kept: Option<Arc<UndoDevice>>,
    done: Done,
}

impl Prepared<'_> {
    /// How it will be carried out.
    pub fn how(&self) -> &Done {
        &self.done
    }

    /// Does not carry it out: nothing was changed, and nothing is left behind.
    pub fn give_up(self) {
        if let Some(undo) = &self.done.undo {
            undo_file::remove(undo);
        }
    }

    /// Carries it out. `progress` is told how much of how much is written, and answers whether to go on.
    ///
    /// # Errors
    /// If the image or the undo file cannot be written, or `progress` said so. What was written until then stays: the
    /// image can be repaired again, or restored where there is an undo file.
    pub fn carry_out(self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Done> {
        let device =
            self.kept.clone().map_or_else(|| Arc::clone(&self.repair.device), |kept| kept as _);
        self.write(device, progress).map_err(|source| self.repair.failed(source))?;
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

/// Brings an image back to what it was before a repair that kept an undo file, byte by byte. It may be done again if it
/// was interrupted, and also if the repair was.
///
/// # Errors
/// If the undo file is none, or of another image, or the image was changed after the repair: nothing is written then. If
/// the image is in use or cannot be written.
pub fn restore(undo: &Path, image: &Path, options: &OpenImage) -> Result<Restored> {
    let device = FileDevice::new(lock::open_to_write(image)?);
    let device = device.map_err(|e| Error::host("read", image, e))?;
    let device = image::window(image, Arc::new(device), options)?;
    let file = File::open(undo).map_err(|e| Error::host("open the undo file", undo, e))?;
    ::repair::restore(&*device, BufReader::new(file)).map_err(|source| Error::Restore {
        image: image.to_owned(),
        undo: undo.to_owned(),
        source,
    })
}
