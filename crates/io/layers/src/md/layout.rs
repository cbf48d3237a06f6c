//! Places of data in arrays with parity.

/// Layout of an array with parity, whose data rotates over its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParityLayout {
    members: u64,
    parities: u64,
    order: Order,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    LeftAsymmetric,
    RightAsymmetric,
    LeftSymmetric,
    RightSymmetric,
    ParityFirst,
    ParityLast,
}

impl ParityLayout {
    /// Returns the layout of a level with `members` members. `None` if the numbers are invalid or unsupported.
    #[must_use]
    pub fn new(level: i32, layout: u32, members: u32) -> Option<Self> {
        let parities = match level {
            4 | 5 => 1,
            6 => 2,
            _ => return None,
        };
        let order = match (level, layout) {
            (4, _) | (_, 5) => Order::ParityLast,
            (_, 0) => Order::LeftAsymmetric,
            (_, 1) => Order::RightAsymmetric,
            (_, 2) => Order::LeftSymmetric,
            (_, 3) => Order::RightSymmetric,
            (_, 4) => Order::ParityFirst,
            _ => return None,
        };
        let members = u64::from(members);
        (members > parities).then_some(Self { members, parities, order })
    }

    /// Returns the number of data chunks in a row.
    #[must_use]
    pub const fn data(&self) -> u64 {
        self.members - self.parities
    }

    /// Returns the member with data chunk `index` of `row`.
    #[must_use]
    pub fn member(&self, row: u64, index: u64) -> u64 {
        let count = self.members;
        let right = row % count;
        let left = count - 1 - right;
        // The first parity's member. The second parity follows it, around the end.
        let (parity, follows) = match self.order {
            Order::LeftAsymmetric => (left, false),
            Order::RightAsymmetric => (right, false),
            Order::LeftSymmetric => (left, true),
            Order::RightSymmetric => (right, true),
            Order::ParityFirst => return self.parities + index,
            Order::ParityLast => return index,
        };
        if follows {
            return (parity + self.parities + index) % count;
        }
        if parity + self.parities > count {
            // The second parity is on the first member.
            return index + 1;
        }
        if index < parity { index } else { index + self.parities }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the members of the data chunks of four rows, as md(4) and the layouts of SNIA's DDF draw them.
    fn rows(level: i32, layout: u32) -> [Vec<u64>; 4] {
        let layout = ParityLayout::new(level, layout, 4).unwrap();
        [0, 1, 2, 3].map(|row| (0..layout.data()).map(|index| layout.member(row, index)).collect())
    }

    #[test]
    fn data_rotates_as_drawn() {
        assert_eq!(rows(5, 2), [vec![0, 1, 2], vec![3, 0, 1], vec![2, 3, 0], vec![1, 2, 3]]);
        assert_eq!(rows(5, 0), [vec![0, 1, 2], vec![0, 1, 3], vec![0, 2, 3], vec![1, 2, 3]]);
        assert_eq!(rows(5, 1), [vec![1, 2, 3], vec![0, 2, 3], vec![0, 1, 3], vec![0, 1, 2]]);
        assert_eq!(rows(5, 3), [vec![1, 2, 3], vec![2, 3, 0], vec![3, 0, 1], vec![0, 1, 2]]);
        assert_eq!(rows(4, 0), [vec![0, 1, 2], vec![0, 1, 2], vec![0, 1, 2], vec![0, 1, 2]]);
        assert_eq!(rows(6, 2), [vec![1, 2], vec![0, 1], vec![3, 0], vec![2, 3]]);
        assert_eq!(rows(6, 0), [vec![1, 2], vec![0, 1], vec![0, 3], vec![2, 3]]);
        assert!(ParityLayout::new(5, 8, 4).is_none() && ParityLayout::new(6, 0, 2).is_none());
    }

    #[test]
    fn every_row_has_each_member_once() {
        for (level, members) in [(5, 3), (5, 7), (6, 4), (6, 5)] {
            for layout in 0..6 {
                let layout = ParityLayout::new(level, layout, members).unwrap();
                for row in 0..20 {
                    let mut seen = vec![false; members as usize];
                    for index in 0..layout.data() {
                        let member = layout.member(row, index) as usize;
                        assert!(!std::mem::replace(&mut seen[member], true), "{layout:?} {row}");
                    }
                }
            }
        }
    }
}
