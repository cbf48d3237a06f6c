//! Detection of endless paths in constant memory.

use crate::Ino;

/// Detects that a path from inode to inode, for example from directory to parent, is a cycle (Brent's algorithm). Finds
/// a cycle within three times the number of steps that it takes to enter it and go round once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Circle {
    /// An inode that the path visited. It is replaced at exponentially growing intervals, so that it finally stays
    /// within the cycle for a whole round.
    mark: Option<Ino>,
    steps: u64,
}

impl Circle {
    /// Records a step to `ino`. Returns whether the path is a cycle.
    pub fn closes_at(&mut self, ino: Ino) -> bool {
        if self.mark == Some(ino) {
            return true;
        }
        self.steps += 1;
        if self.steps.is_power_of_two() {
            self.mark = Some(ino);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_are_found_quickly_and_long_paths_are_not_cycles() {
        let mut circle = Circle::default();
        assert!((0..1_000_000).all(|ino| !circle.closes_at(Ino(ino))));
        for (entry, len) in [(0, 1), (0, 2), (5, 1), (1000, 3), (3, 1000)] {
            let mut circle = Circle::default();
            let way =
                (0..).map(|step| if step < entry { step } else { entry + (step - entry) % len });
            let steps = way.take_while(|&ino| !circle.closes_at(Ino(ino))).count() as u64;
            assert!(steps <= 3 * (entry + len) + 1, "{entry} {len}: {steps}");
        }
    }
}
