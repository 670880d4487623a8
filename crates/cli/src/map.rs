//! `evenly map`: where communicating tasks should run.

use crate::errors::said;
use crate::flags::MapArgs;
use crate::profile::{self, Taken};
use crate::{End, output, tell};
use anyhow::Context;
use evenly_linux::supervise::Outcome;
use evenly_map::{
    Case, Described, Files, Input, Mapped, expected_s, machine, mapping_file, present,
};
use evenly_policy::map::{MAPPERS, MapperInfo, Options};
use std::path::{Path, PathBuf};

/// Above so many seconds it is said beforehand how long it will take.
const LONG_S: f64 = 5.0;

pub(crate) fn map(args: &MapArgs) -> anyhow::Result<End> {
    let json = args.json.as_deref().map(output::of_this_process);
    let out = args.out.as_deref().map(output::of_this_process);
    let counted = args.profile_out.as_deref().map(output::of_this_process);
    let outputs = Outputs { out, json, counted };
    check(args, &outputs)?;
    let described = machine(&args.topology, args.factors.as_deref())?;
    if !args.profile {
        let input = files(args).read()?;
        return place(args, described, input, &outputs).map(|()| End::Status(0));
    }
    let profiled = match profile::take(args, outputs.counted.as_deref())? {
        Taken::Ran(profiled) => profiled,
        Taken::NotStarted(outcome) => return Ok(End::Like(outcome)),
    };
    // The program has run: its end is ours, unless that was well and what follows is not.
    let placed = match profiled.input {
        Ok(input) => place(args, described, input, &outputs),
        Err(e) => Err(e),
    };
    match placed {
        Err(e) if profiled.outcome == Outcome::Exited(0) => Err(e),
        Err(e) => {
            tell(&format!("evenly: nothing was mapped: {}", said(&e)));
            Ok(End::Like(profiled.outcome))
        }
        Ok(()) => Ok(End::Like(profiled.outcome)),
    }
}

/// What is written where.
struct Outputs {
    out: Option<PathBuf>,
    json: Option<PathBuf>,
    counted: Option<PathBuf>,
}

impl Outputs {
    fn named(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let all = [("--out", &self.out), ("--json", &self.json), ("--profile-out", &self.counted)];
        all.into_iter().filter_map(|(option, path)| Some((option, path.as_deref()?)))
    }
}

/// Maps what was read, and writes and says what came out.
fn place(
    args: &MapArgs,
    described: Described,
    input: Input,
    outputs: &Outputs,
) -> anyhow::Result<()> {
    let case = case(args, described, input)?;
    let options = options(args);
    let mut mapped = Vec::new();
    if args.compare {
        say_how_long(&case, MAPPERS, &options, args.quiet);
        mapped.extend(MAPPERS.iter().map(|m| case.map(m, &options)));
    } else if args.judge.is_empty() {
        let algorithm = std::slice::from_ref(args.algorithm);
        say_how_long(&case, algorithm, &options, args.quiet);
        mapped.push(case.map(args.algorithm, &options));
    }
    let several = args.compare || !args.judge.is_empty();
    for path in &args.judge {
        mapped.push(judged(&case, path)?);
    }
    if let (Some(path), [m]) = (&outputs.out, &mapped[..]) {
        write(args, &case, m, path)?;
    }
    if let Some(path) = &outputs.json {
        let value = match &mapped[..] {
            [m] if !several => case.json(m, &options),
            all => case.comparison_json(all, &options),
        };
        output::write_json(path, &value)?;
    }
    if !args.quiet {
        let table = case.table(&mapped);
        if args.profile || outputs.named().any(|(_, path)| output::is_stdout(path)) {
            tell(table.trim_end());
        } else {
            output::write(Path::new("-"), table.as_bytes())?;
        }
        for note in case.notes(&mapped) {
            tell(&format!("evenly: note: {note}"));
        }
    }
    Ok(())
}

/// Nothing is written over what is read, and no two things to one place.
fn check(args: &MapArgs, outputs: &Outputs) -> anyhow::Result<()> {
    let files = files(args);
    let machine = Path::new(&args.topology);
    let read = files.all().chain(args.factors.as_deref()).chain([machine]);
    let read: Vec<&Path> = read.chain(args.judge.iter().map(PathBuf::as_path)).collect();
    let mut before: Vec<(&str, &Path)> = Vec::new();
    for (option, path) in outputs.named() {
        if args.profile {
            output::not_stdout(option, path)?;
        }
        output::check(option, path)?;
        if let Some(input) = read.iter().find(|input| output::same_file(input, path)) {
            anyhow::bail!(
                "{option} would be written over {}, which is read; name another file",
                input.display()
            );
        }
        let same = |other: &Path| other == path || output::same_file(other, path);
        if let Some((other, _)) = before.iter().find(|(_, other)| same(other)) {
            anyhow::bail!("{other} and {option} are both {}; name two files", path.display());
        }
        before.push((option, path));
    }
    Ok(())
}

fn files(args: &MapArgs) -> Files {
    Files {
        objects: args.objects.clone(),
        edges: args.edges.clone(),
        tasks: args.tasks.clone(),
        matrix: args.matrix.clone(),
        bytes_matrix: args.bytes_matrix.clone(),
        monitoring: args.monitoring.clone(),
    }
}

fn case(args: &MapArgs, described: Described, input: Input) -> anyhow::Result<Case> {
    let Described { cluster, factors_from } = described;
    let (present, from) = present(&input, &cluster, args.current.as_ref())?;
    Ok(Case { input, cluster, topology: args.topology.clone(), factors_from, present, from })
}

fn options(args: &MapArgs) -> Options {
    let usual = Options::default();
    // All of them, so that one that is new cannot be forgotten here.
    Options {
        alpha: args.alpha.unwrap_or(usual.alpha),
        seed: args.seed,
        time_limit: args.time_limit,
        migration_worth_s: args.migration_worth.unwrap_or(usual.migration_worth_s),
        max_migrations: args.max_migrations,
        max_imbalance: args.max_imbalance.map(|percent| percent / 100.0),
        tolerance: args.tolerance.map_or(usual.tolerance, |percent| percent / 100.0),
    }
}

/// Whoever waits for long knows it.
fn say_how_long(case: &Case, mappers: &[MapperInfo], options: &Options, quiet: bool) {
    let (n, m) = (case.input.graph.len(), case.cluster.cores().len());
    let each = expected_s(n, m, case.input.graph.pairs());
    let seconds = each * mappers.len() as f64;
    if !quiet && seconds > LONG_S {
        let search = if mappers.iter().any(|m| m.name == SEARCHES) {
            format!(", and {} of search (--time-limit)", options.time_limit)
        } else {
            String::new()
        };
        let what = match mappers {
            [m] => m.name.to_owned(),
            all => format!("{} algorithms", all.len()),
        };
        tell(&format!(
            "evenly: {what}, {n} tasks on {m} cores: this may take up to {seconds:.0} s{search}"
        ));
    }
}

/// The algorithm that searches until its time is up.
const SEARCHES: &str = "nuco+";

/// What a mapping from a file is worth.
fn judged(case: &Case, path: &Path) -> anyhow::Result<Mapped> {
    let mapping = mapping_file(path, &case.input.graph, &case.cluster)?;
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    Ok(case.judge(name, mapping))
}

/// The mapping in the form that was asked for.
fn write(args: &MapArgs, case: &Case, mapped: &Mapped, path: &Path) -> anyhow::Result<()> {
    let format = evenly_map::format(&args.format).context("--format")?;
    let text =
        evenly_map::write(format, &case.input.graph, &case.cluster, &mapped.mapping, &args.hosts)
            .with_context(|| format!("--format {}", args.format))?;
    output::write(path, text.as_bytes())
}
