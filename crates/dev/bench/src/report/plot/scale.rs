//! Scales: mapping of figures to positions on an axis.

/// Maximum ratio of figures for a linear scale: smaller ones would coincide with the axis.
const LINEAR_MAX: f64 = 20.0;
/// Approximate number of lines in a plot.
const TICKS: f64 = 5.0;

/// An axis. `from` is less than `to`, and positive if it is logarithmic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    is_log: bool,
    from: f64,
    to: f64,
}

/// Returns the minimum and maximum of the figures that can be drawn.
fn extent(values: &[f64]) -> Option<(f64, f64)> {
    let finite = || values.iter().copied().filter(|value| value.is_finite());
    let least = finite().reduce(f64::min)?;
    Some((least, finite().reduce(f64::max)?))
}

/// Returns the minimum distance of neighbours as a share of the whole.
fn closest(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.dedup();
    let gaps = sorted.windows(2).map(|pair| pair[1] - pair[0]);
    let whole = sorted.last().zip(sorted.first()).map_or(0.0, |(last, first)| last - first);
    gaps.fold(f64::INFINITY, f64::min) / whole
}

impl Scale {
    /// Returns a scale for the sizes of cases: logarithmic if that increases their distance.
    pub(super) fn of_sizes(values: &[f64]) -> Self {
        let Some((from, to)) = extent(values) else { return Self::linear(0.0, 1.0) };
        if from >= to {
            return Self::linear(from - 1.0, from + 1.0);
        }
        let logarithms: Vec<f64> = values.iter().map(|value| value.ln()).collect();
        let is_log = from > 0.0 && closest(&logarithms) > closest(values);
        Self { is_log, from, to }
    }

    /// Returns a scale for measurements: from zero, or logarithmic if the range is large. It ends at ticks.
    pub(super) fn of_figures(values: &[f64]) -> Self {
        let positive: Vec<f64> = values.iter().copied().filter(|value| *value > 0.0).collect();
        let Some((from, to)) = extent(&positive) else { return Self::linear(0.0, 1.0) };
        if to / from > LINEAR_MAX {
            return Self { is_log: true, from: round_down(from * 0.9), to: round_up(to) };
        }
        let step = step(to);
        Self::linear(0.0, (to / step).ceil() * step)
    }

    fn linear(from: f64, to: f64) -> Self {
        Self { is_log: false, from, to }
    }

    /// Returns the position of a figure, 0 at the start of the axis and 1 at its end, clamped.
    pub(super) fn place(&self, value: f64) -> f64 {
        let place = if self.is_log {
            (value / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        if place.is_nan() { 0.0 } else { place.clamp(0.0, 1.0) }
    }

    /// Returns round figures for ticks.
    pub(super) fn ticks(&self) -> Vec<f64> {
        if !self.is_log {
            let step = step(self.to - self.from);
            let count = ((self.to - self.from) / step).round() as u32;
            return (0..=count).map(|tick| self.from + f64::from(tick) * step).collect();
        }
        let factors: &[f64] = if self.to / self.from > 2e3 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let (first, last) = (self.from.log10().floor() as i32, self.to.log10().ceil() as i32);
        let all =
            (first..=last).flat_map(|decade| factors.iter().map(move |f| f * 10_f64.powi(decade)));
        // Tolerates rounding errors.
        all.filter(|tick| (self.from * 0.999..=self.to * 1.001).contains(tick)).collect()
    }
}

/// Returns 1, 2 or 5 times a power of ten, so that there are about [`TICKS`] steps.
fn step(whole: f64) -> f64 {
    let raw = whole / TICKS;
    let decade = 10_f64.powf(raw.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * decade >= raw * 0.999);
    factor.unwrap_or(10.0) * decade
}

fn round_down(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    let factor = [5.0, 2.0].into_iter().find(|factor| factor * decade <= value);
    factor.unwrap_or(1.0) * decade
}

fn round_up(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * decade >= value * 0.999);
    factor.unwrap_or(10.0) * decade
}

#[cfg(test)]
mod tests {
    use super::Scale;

    #[test]
    fn sizes_are_spread_evenly() {
        let doubling = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];
        let scale = Scale::of_sizes(&doubling);
        assert!((scale.place(2.0) - 1.0 / 7.0).abs() < 1e-9);
        let even = [1.0, 25.0, 49.0, 73.0, 97.0, 193.0];
        assert!((Scale::of_sizes(&even).place(97.0) - 0.5).abs() < 1e-9);
        // Zero has no logarithm.
        assert!((Scale::of_sizes(&[0.0, 1.0, 1000.0]).place(500.0) - 0.5).abs() < 1e-9);
        assert!((Scale::of_sizes(&[7.0]).place(7.0) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn figures_begin_at_zero_unless_far_apart() {
        let scale = Scale::of_figures(&[18.5, 44.0]);
        assert_eq!(scale.ticks(), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]);
        assert_eq!(scale.place(0.0), 0.0);
        let scale = Scale::of_figures(&[3.0, 900.0]);
        assert_eq!(scale.ticks(), [2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]);
        let scale = Scale::of_figures(&[0.02, 4e5]);
        assert_eq!(scale.ticks().len(), 8, "0.01 to 100,000: decades only");
    }

    #[test]
    fn strange_figures_have_a_place() {
        for values in [&[][..], &[f64::NAN], &[0.0, 0.0], &[f64::INFINITY, -1.0], &[1e-300, 1e300]]
        {
            let scale = Scale::of_figures(values);
            assert!(!scale.ticks().is_empty() && scale.ticks().iter().all(|tick| tick.is_finite()));
            for value in [0.0, f64::NAN, f64::INFINITY, -5.0] {
                assert!((0.0..=1.0).contains(&scale.place(value)), "{values:?} {value}");
                assert!((0.0..=1.0).contains(&Scale::of_sizes(values).place(value)));
            }
        }
    }
}
