"""What scripts/bench-all is made of: `machine` (programs, and how they are run), the sections (what is measured, and
the tables that come of it), `show` (how figures are written), `goals` (what was asked for) and `page` (how tables come
into docs/performance.md and docs/performance-details.md)."""
