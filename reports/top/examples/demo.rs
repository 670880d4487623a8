//! The live view over a made-up program, in real time:
//! `cargo run -p evenly-top --example demo -- [--plain] [--balance] [THREADS] [CPUS] [DOMAINS]`.

use evenly_engine::Observer;
use evenly_model::Pid;
use evenly_top::synthetic::Synthetic;
use evenly_top::{Feed, Header, World, has_terminal, run_plain, run_terminal};
use std::time::Duration;

fn main() -> std::io::Result<()> {
    let (mut flags, mut numbers) = (Vec::new(), Vec::new());
    for arg in std::env::args().skip(1) {
        match arg.parse::<u32>() {
            Ok(n) => numbers.push(n),
            Err(_) => flags.push(arg),
        }
    }
    let flag = |name: &str| flags.iter().any(|f| f == name);
    let number = |i: usize, default| numbers.get(i).copied().unwrap_or(default);
    let balances = flag("--balance");
    let mut program = Synthetic::new(number(0, 3), number(1, 2), number(2, 1), balances);
    let feed = Feed::new();
    let mut observer = feed.clone();
    std::thread::spawn(move || {
        loop {
            for event in program.step() {
                observer.event(&event);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let header = Header {
        pid: Pid(41_000),
        command: "./spmd --threads 3 --phases 100".into(),
        policy: if balances { "hybrid" } else { "observe" }.into(),
    };
    let exit = if has_terminal() && !flag("--plain") {
        run_terminal(&feed, &header, World::alone(&|| false))?
    } else {
        run_plain(&feed, &header, World::alone(&|| false), &mut std::io::stdout())?
    };
    eprintln!("{exit:?}");
    Ok(())
}
