//! What we promise of a ratio, and whether a measurement keeps it.

use std::fmt;

use crate::sample::Sample;

/// A bound that a ratio must keep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Goal {
    /// A cost: no more than this.
    AtMost(f64),
    /// A rate: no less than this.
    AtLeast(f64),
}

/// What a measurement says of a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The median keeps it.
    Met,
    /// The median does not, but it is not known well enough: it cannot be told.
    Unclear,
    /// The median misses it wherever it is.
    Missed,
}

impl Goal {
    fn is_kept_by(self, ratio: f64) -> bool {
        match self {
            Goal::AtMost(bound) => ratio <= bound,
            Goal::AtLeast(bound) => ratio >= bound,
        }
    }

    /// Judges a measurement by its median and how surely that is known.
    #[must_use]
    pub(crate) fn judge(self, ratios: &Sample) -> Verdict {
        let (low, high) = ratios.confidence();
        match self.is_kept_by(ratios.median()) {
            true => Verdict::Met,
            false if self.is_kept_by(low) || self.is_kept_by(high) => Verdict::Unclear,
            false => Verdict::Missed,
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Goal::AtMost(bound) => write!(f, "≤ {bound:.2}"),
            Goal::AtLeast(bound) => write!(f, "≥ {bound:.2}"),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Met => "met",
            Verdict::Unclear => "within noise",
            Verdict::Missed => "missed",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_missed_only_beyond_the_noise() {
        let goal = Goal::AtMost(1.08);
        assert_eq!(goal.judge(&Sample::new([1.07, 1.07, 1.2])), Verdict::Met);
        assert_eq!(goal.judge(&Sample::new([1.05, 1.09, 1.10, 1.2])), Verdict::Unclear);
        assert_eq!(goal.judge(&Sample::new([1.09, 1.10, 1.11])), Verdict::Missed);
    }

    #[test]
    fn more_rounds_of_the_same_noise_tell_a_miss_that_few_cannot_tell() {
        let (goal, noise) = (Goal::AtMost(1.08), [1.05, 1.09, 1.10, 1.11, 1.12]);
        assert_eq!(goal.judge(&Sample::new(noise)), Verdict::Unclear);
        assert_eq!(goal.judge(&Sample::new(noise.repeat(8))), Verdict::Missed);
    }

    #[test]
    fn a_rate_must_not_fall_below_its_bound() {
        let goal = Goal::AtLeast(0.97);
        assert_eq!(goal.judge(&Sample::new([0.97, 1.0, 1.1])), Verdict::Met);
        assert_eq!(goal.judge(&Sample::new([0.8, 0.9, 0.95])), Verdict::Missed);
    }
}
