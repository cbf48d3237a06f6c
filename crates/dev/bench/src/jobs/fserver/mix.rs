//! Selection and order of the jobs of a task.

/// A kind of job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobKind {
    DiskCp,
    DiskRd,
    DiskRr,
    DiskRw,
    DiskSrc,
    DiskWrt,
    CreatClo,
    DirRtns1,
    LinkTest,
}

impl JobKind {
    /// Returns its name in reaim.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::DiskCp => "disk_cp",
            Self::DiskRd => "disk_rd",
            Self::DiskRr => "disk_rr",
            Self::DiskRw => "disk_rw",
            Self::DiskSrc => "disk_src",
            Self::DiskWrt => "disk_wrt",
            Self::CreatClo => "creat_clo",
            Self::DirRtns1 => "dir_rtns_1",
            Self::LinkTest => "link_test",
        }
    }
}

/// The kinds and their weights in `new_fserver`.
const WEIGHTS: [(JobKind, u32); 9] = [
    (JobKind::DiskCp, 30),
    (JobKind::DiskRd, 30),
    (JobKind::DiskRr, 30),
    (JobKind::DiskRw, 30),
    (JobKind::DiskSrc, 30),
    (JobKind::DiskWrt, 30),
    (JobKind::CreatClo, 20),
    (JobKind::DirRtns1, 20),
    (JobKind::LinkTest, 20),
];

/// The sum of the weights.
const TOTAL: u64 = 240;

/// Returns the number of jobs of each kind: the weights scaled to `jobs`, each rounded half up.
pub(super) fn counts(jobs: u32) -> [(JobKind, u32); 9] {
    let scale = |weight: u32| (u64::from(weight) * u64::from(jobs) + TOTAL / 2) / TOTAL;
    WEIGHTS.map(|(kind, weight)| (kind, scale(weight) as u32))
}

/// Returns the jobs of a task in a random order.
pub(super) fn draw(jobs: u32, random: &mut fastrand::Rng) -> Vec<JobKind> {
    let mut drawn = Vec::new();
    for (kind, count) in counts(jobs) {
        drawn.extend(std::iter::repeat_n(kind, count as usize));
    }
    random.shuffle(&mut drawn);
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaled_to_its_own_sum_the_mix_is_the_weights() {
        assert_eq!(WEIGHTS.iter().map(|&(_, weight)| u64::from(weight)).sum::<u64>(), TOTAL);
        assert_eq!(counts(TOTAL as u32), WEIGHTS);
    }

    #[test]
    fn a_hundred_jobs_are_rounded_to_102() {
        let counts = counts(100);
        for (kind, count) in counts {
            let is_light =
                matches!(kind, JobKind::CreatClo | JobKind::DirRtns1 | JobKind::LinkTest);
            assert_eq!(count, if is_light { 8 } else { 13 }, "{}", kind.name());
        }
        assert_eq!(counts.iter().map(|&(_, count)| count).sum::<u32>(), 102);
    }

    #[test]
    fn draws_have_exactly_the_weights_in_an_order_of_their_own() {
        let of = |seed| draw(100, &mut fastrand::Rng::with_seed(seed));
        for seed in 0..20 {
            let drawn = of(seed);
            for (kind, count) in counts(100) {
                let found = drawn.iter().filter(|&&other| other == kind).count();
                assert_eq!(found, count as usize, "{} of seed {seed}", kind.name());
            }
            assert_eq!(drawn, of(seed));
            assert_ne!(drawn, of(seed + 1));
        }
    }
}
