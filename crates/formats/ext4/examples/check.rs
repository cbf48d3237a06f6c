//! Checks an image and times it: `check IMAGE [THREADS]`.

extern crate diskwright_ext4 as ext4;

use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use disk::FileDevice;
use vfs::check::{Finding, Observer, Options};

struct Print;

impl Observer for Print {
    fn found(&self, finding: Finding) {
        let path = finding.path.as_deref().map(String::from_utf8_lossy);
        println!(
            "{} {:?} {:?} {:?} {:?} {path:?}",
            finding.code.name, finding.place, finding.detail, finding.expected, finding.found
        );
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let image = arguments.next().expect("an image");
    let threads = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(NonZero::new(2).unwrap());
    let file = std::fs::File::open(Path::new(&image)).expect("a file that can be read");
    let device = FileDevice::new(file).expect("a file with a length");
    let start = Instant::now();
    let summary =
        ext4::check::check(Arc::new(device), &Options::default().with_threads(threads), &Print);
    eprintln!("{summary:?} in {:.3} s", start.elapsed().as_secs_f64());
}
