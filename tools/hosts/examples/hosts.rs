//! Runs a command on the first of two simulated hosts, `evenly-a` and `evenly-b`, with a CPU each:
//!
//!     cargo run -p evenly-hosts --example hosts -- 200us mpirun -host evenly-a,evenly-b -n 2 hostname

use evenly_hosts::{Hosts, Wanted};
use evenly_model::{CpuId, CpuSet, parse_duration};
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let run = || -> Result<bool, Box<dyn std::error::Error>> {
        let [delay, program, rest @ ..] = &words[..] else {
            return Err("a delay and a command are needed".into());
        };
        let delay = match delay.as_str() {
            "0" => Duration::ZERO,
            text => Duration::from_nanos(parse_duration(text)?.0),
        };
        let cpus = Some([CpuSet::single(CpuId(0)), CpuSet::single(CpuId(1))]);
        let hosts = Hosts::new(&Wanted { names: ["evenly-a", "evenly-b"], delay, cpus })?;
        let status = hosts.command(0, program).args(rest).envs(hosts.environment()).status()?;
        eprintln!("{:?} {:?}", hosts.traffic(0)?, hosts.wire_is_prompt());
        Ok(status.success())
    };
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}
