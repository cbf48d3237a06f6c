//! A copy-on-write view of an image, in which a repair is tried out.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use disk::{BlockDevice, DeviceRole, end_at};
use parking_lot::RwLock;
use vfs::check::{Code, Finding, FindingPlace};

/// Unit of changes in bytes.
pub const PAGE_BYTES: u64 = 4096;

/// Maximum number of pages of a merged step.
const JOINED_PAGES_MAX: usize = 64;

/// Contents of a page of the image. Bytes past the end of the image are zero and ignored.
pub type Page = Arc<[u8; PAGE_BYTES as usize]>;

/// Description of a repair, for people and programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// Code of the finding; `None` for actions without a finding, such as replaying a log.
    pub code: Option<&'static Code>,
    /// Location of the finding.
    pub place: FindingPlace,
    /// Absolute path of the file that changes, if it is known.
    pub path: Option<Vec<u8>>,
    /// Description of the action, as a sentence.
    pub what: String,
}

impl Action {
    /// Creates an action without a finding.
    pub fn new(what: impl Into<String>) -> Self {
        Self { code: None, place: FindingPlace::default(), path: None, what: what.into() }
    }

    /// Creates an action for a finding.
    pub fn about(finding: &Finding, what: impl Into<String>) -> Self {
        Self {
            code: Some(finding.code),
            place: finding.place.clone(),
            path: finding.path.clone(),
            what: what.into(),
        }
    }
}

/// Changes that belong together: written atomically if the log permits it.
#[derive(Clone, Debug)]
pub struct Step {
    /// Purpose of the changes.
    pub actions: Vec<Action>,
    /// New contents of the changed pages, by page number.
    pub pages: BTreeMap<u64, Page>,
}

impl Step {
    /// Returns whether another step has the same code, and both are small.
    fn is_like(&self, other: &Self) -> bool {
        let code = |step: &Self| step.actions.first().and_then(|action| action.code);
        code(self).is_some()
            && code(self) == code(other)
            && self.pages.len() + other.pages.len() <= JOINED_PAGES_MAX
    }

    /// Merges a later step into this one.
    fn join(&mut self, later: Self) {
        self.actions.extend(later.actions);
        self.pages.extend(later.pages);
    }
}

#[derive(Default)]
struct StagedChanges {
    pages: HashMap<u64, Page>,
    /// Contents of the pages written since the last step ended, before those writes; `None` if the page was unchanged
    /// from the image.
    before: BTreeMap<u64, Option<Page>>,
    steps: Vec<Step>,
    /// Number of steps that ended, including those that were merged.
    ended: usize,
}

/// A device over an image, which does not change. Writes are kept in memory, divided into steps.
///
/// A page that cannot be read from the image cannot be written either, so a repair never changes contents that it has
/// not read.
pub struct Staging {
    below: Arc<dyn BlockDevice>,
    state: RwLock<StagedChanges>,
    reads_failed: AtomicU64,
    /// The first failed read.
    first_failed: OnceLock<(io::ErrorKind, String)>,
}

impl Staging {
    /// Creates a view of `below` without changes.
    pub fn new(below: Arc<dyn BlockDevice>) -> Self {
        Self {
            below,
            state: RwLock::default(),
            reads_failed: AtomicU64::new(0),
            first_failed: OnceLock::new(),
        }
    }

    /// Returns the image without changes.
    pub fn below(&self) -> &Arc<dyn BlockDevice> {
        &self.below
    }

    /// Ends a step, which contains everything written since the last one ended. Merges small steps with the same code,
    /// so that a page with many inodes is not stored once for each. Without an effective change there is no step,
    /// whatever the actions are. Returns whether there is a step.
    ///
    /// # Errors
    /// If the image cannot be read.
    pub fn end_step(&self, actions: Vec<Action>) -> io::Result<bool> {
        let mut state = self.state.write();
        let mut pages = BTreeMap::new();
        for (number, before) in std::mem::take(&mut state.before) {
            let Some(after) = state.pages.get(&number).cloned() else { continue };
            let before = before.map_or_else(|| self.read_below(number), Ok)?;
            if before != after {
                pages.insert(number, after);
            }
        }
        let is_step = !pages.is_empty();
        if is_step {
            state.ended += 1;
            let step = Step { actions, pages };
            match state.steps.last_mut() {
                Some(last) if last.is_like(&step) => last.join(step),
                _ => state.steps.push(step),
            }
        }
        Ok(is_step)
    }

    /// Rolls back everything written since the last step ended.
    pub fn abandon(&self) {
        let mut state = self.state.write();
        for (number, before) in std::mem::take(&mut state.before) {
            match before {
                Some(page) => state.pages.insert(number, page),
                None => state.pages.remove(&number),
            };
        }
    }

    /// Returns the number of steps that ended.
    pub fn step_count(&self) -> usize {
        self.state.read().ended
    }

    /// Calls `each` with the actions so far.
    pub fn for_each_action(&self, each: impl FnMut(&Action)) {
        self.state.read().steps.iter().flat_map(|step| &step.actions).for_each(each);
    }

    /// Returns all ended steps in order. They share the memory of the pages.
    pub fn steps(&self) -> Vec<Step> {
        self.state.read().steps.clone()
    }

    /// Number of reads within the image that its device failed until now.
    pub fn reads_failed(&self) -> u64 {
        self.reads_failed.load(Ordering::Acquire)
    }

    /// Checks that no read within the image has failed.
    ///
    /// # Errors
    /// The first failure, with its position.
    pub fn check_reads(&self) -> io::Result<()> {
        match self.first_failed.get() {
            None => Ok(()),
            Some((kind, what)) => Err(io::Error::new(*kind, what.clone())),
        }
    }

    /// Reads bytes of the image, and counts a failure. A read past the end is no failure of the device.
    fn read_bytes_below(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.below.read_at(offset, buf).inspect_err(|error| {
            let end = offset.checked_add(buf.len() as u64);
            if end.is_some_and(|end| end <= end_at(&*self.below, offset)) {
                self.reads_failed.fetch_add(1, Ordering::Release);
                self.first_failed.get_or_init(|| {
                    let what = format!("read of {} bytes at byte {offset}: {error}", buf.len());
                    (error.kind(), what)
                });
            }
        })
    }

    fn read_below(&self, number: u64) -> io::Result<Page> {
        let mut bytes = [0; PAGE_BYTES as usize];
        let start = number * PAGE_BYTES;
        let count = PAGE_BYTES.min(end_at(&*self.below, start).saturating_sub(start)) as usize;
        self.read_bytes_below(start, &mut bytes[..count])?;
        Ok(Arc::new(bytes))
    }

    /// Changes a range page by page: `change` gets the bytes of a piece and its start within the range.
    fn change(
        &self,
        offset: u64,
        len: u64,
        mut change: impl FnMut(&mut [u8], usize),
    ) -> io::Result<()> {
        if offset.checked_add(len).is_none_or(|end| end > end_at(self, offset)) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut state = self.state.write();
        let state = &mut *state;
        let mut done = 0;
        while done < len {
            let at = offset + done;
            let (number, within) = (at / PAGE_BYTES, (at % PAGE_BYTES) as usize);
            let count = (PAGE_BYTES - at % PAGE_BYTES).min(len - done) as usize;
            let current = state.pages.get(&number).cloned();
            let mut page = current.clone().map_or_else(|| self.read_below(number), Ok)?;
            state.before.entry(number).or_insert(current);
            change(&mut Arc::make_mut(&mut page)[within..within + count], done as usize);
            state.pages.insert(number, page);
            done += count as u64;
        }
        Ok(())
    }
}

impl BlockDevice for Staging {
    fn len(&self) -> u64 {
        self.below.len()
    }

    fn part_len(&self, part: DeviceRole) -> Option<u64> {
        self.below.part_len(part)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.read_bytes_below(offset, buf)?;
        let state = self.state.read();
        if state.pages.is_empty() {
            return Ok(());
        }
        let end = offset + buf.len() as u64;
        for number in offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES) {
            let Some(page) = state.pages.get(&number) else { continue };
            let start = number * PAGE_BYTES;
            let (from, to) = (offset.max(start), end.min(start + PAGE_BYTES));
            buf[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&page[(from - start) as usize..(to - start) as usize]);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.change(offset, data.len() as u64, |bytes, at| {
            bytes.copy_from_slice(&data[at..at + bytes.len()]);
        })
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.change(offset, len, |bytes, _| bytes.fill(0))
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use disk::{Access, Fault, FaultyDevice, MemoryDevice};

    fn all(device: &dyn BlockDevice) -> Vec<u8> {
        let mut bytes = vec![0; device.len() as usize];
        device.read_at(0, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn steps_have_what_changed_and_nothing_below_does() {
        let below = Arc::new(MemoryDevice::new(10_000));
        below.write_at(0, &[7; 10_000]).unwrap();
        let staging = Staging::new(below.clone());
        staging.write_at(4000, &[1; 200]).unwrap();
        assert!(staging.end_step(vec![Action::new("One.")]).unwrap());
        staging.write_at(4000, &[1; 100]).unwrap();
        staging.write_at(9000, &[7; 5]).unwrap();
        assert!(!staging.end_step(vec![Action::new("Nothing.")]).unwrap(), "the same bytes");
        staging.zero_range(4096, 4).unwrap();
        assert!(staging.end_step(vec![Action::new("Two.")]).unwrap());
        let steps = staging.steps();
        let pages: Vec<Vec<u64>> =
            steps.iter().map(|step| step.pages.keys().copied().collect()).collect();
        assert_eq!(pages, [vec![0, 1], vec![1]]);
        // A later change does not affect an earlier step.
        assert_eq!((steps[0].pages[&1][0], steps[1].pages[&1][0]), (1, 0));
        assert!(all(&*below).iter().all(|&byte| byte == 7));
        assert!(staging.write_at(9999, &[0; 2]).is_err());
    }

    #[test]
    fn small_steps_about_one_code_become_one() {
        static CODES: [Code; 2] = [code("a"), code("b")];
        let staging = Staging::new(Arc::new(MemoryDevice::new(1 << 20)));
        let about =
            |code: &'static Code| vec![Action::about(&Finding::new(code), "It is repaired.")];
        for number in 0..100_u64 {
            staging.write_at(number * 100, &[1; 100]).unwrap();
            assert!(staging.end_step(about(&CODES[0])).unwrap());
        }
        staging.write_at(0, &[2; 100]).unwrap();
        staging.end_step(about(&CODES[1])).unwrap();
        staging.write_at(0, &[3; 500_000]).unwrap();
        staging.end_step(about(&CODES[1])).unwrap();
        let steps = staging.steps();
        let sizes: Vec<_> =
            steps.iter().map(|step| (step.actions.len(), step.pages.len())).collect();
        assert_eq!(sizes, [(100, 3), (1, 1), (1, 123)]);
        assert_eq!(staging.step_count(), 102);
        assert_eq!(steps[0].pages[&2][9999 - 8192], 1, "the last contents");
    }

    const fn code(name: &'static str) -> Code {
        let severity = vfs::check::Severity::Harmless;
        Code { name, severity, structure: "some", meaning: "Some.", repair: "Some." }
    }

    #[test]
    fn unreadable_pages_are_not_written() {
        let below = Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::new(20_000))));
        let staging = Staging::new(below.clone());
        staging.write_at(0, &[1; 10]).unwrap();
        below.set(Access::Read, Fault::From(1));
        staging.write_at(100, &[1; 10]).expect("the block was read before");
        assert!(staging.write_at(5000, &[1; 10]).is_err());
        below.set(Access::Read, Fault::Never);
        assert!(staging.end_step(vec![Action::new("Some.")]).unwrap());
        assert!(staging.steps()[0].pages.keys().eq([&0]));
    }

    #[test]
    fn abandoned_steps_change_nothing() {
        let staging = Staging::new(Arc::new(MemoryDevice::new(9000)));
        staging.write_at(10, &[1; 5000]).unwrap();
        staging.end_step(vec![Action::new("Kept.")]).unwrap();
        let kept = all(&staging);
        staging.write_at(0, &[9; 9000]).unwrap();
        staging.write_at(0, &[8; 9000]).unwrap();
        staging.abandon();
        assert_eq!(all(&staging), kept);
        assert_eq!(staging.step_count(), 1);
    }
}
