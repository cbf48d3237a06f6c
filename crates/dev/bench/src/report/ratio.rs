//! Confidence intervals of ratios of two contestants.
//!
//! In each round all contestants run one after the other, so temporary slowdowns of the machine affect both sides of a
//! ratio. The ratio is therefore computed within each round. Its interval is Student's, of the logarithms: a ratio of 2
//! and one of 1/2 are equally far from 1.

use serde::Serialize;

use super::number::{NONE, change, times};
use super::{Flatness, Measured, Row};

/// Minimum number of rounds of a significant ratio.
const ROUNDS_MIN: usize = 3;

/// Student's distribution: half-width of the 95 % interval in standard errors, by degrees of freedom from 1. Further
/// values are smaller.
const STUDENT: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// A ratio with its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// Ratio of the medians of both sides.
    pub ratio: f64,
    /// The 95 % interval, extended to contain the ratio. `None` for less than two runs.
    pub interval: Option<[f64; 2]>,
    /// Number of rounds of both sides; for two sizes, the smaller number.
    pub rounds: usize,
    /// True if there are at least three rounds, and the interval is narrower than the distance of the ratio from 1,
    /// both as logarithms. The strict rule compensates for adding rounds until it holds: for equal sides, less than one
    /// pair in twenty is significant.
    pub is_told_apart: bool,
}

/// Mean and variance of the logarithms of some ratios.
#[derive(Clone, Copy)]
struct Spread {
    count: usize,
    mean: f64,
    variance: f64,
}

impl Spread {
    /// Returns `None` if a value has no logarithm.
    fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let logs: Vec<f64> = values.map(f64::ln).collect();
        let count = logs.len();
        if count == 0 || logs.iter().any(|log| !log.is_finite()) {
            return None;
        }
        let mean = logs.iter().sum::<f64>() / count as f64;
        let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
        Some(Self { count, mean, variance: squares / (count.max(2) - 1) as f64 })
    }

    /// Returns the variance of the mean.
    fn of_mean(self) -> f64 {
        self.variance / self.count as f64
    }
}

fn student(freedom: usize) -> f64 {
    STUDENT[freedom.clamp(1, STUDENT.len()) - 1]
}

impl Ratio {
    /// Compares a figure of two rows, paired by rounds. `None` if it is not a number.
    pub(super) fn paired(
        one: &Row,
        other: &Row,
        pick: impl Fn(&Measured) -> f64,
        ratio: Option<f64>,
    ) -> Option<Self> {
        let of_round = |mine: &Measured| {
            let theirs = other.measured.iter().find(|theirs| theirs.round == mine.round)?;
            Some(pick(mine) / pick(theirs))
        };
        let spread = Spread::of(one.measured.iter().filter_map(of_round))?;
        let reach = student(spread.count - 1) * spread.of_mean().sqrt();
        Self::new(ratio?, spread.mean, reach, spread.count)
    }

    /// Compares two sizes of one contestant, whose rounds are independent.
    pub(super) fn of_sizes(
        one: &Row,
        other: &Row,
        pick: impl Fn(&Measured) -> f64,
        ratio: Option<f64>,
    ) -> Option<Self> {
        let one = Spread::of(one.measured.iter().map(&pick))?;
        let other = Spread::of(other.measured.iter().map(&pick))?;
        let rounds = one.count.min(other.count);
        // A conservative number of degrees of freedom: that of the side with fewer runs.
        let reach = student(rounds - 1) * (one.of_mean() + other.of_mean()).sqrt();
        Self::new(ratio?, one.mean - other.mean, reach, rounds)
    }

    fn new(ratio: f64, mean: f64, reach: f64, rounds: usize) -> Option<Self> {
        if !ratio.is_finite() || ratio <= 0.0 {
            return None;
        }
        let [low, high] = [(mean - reach).exp().min(ratio), (mean + reach).exp().max(ratio)];
        let is_told_apart = rounds >= ROUNDS_MIN && (high / low).ln() < ratio.ln().abs();
        Some(Self { ratio, interval: (rounds > 1).then_some([low, high]), rounds, is_told_apart })
    }

    /// Formats it, with `show` for the ratio and the ends of its interval.
    pub(super) fn shown(&self, show: impl Fn(f64) -> String) -> String {
        let Some([low, high]) = self.interval else {
            return format!("{} (one run)", show(self.ratio));
        };
        let interval = format!("{} to {}", show(low), show(high));
        match self.is_told_apart {
            true => format!("{} ({interval})", show(self.ratio)),
            false => format!("no significant difference ({interval}, {} runs)", self.rounds),
        }
    }

    /// Formats it as a factor: `7.0 × (6.8 × to 7.3 ×)`.
    pub(super) fn times(&self) -> String {
        self.shown(|ratio| times(Some(ratio)))
    }

    /// Formats it as a change in per cent: `+8.3 % (+7.0 % to +9.4 %)`.
    pub(super) fn change(&self) -> String {
        self.shown(|ratio| change(Some((ratio - 1.0) * 100.0)))
    }
}

impl Flatness {
    /// Formats the ratio with its confidence interval.
    pub(super) fn shown(&self) -> String {
        let two_digits = |ratio| format!("{ratio:.2}");
        self.sure.as_ref().map_or_else(|| NONE.to_owned(), |sure| sure.shown(two_digits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::summary::median;

    fn row(walls: &[f64]) -> Row {
        let measured = |(round, &wall_s)| Measured {
            round: round as u32,
            repeats: 1,
            operations: 1,
            wall_s,
            user_s: 0.0,
            system_s: 0.0,
        };
        Row { measured: walls.iter().enumerate().map(measured).collect(), ..Row::default() }
    }

    fn ratio(one: &[f64], other: &[f64]) -> Option<Ratio> {
        let ratio = median(one).zip(median(other)).map(|(one, other)| one / other);
        Ratio::paired(&row(one), &row(other), |run| run.wall_s, ratio)
    }

    #[test]
    fn one_run_says_so() {
        let one = ratio(&[1.44], &[1.0]).unwrap();
        assert_eq!((one.is_told_apart, one.interval, one.rounds), (false, None, 1));
        assert_eq!(one.times(), "1.44 × (one run)");
        let two = ratio(&[3.0, 3.0], &[1.0, 1.0]).unwrap();
        assert_eq!(two.times(), "no significant difference (3.0 × to 3.0 ×, 2 runs)");
    }

    #[test]
    fn what_slows_both_sides_down_makes_no_interval_wide() {
        let together = ratio(&[2.0, 4.1, 6.0], &[1.0, 2.0, 3.0]).unwrap();
        assert!(together.is_told_apart, "{together:?}");
        let apart = ratio(&[2.0, 4.0, 6.0], &[3.0, 1.0, 2.0]).unwrap();
        assert!(
            !apart.is_told_apart && apart.times().starts_with("no significant difference (0."),
            "{apart:?}"
        );
    }

    #[test]
    fn an_interval_is_students() {
        // Logarithms 1, 2 and 3: a mean of 2, a variance of 1, and a half-width of 4.303 standard errors of 0.577.
        let e = std::f64::consts::E;
        let found = ratio(&[e, e * e, e * e * e], &[1.0; 3]).unwrap().interval.unwrap();
        for (found, expected) in
            found.iter().zip([2.0 - 4.303 / 3_f64.sqrt(), 2.0 + 4.303 / 3_f64.sqrt()])
        {
            assert!((found.ln() - expected).abs() < 1e-9, "{found}");
        }
    }

    #[test]
    fn sizes_are_not_paired() {
        let small = row(&[1.0, 1.1, 1.0]);
        let large = row(&[3.0, 3.1, 2.9, 3.0]);
        let found = Ratio::of_sizes(&large, &small, |run| run.wall_s, Some(3.0)).unwrap();
        assert!(found.is_told_apart && found.rounds == 3, "{found:?}");
    }

    #[test]
    fn what_takes_no_time_has_no_ratio() {
        assert_eq!(ratio(&[0.0, 1.0, 1.0], &[1.0; 3]), None);
        assert_eq!(ratio(&[1.0; 3], &[]), None);
        assert_eq!(ratio(&[1.0; 3], &[1.0; 3]).map(|one| one.is_told_apart), Some(false));
    }

    /// Rounds are added until a ratio is significant, which must not produce false positives.
    #[test]
    fn sides_that_do_not_differ_are_seldom_told_apart() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut run = || (0..12).map(|_| random.f64()).sum::<f64>() * 0.1 + 1.0;
        let mut told = 0;
        for _ in 0..2000 {
            let sides: Vec<(f64, f64)> = (0..15).map(|_| (run(), run())).collect();
            let (one, other): (Vec<f64>, Vec<f64>) = sides.into_iter().unzip();
            let is_told = |rounds: usize| {
                ratio(&one[..rounds], &other[..rounds]).is_some_and(|found| found.is_told_apart)
            };
            told += u32::from((3..=15).any(is_told));
        }
        assert!(told < 100, "{told} of 2000");
    }
}
