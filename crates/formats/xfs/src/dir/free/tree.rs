//! A tree of maxima. Each row has the largest of each sixteen values of the row below; the top row has at most sixteen.
//! Finding the first value that is large enough takes one step per row, as does changing a value.

/// Fan-out of the tree: 32 bytes per group, half a cache line.
const FAN: usize = 16;

/// The tree. The length of each row is a multiple of [`FAN`], padded with zeros.
#[derive(Default)]
pub(in crate::dir) struct MaxTree {
    rows: Vec<Vec<u16>>,
}

impl MaxTree {
    pub(super) fn bytes(&self) -> usize {
        self.rows.iter().map(|row| row.capacity() * 2).sum()
    }

    /// Sets many values from `first` on.
    pub(super) fn extend(&mut self, first: u32, values: impl Iterator<Item = u16>) {
        for (number, value) in (first..).zip(values) {
            self.set(number, value);
        }
    }

    /// Changes a value and returns the previous one. Values are initially 0.
    pub(super) fn set(&mut self, number: u32, value: u16) -> u16 {
        let mut index = number as usize;
        self.reserve(index);
        let old = std::mem::replace(&mut self.rows[0][index], value);
        for level in 0..self.rows.len() - 1 {
            let group = index / FAN;
            let largest = self.largest(level, group);
            index = group;
            if self.rows[level + 1][index] == largest {
                break;
            }
            self.rows[level + 1][index] = largest;
        }
        old
    }

    fn largest(&self, level: usize, group: usize) -> u16 {
        self.rows[level][group * FAN..][..FAN].iter().copied().fold(0, u16::max)
    }

    /// Extends all rows to include a value.
    fn reserve(&mut self, index: usize) {
        if self.rows.first().is_some_and(|row| index < row.len()) {
            return;
        }
        let mut len = (index + 1).next_multiple_of(FAN);
        for level in 0.. {
            if level == self.rows.len() {
                self.rows.push(Vec::new());
                if level > 0 {
                    self.fill_row(level);
                }
            }
            let row = &mut self.rows[level];
            row.resize(len.max(row.len()), 0);
            if row.len() == FAN {
                return;
            }
            len = (row.len() / FAN).next_multiple_of(FAN);
        }
    }

    /// Fills a new row from the one below.
    fn fill_row(&mut self, level: usize) {
        let groups = self.rows[level - 1].len() / FAN;
        let mut row: Vec<u16> = (0..groups).map(|group| self.largest(level - 1, group)).collect();
        row.resize(groups.next_multiple_of(FAN), 0);
        self.rows[level] = row;
    }

    /// Returns the first number whose value is at least `least`.
    pub(super) fn first_with(&self, least: u16) -> Option<u32> {
        let mut group = 0;
        for row in self.rows.iter().rev() {
            let place = row[group * FAN..][..FAN].iter().position(|value| *value >= least)?;
            group = group * FAN + place;
        }
        (!self.rows.is_empty()).then_some(group as u32)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn finds_the_first_that_is_large_enough(
            steps in prop::collection::vec((0..6000_u32, 0..2000_u16, 1..2000_u16), 1..400),
            dense in 0..5000_u32,
        ) {
            let mut tree = MaxTree::default();
            let mut plain = vec![0_u16; 6000];
            prop_assert_eq!(tree.first_with(1), None);
            tree.extend(0, (0..dense).map(|i| (i % 7) as u16));
            (0..dense).for_each(|i| plain[i as usize] = (i % 7) as u16);
            for (number, value, least) in steps {
                let old = std::mem::replace(&mut plain[number as usize], value);
                prop_assert_eq!(tree.set(number, value), old);
                let expected = plain.iter().position(|value| *value >= least);
                prop_assert_eq!(tree.first_with(least), expected.map(|at| at as u32));
            }
        }
    }
}
