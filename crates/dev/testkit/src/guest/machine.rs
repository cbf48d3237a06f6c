//! A virtual machine that executes jobs.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::installed::{MEMORY_MIB, folder};
use super::qmp::{Qmp, quoted};
use super::{Answer, Disk, GuestFailure, GuestJob, Kernel};

/// Limit of the machine's start, which takes about seven seconds on an idle processor.
const START_LIMIT: Duration = Duration::from_secs(600);

/// Number of console lines in a failure.
const CONSOLE_LINES: usize = 60;

/// Number of addresses of disks. The guest may handle the removal of a disk after the next one is there, and would take
/// that one away at the same address.
const ADDRESSES: u64 = 200;

/// Maximum output of a job in bytes. More is a failure, before it fills the memory.
const OUTPUT_MAX: usize = 64 << 20;

/// Shell script that starts QEMU, and kills it when standard input is closed. This happens whenever the test process
/// ends. The guest's clock is behind this machine's: its kernel rounds the time up, and e2fsck reports times in the
/// future.
const MINDER: &str = r#"trap '' INT TERM HUP
work=$1; shift
now=$(date -u -d "@$(($(date +%s) - 300))" +%Y-%m-%dT%H:%M:%S)
"$@" -rtc "base=$now" </dev/null >"$work/qemu" 2>&1 &
read -r _
kill -9 $! 2>/dev/null
wait
rm -rf "$work""#;

/// A running machine. Dropping it stops it.
pub(super) struct Machine {
    minder: Child,
    /// Standard input of the shell that started QEMU. Closing it ends QEMU.
    life: Option<ChildStdin>,
    port: UnixStream,
    qmp: Qmp,
    work: TempDir,
    jobs: u64,
    /// Number of images attached so far.
    images: u64,
}

/// Result of waiting for the guest.
enum Wait {
    Over,
    Late,
    Full,
}

impl Machine {
    /// Starts a machine and waits until it accepts jobs.
    pub(super) fn start(kernel: Kernel) -> Result<Self, GuestFailure> {
        let work = tempfile::Builder::new().prefix("diskwright-guest-").tempdir();
        let work = work.map_err(|error| failure(format!("no directory: {error}")))?;
        let mut machine = Self::spawn(kernel, work)
            .map_err(|error| failure(format!("the guest cannot be started: {error}")))?;
        let mut heard = Vec::new();
        let ready = |heard: &[u8]| heard.ends_with(b"ready\n");
        match machine.listen(Instant::now() + START_LIMIT, &mut heard, ready) {
            Ok(()) => Ok(machine),
            Err(Wait::Late) => Err(machine.failure("the guest does not start", &heard)),
            Err(_) => Err(machine.failure("the guest ended while it started", &heard)),
        }
    }

    fn spawn(kernel: Kernel, work: TempDir) -> io::Result<Self> {
        let place = work.path().to_path_buf();
        fs::create_dir(place.join("jobs"))?;
        let mut command = Command::new("sh");
        command.args(["-c", MINDER, "sh"]).arg(&place).args(arguments(kernel, &place)?);
        let mut minder =
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let life = minder.stdin.take();
        let connected = connect(&place.join("jobs.socket"))
            .and_then(|port| Ok((port, Qmp::new(connect(&place.join("qmp.socket"))?)?)));
        match connected {
            Ok((port, qmp)) => Ok(Machine { minder, life, port, qmp, work, jobs: 0, images: 0 }),
            Err(error) => {
                let said = fs::read_to_string(place.join("qemu")).unwrap_or_default();
                drop(life);
                let _ = minder.wait();
                Err(io::Error::new(error.kind(), format!("{error}; QEMU: {said}")))
            }
        }
    }

    /// Runs a job to its end. After a failure the machine is of no more use.
    pub(super) fn run(&mut self, job: &GuestJob) -> Result<Answer, GuestFailure> {
        self.jobs += 1;
        let token = format!("j{}", self.jobs);
        let folder = self.work.path().join("jobs").join(&token);
        let mut prepared = prepare(job, &token, &folder);
        for (number, disk) in job.disks.iter().enumerate() {
            prepared = prepared.and_then(|()| self.attach(&format!("{token}-{number}."), disk));
        }
        prepared = prepared.and_then(|()| writeln!(self.port, "{token} {}", job.disks.len()));
        prepared.map_err(|error| {
            self.failure(&format!("the job cannot be handed over: {error}"), b"")
        })?;
        let mut output = Vec::new();
        let marker = format!("\n{token} ").into_bytes();
        let end = |heard: &[u8]| end_of_job(heard, &marker).is_some();
        if let Err(wait) = self.listen(Instant::now() + job.limit, &mut output, end) {
            let reason = match wait {
                Wait::Late => format!("the job did not end within {:?} and was killed", job.limit),
                Wait::Over => "the guest ended during the job".to_owned(),
                Wait::Full => format!("the job printed more than {OUTPUT_MAX} bytes"),
            };
            return Err(self.failure(&reason, &output));
        }
        let (length, status) = end_of_job(&output, &marker).unwrap_or((output.len(), -1));
        for number in 0..job.disks.len() {
            let detached = self.detach(&format!("{token}-{number}."));
            detached.map_err(|error| {
                self.failure(&format!("an image cannot be detached: {error}"), &output)
            })?;
        }
        let log = fs::read(folder.join("log")).unwrap_or_default();
        let _ = fs::remove_dir_all(&folder);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Answer { status, output: text(&output[..length]), log: text(&log) })
    }

    fn attach(&mut self, name: &str, disk: &Disk) -> io::Result<()> {
        // A `/proc/self` path means another file in QEMU.
        let path = disk.path.to_str().ok_or_else(|| io::Error::other("a path is not UTF-8"))?;
        let path = path.replace("/proc/self/", &format!("/proc/{}/", std::process::id()));
        let (path, node, read_only) = (quoted(&path), quoted(&format!("n-{name}")), disk.read_only);
        let cache = "\"cache\":{\"no-flush\":true},\"discard\":\"unmap\"";
        self.qmp.command(&format!(
            "{{\"execute\":\"blockdev-add\",\"arguments\":{{\"driver\":\"raw\",\"node-name\":{node},\
             \"read-only\":{read_only},{cache},\
             \"file\":{{\"driver\":\"file\",\"filename\":{path},\"read-only\":{read_only},{cache}}}}}}}"
        ))?;
        let (id, serial) = (quoted(&format!("d-{name}")), quoted(name));
        let address = self.images % ADDRESSES;
        self.images += 1;
        self.qmp.command(&format!(
            "{{\"execute\":\"device_add\",\"arguments\":{{\"driver\":\"scsi-hd\",\"bus\":\"scsi.0\",\
             \"scsi-id\":{address},\"id\":{id},\"drive\":{node},\"serial\":{serial},\
             \"write-cache\":\"on\"}}}}"
        ))
    }

    fn detach(&mut self, name: &str) -> io::Result<()> {
        let id = quoted(&format!("d-{name}"));
        self.qmp
            .command(&format!("{{\"execute\":\"device_del\",\"arguments\":{{\"id\":{id}}}}}"))?;
        let node = quoted(&format!("n-{name}"));
        let command =
            format!("{{\"execute\":\"blockdev-del\",\"arguments\":{{\"node-name\":{node}}}}}");
        // The device may release the image slightly later.
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            match self.qmp.command(&command) {
                Err(error) if error.kind() == ErrorKind::Other && Instant::now() < until => {
                    sleep(Duration::from_millis(5));
                }
                result => return result,
            }
        }
    }

    /// Collects the guest's output until it is complete.
    fn listen(
        &mut self,
        until: Instant,
        heard: &mut Vec<u8>,
        is_complete: impl Fn(&[u8]) -> bool,
    ) -> Result<(), Wait> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Wait::Late);
            }
            let _ = self.port.set_read_timeout(Some(left));
            match self.port.read(&mut buffer) {
                Ok(0) => return Err(Wait::Over),
                Ok(count) => heard.extend_from_slice(&buffer[..count]),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    return Err(Wait::Late);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(Wait::Over),
            }
            if is_complete(heard) {
                return Ok(());
            }
            if heard.len() > OUTPUT_MAX {
                return Err(Wait::Full);
            }
        }
    }

    fn failure(&self, reason: &str, output: &[u8]) -> GuestFailure {
        let read = |name: &str| fs::read(self.work.path().join(name)).unwrap_or_default();
        let console = [read("qemu"), read("console")].concat();
        let console = String::from_utf8_lossy(&console);
        let lines: Vec<_> = console.lines().collect();
        let shown = &lines[lines.len().saturating_sub(CONSOLE_LINES)..];
        GuestFailure {
            reason: reason.into(),
            output: String::from_utf8_lossy(output).into_owned(),
            console: shown.join("\n"),
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        drop(self.life.take());
        let _ = self.minder.wait();
    }
}

fn failure(reason: String) -> GuestFailure {
    GuestFailure { reason, output: String::new(), console: String::new() }
}

/// Returns QEMU's command line: the installed guest's arguments and those of one machine.
fn arguments(kernel: Kernel, work: &Path) -> io::Result<Vec<OsString>> {
    let guests = folder();
    let guests = guests.to_str().ok_or_else(|| io::Error::other("a path is not UTF-8"))?;
    let file = folder().join(kernel.name()).join("arguments");
    let text = fs::read_to_string(file)?.replace("@GUEST@", guests);
    let work = work.display();
    let own = [
        "-m".to_owned(),
        MEMORY_MIB.to_string(),
        "-serial".into(),
        format!("file:{work}/console"),
        "-chardev".into(),
        format!("socket,id=jobs,path={work}/jobs.socket,server=on,wait=on"),
        "-qmp".into(),
        format!("unix:{work}/qmp.socket,server=on,wait=off"),
        "-fsdev".into(),
        format!("local,id=jobs,path={work}/jobs,security_model=none"),
        "-device".into(),
        "virtio-scsi-pci,id=scsi".into(),
    ];
    Ok(text.lines().map(str::to_owned).chain(own).map(OsString::from).collect())
}

/// Connects to a socket that QEMU is about to create.
fn connect(socket: &Path) -> io::Result<UnixStream> {
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        match UnixStream::connect(socket) {
            Err(error) if Instant::now() > until => return Err(error),
            Err(_) => sleep(Duration::from_millis(10)),
            stream => return stream,
        }
    }
}

/// Stores a job where the guest finds it.
fn prepare(job: &GuestJob, token: &str, folder: &Path) -> io::Result<()> {
    fs::create_dir(folder)?;
    for (name, path) in &job.files {
        fs::copy(path, folder.join(name))?;
    }
    fs::write(folder.join("script"), format!("FILES=/jobs/{token}\n{}\n", job.script))
}

/// Returns the length of a job's output and its exit status, if it has ended: its last line is a marker and the status.
fn end_of_job(heard: &[u8], marker: &[u8]) -> Option<(usize, i32)> {
    let line = heard.strip_suffix(b"\n")?;
    let start = line.iter().rposition(|&byte| byte == b'\n')?;
    let status = std::str::from_utf8(line[start..].strip_prefix(marker)?).ok()?.parse().ok()?;
    Some((start, status))
}

#[cfg(test)]
mod tests {
    use super::end_of_job;

    #[test]
    fn the_end_of_a_job_is_its_last_line() {
        assert_eq!(end_of_job(b"one\ntwo\nj1 3\n", b"\nj1 "), Some((7, 3)));
        assert_eq!(end_of_job(b"\nj1 0\n", b"\nj1 "), Some((0, 0)));
        assert_eq!(end_of_job(b"\nj1 0\nmore", b"\nj1 "), None);
        assert_eq!(end_of_job(b"\nj1 zero\n", b"\nj1 "), None);
        assert_eq!(end_of_job(b"\nj2 0\n", b"\nj1 "), None);
    }
}
