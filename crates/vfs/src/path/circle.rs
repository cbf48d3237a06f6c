//! Telling an endless way from a long one, in constant memory.

use crate::Ino;

/// Notices that a way from inode to inode leads in a circle: up through parents, for example. No way
/// is too long, and a circle is found within three times as many steps as it takes to enter it and go
/// round it once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Circle {
    /// An inode that the way came through: set ever more rarely, so that at some time it lies in the
    /// circle and stays until the way has gone round.
    mark: Option<Ino>,
    steps: u64,
}

impl Circle {
    /// Notes that the way comes to `ino`; whether it goes in a circle.
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
    fn circles_are_found_soon_and_long_ways_are_none() {
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
