//! Figure 4: what the paper says of its bars SCH and LB+SCH.

use super::bars::{Bars, EIGHT, FREE, LB, LB_SCH, LOADED, PLAIN, SCH};
use crate::runs::range;
use crate::{Agrees, Finding};

/// Others take twice as long as alone where each has half of a processor, and no more, but for so many per cent.
const TWICE: f64 = 2.02;

pub(super) fn findings(bars: &[Bars]) -> Vec<Finding> {
    let [matrix, jacobi, sor, _, water, gauss] = bars else {
        unreachable!("there are six kernels")
    };
    let fine = [jacobi, sor];
    vec![
        no_load(bars),
        constant(&fine),
        both(&fine),
        indifferent(matrix),
        molecules(water),
        elimination(gauss),
        unloaded(gauss),
        fair(bars),
    ]
}

fn percents((low, high): (f64, f64)) -> String {
    format!("{low:.0} to {high:.0} %")
}

fn list(bars: &[&Bars], of: impl Fn(&Bars) -> String) -> String {
    bars.iter().map(|b| format!("{} {}", b.name(), of(b))).collect::<Vec<_>>().join(", ")
}

fn no_load(bars: &[Bars]) -> Finding {
    let same = |b: &Bars| {
        [(SCH, PLAIN), (LB_SCH, LB)]
            .iter()
            .all(|&(arm, without)| b.time(0, arm) == b.time(0, without))
    };
    Finding {
        paper: "without load cooperative scheduling costs next to nothing, and makes Gauss slightly slower",
        here: "nothing: with nobody to yield to a yield returns at once, and its 0.5 us are not counted".into(),
        agrees: Agrees::when(false, bars.iter().all(same)),
    }
}

fn constant(bars: &[&Bars]) -> Finding {
    let spread = |b: &Bars, arm| {
        let (least, most) = b.times(arm);
        most / least
    };
    Finding {
        paper: "by SCH Jacobi and SOR take the same time however many are loaded, as nobody waits for a process that is descheduled",
        here: format!(
            "{}; by plain {}",
            list(bars, |b| format!("{:.2} to {:.2}", b.times(SCH).0, b.times(SCH).1)),
            list(bars, |b| format!("{:.2} to {:.2}", b.times(PLAIN).0, b.times(PLAIN).1))
        ),
        agrees: Agrees::when(
            bars.iter().all(|b| spread(b, SCH) < 1.03 && b.time(EIGHT, PLAIN) > 2.0),
            bars.iter().all(|b| spread(b, SCH) < spread(b, PLAIN)),
        ),
    }
}

fn both(bars: &[&Bars]) -> Finding {
    Finding {
        paper: "LB+SCH takes at least 24 % off Jacobi and SOR in all cases",
        here: format!(
            "{}; with 8 loaded {}, of which LB alone takes {}",
            list(bars, |b| percents(b.less_range(LB_SCH))),
            list(bars, |b| format!("{:.0} %", b.less(EIGHT, LB_SCH))),
            list(bars, |b| format!("{:.0} %", b.less(EIGHT, LB)))
        ),
        agrees: Agrees::when(
            bars.iter().all(|b| b.less_range(LB_SCH).0 >= 24.0),
            bars.iter().any(|b| b.less_range(LB_SCH).0 >= 24.0),
        ),
    }
}

fn indifferent(matrix: &Bars) -> Finding {
    let off = |(with, without)| {
        range(
            (1..LOADED.len())
                .map(|l| 100.0 * (matrix.time(l, with) / matrix.time(l, without) - 1.0)),
        )
    };
    let (alone, balanced) = (off((SCH, PLAIN)), off((LB_SCH, LB)));
    let most = [alone.0, alone.1, balanced.0, balanced.1]
        .into_iter()
        .fold(0.0, |m: f64, v| m.max(v.abs()));
    Finding {
        paper: "Matrix does not care whether the scheduler cooperates: 315 ms between barriers, turns of 10 ms",
        here: format!(
            "SCH takes {:.1} to {:.1} % more than plain, LB+SCH {:.1} to {:.1} % more than LB",
            alone.0, alone.1, balanced.0, balanced.1
        ),
        agrees: Agrees::when(most < 3.0, most < 6.0),
    }
}

fn molecules(water: &Bars) -> Finding {
    let (low, high) = water.less_range(LB_SCH);
    Finding {
        paper: "LB+SCH takes 22 to 29 % off Water in all cases",
        here: format!(
            "{}, of which LB alone takes {}. With 8 loaded {:.0} %, where the limit is {:.0} %; with one, plain takes {:.2} times as \
             long as without load here, and less in the paper, as for Matrix. Whoever waits for a lock yields, but few do",
            percents((low, high)),
            percents(water.less_range(LB)),
            water.less(EIGHT, LB_SCH),
            100.0 * (1.0 - 16.0 / 12.0 / water.time(EIGHT, PLAIN)),
            water.time(1, PLAIN)
        ),
        agrees: Agrees::when(low >= 20.0 && high <= 31.0, low >= 20.0),
    }
}

fn elimination(gauss: &Bars) -> Finding {
    let less = gauss.less(EIGHT, LB_SCH);
    Finding {
        paper: "LB+SCH takes up to 23 % off Gauss with 8 loaded, and LB alone 5 %: a request takes up to 833 us to be honoured, with \
                a barrier every 4 ms",
        here: format!(
            "{less:.0} %, and LB alone {:.0} %; SCH alone {:.0} %. It still takes {:.2} times as long as in proportion to powers. Here \
             pages come from a node whatever runs there; in Cashmere a process has to answer, and with two of four processors loaded \
             it may be descheduled. The paper's yields were badly timed for Gauss, as it says itself",
            gauss.less(EIGHT, LB),
            gauss.less(EIGHT, SCH),
            gauss.time(EIGHT, LB_SCH) / (16.0 / 12.0)
        ),
        agrees: Agrees::when((18.0..28.0).contains(&less), less > gauss.less(EIGHT, LB) + 10.0),
    }
}

fn unloaded(gauss: &Bars) -> Finding {
    let over = |loaded: usize| gauss.time(loaded, LB_SCH) / gauss.time(loaded, FREE);
    let texts = (1..LOADED.len()).map(|l| format!("{:.2} with {} loaded", over(l), LOADED[l].0));
    let without = gauss.time(EIGHT, LB) / gauss.time(EIGHT, FREE);
    Finding {
        paper: "with more than four loaded, Gauss would be faster on the unloaded processors alone",
        here: format!(
            "LB+SCH over the unloaded alone: {}. LB without SCH {without:.2} with 8 loaded: there `evenly simulate --loops gauss` \
             names the unloaded alone (`free-cpus`) as the best. What a loaded processor adds is a sixth with 4 loaded, and half \
             with 8, against what a wait of up to 833 us costs at each barrier; SCH gains more here than in the paper",
            texts.collect::<Vec<_>>().join(", ")
        ),
        agrees: Agrees::when(over(EIGHT) > 1.0, without > 1.0),
    }
}

fn fair(bars: &[Bars]) -> Finding {
    let cells = |arm: usize| {
        let ranges =
            bars.iter().flat_map(|b| &b.cells).filter_map(move |cells| cells[arm].others_take);
        range(ranges.flat_map(|(least, most)| [least, most]))
    };
    let all = [PLAIN, LB, SCH, LB_SCH].map(cells);
    let text = |(least, most): (f64, f64)| format!("{least:.2} to {most:.2}");
    Finding {
        paper: "cooperative scheduling is fair: the load takes about twice as long as alone",
        here: format!(
            "plain {}, LB {}, SCH {}, LB+SCH {} times as long, over all kernels and loaded processors: who waits gives more than it \
             takes back",
            text(all[0]),
            text(all[1]),
            text(all[2]),
            text(all[3])
        ),
        agrees: Agrees::when(all[2].1.max(all[3].1) <= TWICE, all[2].1.max(all[3].1) < 2.2),
    }
}
