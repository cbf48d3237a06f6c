//! Statistics of repeated timings.

use std::time::Duration;

use serde::Serialize;

/// The times of some runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Number of runs.
    pub runs: usize,
    /// Median in seconds; the mean of the two middle values for an even number.
    pub median_s: f64,
    /// Minimum in seconds.
    pub min_s: f64,
    /// Maximum in seconds.
    pub max_s: f64,
    /// Difference of the extremes as a share of the median; 0 if the median is.
    pub spread: f64,
}

impl Summary {
    /// Returns `None` without runs.
    pub fn of(times: &[Duration]) -> Option<Self> {
        let seconds: Vec<f64> = times.iter().map(Duration::as_secs_f64).collect();
        let median_s = median(&seconds)?;
        let min_s = seconds.iter().copied().fold(f64::INFINITY, f64::min);
        let max_s = seconds.iter().copied().fold(0.0, f64::max);
        let spread = if median_s > 0.0 { (max_s - min_s) / median_s } else { 0.0 };
        Some(Self { runs: seconds.len(), median_s, min_s, max_s, spread })
    }
}

/// Returns the median of some figures; `None` if there are none.
pub(crate) fn median(figures: &[f64]) -> Option<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (middle, upper) = (sorted.len() / 2, *sorted.get(sorted.len() / 2)?);
    Some(if sorted.len().is_multiple_of(2) {
        f64::midpoint(sorted[middle - 1], upper)
    } else {
        upper
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Summary, median};

    #[test]
    fn the_median_is_the_middle() {
        let of = |seconds: &[u64]| {
            let times: Vec<_> = seconds.iter().copied().map(Duration::from_secs).collect();
            Summary::of(&times).map(|summary| (summary.median_s, summary.spread))
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[9, 1, 4]), Some((4.0, 2.0)));
        assert_eq!(of(&[4, 2]), Some((3.0, 2.0 / 3.0)));
        assert_eq!(of(&[0, 0, 1]), Some((0.0, 0.0)));
    }

    #[test]
    fn extremes_are_kept() {
        let times = [3, 8, 5].map(Duration::from_secs);
        let summary = Summary::of(&times).unwrap();
        assert_eq!((summary.runs, summary.min_s, summary.max_s), (3, 3.0, 8.0));
        assert_eq!(median(&[]), None);
    }
}
