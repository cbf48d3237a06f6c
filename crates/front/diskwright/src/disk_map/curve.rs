//! Order of the cells in the picture.

/// Order in which cells fill the picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Curve {
    /// Row by row, each from left to right.
    #[default]
    Rows,
    /// Along a Hilbert curve through a square, so that cells close on the disk are close in the picture.
    Hilbert,
}

/// A grid with a place for each cell. The length of a row is a power of two, so that rows begin at round offsets of the
/// disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    curve: Curve,
    pub(crate) columns: usize,
    pub(crate) rows: usize,
}

impl Grid {
    /// Creates a grid with at least `cells` places: at least twice as many columns as rows, or a square.
    pub(crate) fn new(curve: Curve, cells: usize) -> Self {
        let cells = cells.max(1);
        match curve {
            Curve::Rows => {
                let root = (cells * 2).isqrt();
                let columns = if root * root < cells * 2 { root + 1 } else { root };
                let columns = columns.next_power_of_two();
                Self { curve, columns, rows: cells.div_ceil(columns) }
            }
            Curve::Hilbert => {
                let mut side: usize = 1;
                while side * side < cells {
                    side *= 2;
                }
                Self { curve, columns: side, rows: side }
            }
        }
    }

    /// Returns column and row of a cell.
    pub(crate) fn place(&self, cell: usize) -> (usize, usize) {
        match self.curve {
            Curve::Rows => (cell % self.columns, cell / self.columns),
            Curve::Hilbert => hilbert(self.columns, cell),
        }
    }

    /// Returns whether the next cell is the right neighbour.
    pub(crate) fn goes_right(&self, cell: usize) -> bool {
        let ((x, y), next) = (self.place(cell), self.place(cell + 1));
        next == (x + 1, y)
    }
}

/// Returns the position with index `at` on the Hilbert curve through a square whose side is a power of two.
fn hilbert(side: usize, at: usize) -> (usize, usize) {
    let (mut x, mut y, mut at) = (0, 0, at);
    let mut size = 1;
    while size < side {
        let right = (at / 2) & 1;
        let down = (at ^ right) & 1;
        if down == 0 {
            if right == 1 {
                (x, y) = (size - 1 - x, size - 1 - y);
            }
            (x, y) = (y, x);
        }
        x += size * right;
        y += size * down;
        at /= 4;
        size *= 2;
    }
    (x, y)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_cell_has_a_place_of_its_own_beside_the_one_before() {
        for cells in [1, 2, 5, 64, 100, 4096] {
            for curve in [Curve::Rows, Curve::Hilbert] {
                let grid = Grid::new(curve, cells);
                let places: Vec<_> = (0..cells).map(|cell| grid.place(cell)).collect();
                let distinct: HashSet<_> = places.iter().collect();
                assert_eq!(distinct.len(), cells);
                assert!(places.iter().all(|(x, y)| *x < grid.columns && *y < grid.rows));
                let steps = places
                    .windows(2)
                    .map(|pair| pair[0].0.abs_diff(pair[1].0) + pair[0].1.abs_diff(pair[1].1));
                if curve == Curve::Hilbert {
                    assert!(steps.into_iter().all(|step| step == 1), "{cells}");
                }
            }
        }
    }
}
