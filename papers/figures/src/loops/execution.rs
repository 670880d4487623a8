//! Figure 4: six kernels while others use more and more of the processors.

use super::bars::{ARMS, Bars, EIGHT, FREE, LB, LB_SCH, LOADED, PLAIN, RP, SCH, SEEDS};
use super::cooperation;
use crate::runs::range;
use crate::{Agrees, Drawing, FigureError, Finding, Made, Panel};
use evenly_draw::{Axis, Chart, Look, Series, Table, decimals};
use evenly_iterations::Access;

/// What is drawn: the paper's four bars, and the unloaded processors alone.
const DRAWN: [usize; 5] = [PLAIN, LB, SCH, LB_SCH, FREE];

/// The arms of which it stands in the table how many pages moved.
const MOVES: [usize; 5] = [PLAIN, LB, SCH, LB_SCH, RP];

impl Bars {
    fn panel(&self) -> Panel {
        let series = |(colour, arm): (usize, usize)| {
            let at = |loaded: usize| (LOADED[loaded].0 as f64, self.time(loaded, arm));
            let points = (0..LOADED.len()).map(at).collect();
            Series::new(ARMS[arm].name, colour, Look::Joined, points)
        };
        let limit = LOADED.map(|(n, _)| (n as f64, 16.0 / (16.0 - 0.5 * n as f64)));
        let limit = Series::new("in proportion to powers", DRAWN.len(), Look::Dotted, limit.into());
        Panel {
            name: format!("loops-4-{}", self.kernel.name),
            title: format!("{}: {}", self.kernel.name, self.kernel.about),
            drawing: Drawing::Chart(Chart {
                x: Axis::linear("loaded", "loaded processors of 16"),
                y: Axis::linear("time", "time over plain without load").showing(1.0),
                series: DRAWN.into_iter().enumerate().map(series).chain([limit]).collect(),
            }),
        }
    }

    fn rows(&self) -> impl Iterator<Item = Vec<String>> + '_ {
        let row = |(loaded, (n, _)): (usize, &(usize, [usize; 4]))| {
            let cells = &self.cells[loaded];
            let times = cells.iter().map(|cell| decimals(cell.seconds, 2));
            let moved = MOVES.map(|arm| decimals(cells[arm].transfers, 0));
            // The others' time at most, whether the scheduler cooperates or not.
            let others = [PLAIN, LB, SCH, LB_SCH].map(|arm| match cells[arm].others_take {
                Some((_, most)) => decimals(most, 2),
                None => "-".into(),
            });
            let head = [self.kernel.name.to_owned(), n.to_string()];
            head.into_iter().chain(times).chain(moved).chain(others).collect()
        };
        LOADED.iter().enumerate().map(row)
    }
}

/// Jacobi whose rows go straight from the slowest to the fastest, over the one whose boundaries are shifted, where so many are
/// loaded: pages moved and time.
fn scattered(bars: &Bars, loaded: usize) -> Result<[f64; 2], FigureError> {
    let mut program = (bars.kernel.program)();
    program.loops.iter_mut().for_each(|l| l.region.access = Access::Independent);
    let found = ARMS[RP].cell(&program, LOADED[loaded].1)?;
    let shifted = bars.cells[loaded][RP];
    Ok([found.transfers / shifted.transfers, found.seconds / shifted.seconds])
}

pub(crate) fn figure() -> Result<Made, FigureError> {
    let bars = Bars::all()?;
    let [matrix, jacobi, sor, shallow, water, gauss] = &bars[..] else {
        unreachable!("there are six kernels")
    };
    let mut findings = vec![rates(&bars), no_load(&bars), doubles(&[jacobi, sor, gauss])];
    findings.extend([gains(matrix), few(&[jacobi, sor]), independent(jacobi)?]);
    findings.extend([most(shallow), locks(water)?, fine(gauss), messages(gauss)]);
    findings.extend(cooperation::findings(&bars));
    let columns = vec![
        ("kernel", "kernel"),
        ("loaded", "loaded"),
        ("plain_s", "plain, s"),
        ("lb_s", "LB, s"),
        ("sch_s", "SCH, s"),
        ("lb_sch_s", "LB+SCH, s"),
        ("rp_s", "rp, s"),
        ("free_s", "unloaded only, s"),
        ("plain_pages", "pages moved"),
        ("lb_pages", "by LB"),
        ("sch_pages", "by SCH"),
        ("lb_sch_pages", "by LB+SCH"),
        ("rp_pages", "by rp"),
        ("plain_others", "others take, plain"),
        ("lb_others", "LB"),
        ("sch_others", "SCH"),
        ("lb_sch_others", "LB+SCH"),
    ];
    let rows = bars.iter().flat_map(Bars::rows).collect();
    Ok(Made {
        setting: format!(
            "Simulated (`evenly simulate --loops`): 16 processors on 4 nodes, of which 0, 1, 2, 4 or 8 have another process that \
             computes, placed as in the paper; turns of 10 ms, of which each is up to a tenth shorter or longer; pages of 8 KiB that \
             take 220 us to fetch and 99 us on the wire of the node that they come from, twins 68 us, diffs 172 us, a barrier 30 us. \
             Mean of {} seeds. *Plain* divides equally, by blocks or in turn. The CPU time of an iteration follows from Table 1's \
             rate of barriers; Jacobi, SOR and Shallow run for 10 s, Water for 30 s. Only the text says what came out in the paper, in \
             per cent; the bars are not in it. *SCH*: the scheduler of the loaded processors \
             cooperates, as in section 2.5: a quantum of 10 ms, ticks of 833 us, 6 us for a switch, and spins of 13.2 us at first, twice \
             what a word takes there and back; what the paper leaves open is decided in \
             [0041](decisions/0041-the-bank-of-a-rank-that-waits.md). *Others take* so many times as long as alone, on the processor \
             where that is most.",
            SEEDS.count()
        ),
        panels: bars.iter().map(Bars::panel).collect(),
        tables: vec![Table { name: "loops-4-table".into(), columns, rows }],
        findings,
    })
}

fn rates(bars: &[Bars]) -> Finding {
    let rate = |b: &Bars| b.cells[0][PLAIN].barriers as f64 / b.cells[0][PLAIN].seconds;
    let off = |b: &Bars| (rate(b) / b.kernel.barriers_per_s - 1.0).abs();
    let list = |of: &dyn Fn(&Bars) -> f64| {
        bars.iter().map(|b| format!("{:.2}", of(b))).collect::<Vec<_>>().join(", ")
    };
    Finding {
        paper: "Table 1: 3.17, 68.02, 70.01, 10.03, 2.46 and 258.19 barriers in a second",
        here: format!("{}: fitted by the time of an iteration", list(&rate)),
        agrees: Agrees::when(
            bars.iter().all(|b| off(b) < 0.01),
            bars.iter().all(|b| off(b) < 0.05),
        ),
    }
}

fn no_load(bars: &[Bars]) -> Finding {
    let more = |b: &Bars| -b.less(0, LB);
    let list = bars.iter().map(|b| format!("{} {} %", b.name(), decimals(more(b), 1)));
    Finding {
        paper: "without load LB takes 3 % off Shallow, makes Gauss slightly slower, and does next to nothing to the others",
        here: format!(
            "{}. Shallow: its borders are set on the node that has the row, which saves a third of the pages that move; the \
             borders take less of its time here. Gauss: whoever fetches the pivot for its node is late, and the others of the node \
             take its rows. SOR: rows are divided by whole pages, so that no twins are made. Water: the first step has tasks of \
             256 molecules (the least common multiple of a page and a molecule), before it is seen that it computes",
            list.collect::<Vec<_>>().join(", ")
        ),
        agrees: Agrees::when(
            more(&bars[3]) < -2.0 && more(&bars[5]) > 0.0,
            bars.iter().all(|b| more(b) < 3.0) && more(&bars[3]) < 0.0,
        ),
    }
}

fn doubles(bars: &[&Bars]) -> Finding {
    let times: Vec<f64> = bars.iter().map(|b| b.time(EIGHT, PLAIN)).collect();
    Finding {
        paper: "plain takes more than twice as long with 8 loaded processors (Jacobi, SOR), as each is scheduled by itself",
        here: format!(
            "Jacobi {:.2}, SOR {:.2} and Gauss {:.2} times as long; 2 would be right if all had their turns together",
            times[0], times[1], times[2]
        ),
        agrees: Agrees::when(times.iter().all(|t| *t > 2.0), times.iter().any(|t| *t > 2.0)),
    }
}

fn gains(matrix: &Bars) -> Finding {
    let (low, high) = matrix.less_range(LB);
    Finding {
        paper: "Matrix is 26 to 33 % faster by LB",
        here: format!(
            "{low:.0} to {high:.0} %, with 8 to 1 loaded; {:.0} % with 8, where the limit is {:.0} %. With one loaded, plain takes \
             twice as long as without here, of which at most {:.0} % can be saved: the paper's plain must have taken less. Its \
             Matrix is 9 times as fast on 16 processors as on one, so that something else than the CPU took half of its time",
            matrix.less(EIGHT, LB),
            100.0 * (1.0 - 16.0 / 12.0 / matrix.time(EIGHT, PLAIN)),
            100.0 * (1.0 - 16.0 / 15.5 / matrix.time(1, PLAIN))
        ),
        agrees: Agrees::when(low > 25.0 && high < 34.0, low > 25.0),
    }
}

fn few(bars: &[&Bars]) -> Finding {
    let of = |b: &&Bars| {
        let less = |loaded| (b.less(loaded, LB), b.less(loaded, RP));
        (b.name(), less(1), less(EIGHT))
    };
    let all: Vec<_> = bars.iter().map(of).collect();
    let text = all.iter().map(|(name, one, eight)| {
        format!(
            "{name}: {:.0} % with one loaded, {:.0} % with eight (without stealing {:.0} and {:.0} %)",
            one.0, eight.0, one.1, eight.1
        )
    });
    Finding {
        paper: "LB alone gains much less as more are loaded (Jacobi, SOR): there is little to compute between two barriers",
        here: format!(
            "{}. A processor that steals is in the middle of a task more often when its turn ends, and then all wait for it",
            text.collect::<Vec<_>>().join("; ")
        ),
        agrees: Agrees::when(
            all.iter().all(|(_, one, eight)| eight.0 < one.0 && eight.1 < one.1),
            all.iter().all(|(_, one, eight)| eight.1 < one.1),
        ),
    }
}

fn independent(jacobi: &Bars) -> Result<Finding, FigureError> {
    let all = (1..LOADED.len()).map(|loaded| scattered(jacobi, loaded));
    let all = all.collect::<Result<Vec<_>, _>>()?;
    let pages = range(all.iter().map(|both| both[0]));
    let time = range(all.iter().map(|both| both[1]));
    Ok(Finding {
        paper: "if Jacobi's rows go straight from the slowest to the fastest, twice as many pages move, and it takes 1.5 times as long",
        here: format!(
            "{:.1} to {:.1} times as many pages, {:.2} to {:.2} times as long: rows that are scattered move each time that a \
             neighbour's row is needed, but all nodes fetch at the same time, and 8 to 16 pages at 220 us are little beside \
             15 ms of waiting for turns",
            pages.0, pages.1, time.0, time.1
        ),
        agrees: Agrees::when(time.0 > 1.3, pages.0 > 1.8),
    })
}

fn most(shallow: &Bars) -> Finding {
    let (low, high) = shallow.less_range(LB);
    Finding {
        paper: "Shallow is up to 28 % faster by LB",
        here: format!(
            "{low:.0} to {high:.0} %, the least with 8 loaded; as for Matrix, the paper's plain loses less"
        ),
        agrees: Agrees::when((low..=high).contains(&28.0), low > 20.0),
    }
}

fn locks(water: &Bars) -> Result<Finding, FigureError> {
    let mut program = (water.kernel.program)();
    program.loops.iter_mut().for_each(|l| l.updates = None);
    let part = |loaded: usize, arm: usize| {
        let without = ARMS[arm].cell(&program, LOADED[loaded].1)?;
        Ok::<_, FigureError>(100.0 * (1.0 - without.seconds / water.cells[loaded][arm].seconds))
    };
    let less = water.less(EIGHT, LB);
    Ok(Finding {
        paper: "Water is 4 % faster by LB with 8 loaded, as processors lose their turns while they hold locks",
        here: format!(
            "{less:.0} %. What is done under locks takes {:.0} % of its time without load, and {:.0} % of LB's with 8 loaded: \
             processors go through the molecules one behind the other, so that few wait for a lock whose holder has lost its turn. \
             The paper does not say how long its locks are held, or how often",
            part(0, PLAIN)?,
            part(EIGHT, LB)?
        ),
        agrees: Agrees::when((0.0..10.0).contains(&less), less < 0.0),
    })
}

fn fine(gauss: &Bars) -> Finding {
    Finding {
        paper: "Gauss is 5 % faster by LB when many are loaded",
        here: format!(
            "{:.0} % with 8 loaded, {:.0} % with 4 and {:.0} % with one: a barrier every 4 ms, and turns of 10 ms",
            gauss.less(EIGHT, LB),
            gauss.less(3, LB),
            gauss.less(1, LB)
        ),
        agrees: Agrees::when(
            (2.0..10.0).contains(&gauss.less(EIGHT, LB)),
            gauss.less(EIGHT, LB) < gauss.less(1, LB),
        ),
    }
}

fn messages(gauss: &Bars) -> Finding {
    let cell = gauss.cells[0][PLAIN];
    Finding {
        paper: "Gauss passes 4,101 barriers and sends 392,000 messages in 16 s",
        here: format!(
            "{} barriers in {:.1} s, and {:.0} messages: two for each page and node, and none for write notices and directories, \
             which Cashmere writes into the memory of all nodes",
            cell.barriers, cell.seconds, cell.messages
        ),
        agrees: Agrees::when(
            (300e3..500e3).contains(&cell.messages),
            (4_000..4_200).contains(&cell.barriers),
        ),
    }
}
