//! The figures of programs with unequal work, as text.

use super::{KERNEL, Measurement, POLICIES, REFERENCE, Report};
use crate::figures::Own;
use crate::measured::Measured;
use crate::show::table;

fn measured(m: Option<&Measured>, decimals: usize) -> String {
    m.map_or_else(|| String::from("-"), |m| m.text(decimals))
}

impl Measurement {
    pub(super) fn text(&self) -> String {
        let mut text = format!("{}: {}\n", self.case.name, self.case.what());
        text.push_str(&format!("  limit {} s\n", measured(self.limit_s.as_ref(), 3)));
        let head = ["arm", "makespan s", "vs kernel", "% of limit", "others %", "evenly"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        for arm in self.arms.iter().filter(|a| a.name != REFERENCE) {
            let did = |own: &Own| {
                format!(
                    "{:.0} moves, weights {:.0} times, {:.2} % of one CPU{}",
                    own.migrations,
                    own.weighings,
                    own.overhead_percent,
                    if own.stood_down > 0 {
                        format!(", stood down in {} runs", own.stood_down)
                    } else {
                        String::new()
                    }
                )
            };
            rows.push(vec![
                arm.name.clone(),
                measured(arm.makespan_s.as_ref(), 3),
                measured(arm.speedup_vs_kernel.as_ref(), 3),
                measured(arm.limit_percent.as_ref(), 1),
                arm.others.map_or_else(|| "-".into(), |part| format!("{:.1}", 100.0 * part)),
                arm.own.as_ref().map_or_else(|| "-".into(), did),
            ]);
        }
        text.push_str(&table(&rows));
        text.push_str(&self.balanced());
        text.push_str(&self.turning());
        text.push('\n');
        text
    }

    /// Where the CPUs' time went.
    fn balanced(&self) -> String {
        let head = [
            "% of the CPUs",
            "not computing",
            "more",
            "held up",
            "more",
            "not had",
            "more",
            "evenly",
        ];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        for arm in &self.arms {
            let Some(b) = &arm.balanced else { continue };
            let mut row = vec![arm.name.clone()];
            let (lost, held) = ([&b.lost_percent, &b.lost_more], [&b.held_percent, &b.held_more]);
            let taken = [&b.taken_percent, &b.taken_more, &b.own_percent];
            for m in lost.into_iter().chain(held).chain(taken) {
                row.push(measured(m.as_ref(), 2));
            }
            rows.push(row);
        }
        if rows.len() > 1 { table(&rows) } else { String::new() }
    }

    /// How soon work that turned round was followed.
    fn turning(&self) -> String {
        let head = [
            "iterations after reversals",
            "until parts turned",
            "until times were back",
            "of the profile",
            "cost",
            "settled s",
        ];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        for arm in &self.arms {
            let Some(turning) = &arm.turning else { continue };
            let known = |n: Option<String>| n.unwrap_or_else(|| String::from("-"));
            let [parts, times] = turning.words();
            rows.push(vec![
                format!("{} ({})", arm.name, turning.reversals),
                parts,
                times,
                known(turning.profile_after.map(|n| n.to_string())),
                known(turning.cost_iterations.map(|n| format!("{n:.1}"))),
                known(turning.settled_s.map(|s| format!("{s:.4}"))),
            ]);
        }
        if rows.len() > 1 { table(&rows) } else { String::new() }
    }
}

impl Report {
    /// All cases in one table.
    pub(super) fn text(&self) -> String {
        let mut head = vec![String::from("against the kernel")];
        head.extend(POLICIES.map(str::to_owned));
        head.push(format!("% of limit: {KERNEL}"));
        head.extend(POLICIES.map(str::to_owned));
        let mut rows = vec![head];
        for m in &self.cases {
            let arm = |name: &str| m.arms.iter().find(|a| a.name == name);
            let against =
                |name: &str| measured(arm(name).and_then(|a| a.speedup_vs_kernel.as_ref()), 3);
            let of_limit = |name: &str| match arm(name).and_then(|a| a.limit_percent.as_ref()) {
                Some(percent) => format!("{:.1}", percent.value),
                None => String::from("-"),
            };
            let mut row = vec![m.case.name.clone()];
            row.extend(POLICIES.map(against));
            row.push(of_limit(KERNEL));
            row.extend(POLICIES.map(of_limit));
            rows.push(row);
        }
        table(&rows)
    }
}
