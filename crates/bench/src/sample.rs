//! Measured values and what may be said of them.

/// Values of one measurement, in order of size. Never empty.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    sorted: Vec<f64>,
}

impl Sample {
    /// A sample of these values.
    ///
    /// # Panics
    /// Without a value: nothing was measured.
    pub(crate) fn new(values: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        assert!(!sorted.is_empty(), "a sample needs a value");
        sorted.sort_unstable_by(f64::total_cmp);
        Sample { sorted }
    }

    /// How each value compares with the one measured in the same round.
    pub(crate) fn ratios(values: &[f64], limits: &[f64]) -> Self {
        Self::new(values.iter().zip(limits).map(|(value, limit)| value / limit))
    }

    /// The values, in order of size.
    pub(crate) fn values(&self) -> impl Iterator<Item = f64> {
        self.sorted.iter().copied()
    }

    /// How many values there are.
    pub(crate) fn len(&self) -> usize {
        self.sorted.len()
    }

    /// The value that this share of all values does not exceed.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        let rank = (self.sorted.len() as f64 * share).ceil() as usize;
        self.sorted[rank.clamp(1, self.sorted.len()) - 1]
    }

    /// The middle value.
    pub(crate) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// How far the median may be off, as a share of it: half of what the middle half of the values
    /// is wide, and less the more values there are.
    pub(crate) fn uncertainty(&self) -> f64 {
        let (low, high) = self.spread();
        (high - low) / 2.0 / (self.len() as f64).sqrt() / self.median().abs()
    }

    /// Between these the true median is, in 95 of 100 cases, whatever the values are like: each lies
    /// below it as often as above. Where values are too few to be that sure, between all of them.
    pub(crate) fn confidence(&self) -> (f64, f64) {
        let outside = ranks_outside(self.len());
        (self.sorted[outside], self.sorted[self.len() - 1 - outside])
    }

    /// Between these lies the middle half of the values.
    pub(crate) fn spread(&self) -> (f64, f64) {
        (self.quantile(0.25), self.quantile(0.75))
    }
}

/// How sure the median is to be told.
const SURE: f64 = 0.95;

/// How many of so many values may be left out at each end: the median is beyond them only when a
/// coin that is thrown for each value falls on one side all but so many times.
fn ranks_outside(count: usize) -> usize {
    let mut chance = 0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let mut beyond = chance;
    let mut outside = 0;
    while outside < count / 2 {
        chance *= (count - outside) as f64 / (outside + 1) as f64;
        beyond += chance;
        if beyond * 2.0 > 1.0 - SURE {
            break;
        }
        outside += 1;
    }
    outside
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_values_does_not_matter_and_outliers_do_not_move_the_median() {
        let sample = Sample::new([9.0, 1.0, 2.0, 3.0, 1000.0]);
        assert_eq!(sample.median(), 3.0);
        assert_eq!(sample.spread(), (2.0, 9.0));
        assert_eq!(sample.quantile(0.99), 1000.0);
        assert_eq!(sample.quantile(0.0), 1.0);
    }

    #[test]
    fn more_values_of_the_same_width_are_surer() {
        let few = Sample::new([0.9, 1.0, 1.0, 1.1]);
        let many = Sample::new([0.9, 1.0, 1.0, 1.1].repeat(16));
        assert_eq!(few.uncertainty(), 4.0 * many.uncertainty());
        assert_eq!(Sample::new([2.0; 5]).uncertainty(), 0.0);
    }

    #[test]
    fn one_value_is_its_own_median_and_spread() {
        let sample = Sample::new([4.0]);
        assert_eq!((sample.median(), sample.spread()), (4.0, (4.0, 4.0)));
        assert_eq!(sample.confidence(), (4.0, 4.0));
    }

    #[test]
    fn the_median_is_told_as_surely_as_the_tables_of_statistics_say() {
        let ranks = |count: u32| Sample::new((1..=count).map(f64::from)).confidence();
        assert_eq!(ranks(3), (1.0, 3.0), "too few to be sure");
        assert_eq!((ranks(5), ranks(6)), ((1.0, 5.0), (1.0, 6.0)));
        assert_eq!((ranks(9), ranks(15)), ((2.0, 8.0), (4.0, 12.0)));
        assert_eq!((ranks(31), ranks(100)), ((10.0, 22.0), (40.0, 61.0)));
    }

    #[test]
    fn ratios_are_taken_round_by_round_so_that_a_slow_moment_of_both_is_none_of_either() {
        let ratios = Sample::ratios(&[10.0, 100.0, 11.0], &[10.0, 100.0, 10.0]);
        assert_eq!(ratios.median(), 1.0);
    }
}
