//! Figure 10: the idealised algorithm for n = 3 to 64, all m < n, lambda / e = 0.01 to 5.

use crate::{Agrees, Drawing, FigureError, Finding, Made, Panel};
use evenly_draw::{Axis, Field, HeatMap, LEVELS};
use evenly_sim::{Sweep, SweepRow};
use evenly_theory as theory;
use std::sync::atomic::AtomicBool;

/// Columns: n/m from 1 to 9 in steps of a tenth.
const COLUMNS: (f64, f64, usize) = (1.0, 0.1, 80);
/// Rows: lambda / e from 0 to 5 in steps of a tenth.
const ROWS: (f64, f64, usize) = (0.0, 0.1, 50);

/// The map of these runs: each field is the mean of the runs in it. Runs with a greater n/m are in
/// the last column.
#[must_use]
pub fn sweep_map(rows: &[SweepRow]) -> HeatMap {
    let (columns, fields) = (COLUMNS.2, ROWS.2);
    let mut sums = vec![(0.0, 0.0_f64, 0_u64); columns * fields];
    for r in rows {
        // Whole numbers: a tenth of n/m from 1 on, and hundredths of e, the last of each belonging
        // to its field.
        let column = ((10 * (r.threads - r.cpus) / r.cpus) as usize).min(columns - 1);
        let row = ((r.period.max(1) - 1) / 10) as usize;
        if let Some(f) = sums.get_mut(column * fields + row) {
            *f = (f.0 + r.relative_speedup, f.1.max(r.relative_speedup), f.2 + 1);
        }
    }
    let found = sums.iter().enumerate().filter(|(_, f)| f.2 > 0);
    HeatMap {
        x: Axis::linear("n_over_m", "n/m (the last column: 8.9 and more; white: no runs)"),
        y: Axis::linear("period_over_phase", "lambda / e"),
        column: "relative_speedup",
        label: "relative speedup",
        columns: (COLUMNS.0, COLUMNS.1),
        rows: (ROWS.0, ROWS.1),
        size: (columns, fields),
        levels: (1.0, 1.0 / LEVELS as f64),
        fields: found
            .map(|(i, &(sum, most, runs))| Field {
                column: i / fields,
                row: i % fields,
                mean: sum / runs as f64,
                most,
                runs,
            })
            .collect(),
    }
}

pub(crate) fn figure() -> Result<Made, FigureError> {
    let sweep = Sweep::default();
    let rows = sweep.run(|_| {}, &AtomicBool::new(false)).unwrap_or_default();
    let best = rows.iter().max_by(|a, b| a.relative_speedup.total_cmp(&b.relative_speedup));
    let (most, n, m, period) =
        best.map_or((f64::NAN, 0, 1, 0), |r| (r.relative_speedup, r.threads, r.cpus, r.period));
    let limit = theory::upper_bound(64, 63);
    let beyond = rows.iter().filter(|r| {
        r.relative_speedup > theory::upper_bound(r.threads, r.cpus) + 1e-9
            || r.relative_speedup < 1.0 - 1e-9
    });
    let (beyond, gains) = (beyond.count(), rows.iter().filter(|r| r.relative_speedup > 1.001));
    let gains = 100.0 * gains.count() as f64 / rows.len().max(1) as f64;
    let map = sweep_map(&rows);
    let findings = vec![
        Finding {
            paper: "colours by relative speedup over n = 3 to 64, m = 2 to n - 1, lambda / e = 0.01 to \
                    5; the text states no figures",
            here: format!(
                "{} runs, all between 1 and the bound of theory ({beyond} are not); the greatest is \
                 {most:.4}, {n} threads on {m} CPUs with lambda = {:.2} e, where the limit is \
                 {limit:.4}; something is gained in {gains:.1} % of all",
                rows.len(),
                f64::from(period) / 100.0
            ),
            agrees: Agrees::when(beyond == 0 && most > 0.99 * limit, false),
        },
        Finding {
            paper: "gains are greatest just above a whole n/m, fall as n/m grows (Figure 7), and end \
                    where lambda is a good part of a static phase (Figures 8 and 9)",
            here: format!(
                "mean relative speedup for lambda up to e / 10: {:.2} just above n/m = 1, {:.2} just \
                 below 2, {:.2} just above 2; for lambda above 2 e just above n/m = 1: {:.3}",
                mean(&map, 0, 0..1),
                mean(&map, 9, 0..1),
                mean(&map, 10, 0..1),
                mean(&map, 0, 20..50)
            ),
            agrees: Agrees::when(
                mean(&map, 0, 0..1) > mean(&map, 9, 0..1)
                    && mean(&map, 10, 0..1) > mean(&map, 9, 0..1)
                    && mean(&map, 0, 20..50) < 1.001,
                false,
            ),
        },
    ];
    Ok(Made {
        tables: Vec::new(),
        setting: String::from(
            "Simulated: the idealised algorithm of section 3, as `evenly simulate --sweep` runs it. A \
             field is the mean of all runs in it, the CSV has the greatest of each too. How the paper \
             laid three dimensions out on two is only in its picture.",
        ),
        panels: vec![Panel {
            name: String::from("juggle-10"),
            title: String::from("Relative speedup of the idealised algorithm"),
            drawing: Drawing::Heat(map),
        }],
        findings,
    })
}

/// Mean of the fields of a column in these rows.
fn mean(map: &HeatMap, column: usize, rows: std::ops::Range<usize>) -> f64 {
    let within = map.fields.iter().filter(|f| f.column == column && rows.contains(&f.row));
    let (sum, runs) = within.fold((0.0, 0), |(s, r), f| (s + f.mean * f.runs as f64, r + f.runs));
    sum / runs as f64
}
