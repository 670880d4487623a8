//! `evenly map`: where communicating tasks should run.

use crate::flags::{AlphaArg, MapArgs};
use crate::profile::{self, Taken};
use crate::{End, output, tell, tell_lines};
use anyhow::Context;
use evenly_cluster::CoreIndex;
use evenly_errors::said;
use evenly_linux::supervise::{Outcome, Signals};
use evenly_map::{
    Algorithm, Background, Case, Described, Files, Format, Input, Mapped, Mpi, Nature, Point,
    PresentFrom, expected_s, judging_s, machine, mapping_file, names_differ, present, procs_file,
    with_speeds,
};
use evenly_model::Nanos;
use evenly_nuco::map::{Alpha, CommCost, Options};
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::HashMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// Above so many seconds it is said beforehand how long it will take, and how long reading will.
const LONG_S: f64 = 5.0;
const LONG_READING_S: f64 = 1.0;
/// For so many tasks, or pairs that communicate, it always is.
const MANY: usize = 100_000;
/// The exit status where a mapping was made that does not keep the bounds that were asked for.
const UNREACHED: u8 = 1;

pub(crate) fn map(args: &MapArgs) -> anyhow::Result<End> {
    // Not left to the parser, which names the first option of several.
    anyhow::ensure!(
        args.profile || files(args).all().next().is_some(),
        "no tasks are given; give --objects FILE (with --edges FILE), --tasks FILE, \
         --matrix FILE or --monitoring FILE, or --profile -- CMD, which runs an MPI program and counts \
         (see evenly map --help)"
    );
    let json = args.json.as_deref().map(output::of_this_process);
    let out = args.out.as_deref().map(output::of_this_process);
    let counted = args.profile_out.as_deref().map(output::of_this_process);
    let front = args.front.as_deref().map(output::of_this_process);
    let outputs = Outputs { out, json, counted, front };
    check(args, &outputs)?;
    names_differ(&args.hosts).context("--hosts")?;
    let described = machine(&args.topology, args.factors.as_deref())?;
    let options = options(args, described.memory_s)?;
    if args.profile && args.current.is_none() {
        // Ranks are wherever their launcher puts them; said before the program runs for nothing.
        no_migrations_from_nowhere(args)?;
    }
    if !args.profile {
        let files = files(args);
        say_how_long_to_read(&files, args.quiet);
        let mut input = files.read()?;
        if let Some(received_in_loads) = args.received_in_loads {
            input.nature.received_in_loads = received_in_loads;
            input.nature.loads_are_said = true;
        }
        let bounds = place(args, described, input, options, &outputs)?;
        return Ok(End::Status(bounds.status()));
    }
    let profiled = match profile::take(args, outputs.counted.as_deref())? {
        Taken::Ran(profiled) => profiled,
        Taken::NotStarted(outcome) => return Ok(End::Like(outcome)),
    };
    // Only the search is left, which may take as long as --time-limit says.
    Signals::let_through();
    // The program has run: its end is ours, unless that was well and what follows is not.
    let placed = match profiled.input {
        Ok(input) => place(args, described, input, options, &outputs),
        Err(e) => Err(e),
    };
    match placed {
        Err(e) if profiled.outcome == Outcome::Exited(0) => Err(e),
        Err(e) => {
            tell(&format!("evenly: nothing was mapped: {}", said(&e)));
            Ok(End::Like(profiled.outcome))
        }
        Ok(bounds) if profiled.outcome == Outcome::Exited(0) => Ok(End::Status(bounds.status())),
        Ok(_) => Ok(End::Like(profiled.outcome)),
    }
}

/// Whether bounds on a mapping were kept, as far as there were any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bounds {
    Kept,
    Unreached,
}

impl Bounds {
    fn of(mapped: &[Mapped]) -> Self {
        if mapped.iter().any(|m| m.unreached.is_some()) { Self::Unreached } else { Self::Kept }
    }

    fn status(self) -> u8 {
        match self {
            Self::Kept => 0,
            Self::Unreached => UNREACHED,
        }
    }
}

/// What is written where.
struct Outputs {
    out: Option<PathBuf>,
    json: Option<PathBuf>,
    counted: Option<PathBuf>,
    /// What the names of the files of `--front` begin with.
    front: Option<PathBuf>,
}

impl Outputs {
    fn named(&self) -> Vec<(&'static str, PathBuf)> {
        let all = [("--out", &self.out), ("--json", &self.json), ("--profile-out", &self.counted)];
        let files = all.into_iter().filter_map(|(option, path)| Some((option, path.clone()?)));
        let drawn = self.front.iter().flat_map(|prefix| front_files(prefix));
        files.chain(drawn.map(|path| ("--front", path))).collect()
    }
}

/// Maps what was read, and writes and says what came out.
fn place(
    args: &MapArgs,
    described: Described,
    input: Input,
    options: Options,
    outputs: &Outputs,
) -> anyhow::Result<Bounds> {
    let options = &of_nature(options, input.nature);
    let hosts = match &args.hosts[..] {
        [] if described.hosts.is_empty() && args.topology == evenly_map::THIS => {
            vec![String::from("localhost")]
        }
        [] => described.hosts.clone(),
        given => given.to_vec(),
    };
    let too_dear = too_dear(&described, options);
    let case = case(args, described, input)?;
    if case.from == PresentFrom::Assumed {
        no_migrations_from_nowhere(args)?;
    }
    let mut mapped = Vec::new();
    let (mut missing, mut failed) = (Vec::new(), Vec::new());
    if args.compare {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let (there, not_there): (Vec<Algorithm>, Vec<Algorithm>) = Algorithm::all()
            .partition(|a| !matches!(a, Algorithm::Program(p) if p.find(&path).is_none()));
        missing = not_there;
        say_how_long(&case, &there, options, args.quiet);
        for algorithm in there {
            match case.decide(algorithm, options) {
                Ok(one) => mapped.push(one),
                // An external program: the others can be compared without it.
                Err(error) => failed.push(format!("left out: {error}")),
            }
        }
    } else if args.judge.is_empty() && args.front.is_none() {
        say_how_long(&case, std::slice::from_ref(&args.algorithm), options, args.quiet);
        mapped.push(case.decide(args.algorithm, options)?);
    }
    let several = args.compare || !args.judge.is_empty();
    for path in &args.judge {
        mapped.push(judged(&case, path)?);
    }
    if let Some(prefix) = &outputs.front {
        draw_front(args, &case, options, mapped, prefix, outputs.json.as_deref())?;
        // Its bounds are what it tries.
        return Ok(Bounds::Kept);
    }
    if let (Some(path), [m]) = (&outputs.out, &mapped[..]) {
        write(args, &case, m, &hosts, path)?;
    }
    if let Some(path) = &outputs.json {
        let value = match &mapped[..] {
            [m] if !several => case.json(m, options),
            all => case.comparison_json(all, options),
        };
        output::write_json(path, &value)?;
    }
    if !args.quiet {
        let table = case.table(&mapped, options);
        if args.profile || outputs.named().iter().any(|(_, path)| output::is_stdout(path)) {
            tell_lines(&table);
        } else {
            output::write(Path::new("-"), table.as_bytes())?;
        }
        if let (Some(_), [m]) = (&outputs.out, &mapped[..]) {
            failed.extend(launcher_notes(args, &case, m));
        }
        for note in case.notes(&mapped).iter().chain(&too_dear).chain(&failed) {
            tell(&format!("evenly: note: {note}"));
        }
        for algorithm in missing {
            if let Algorithm::Program(p) = algorithm {
                tell(&format!("evenly: note: left out: {}, as {}", p.name, p.missing()));
            }
        }
    } else {
        // What was asked for and is not there is said in any case.
        for m in &mapped {
            if let Some(unreached) = m.unreached {
                tell(&format!("evenly: note: {}: {unreached}", m.name));
            }
        }
    }
    Ok(Bounds::of(&mapped))
}

/// For where nothing says where tasks are: a list of moves would move them from where they are not.
fn no_migrations_from_nowhere(args: &MapArgs) -> anyhow::Result<()> {
    anyhow::ensure!(
        evenly_map::format(&args.format) != Some(Format::Migrations),
        "--format migrations: nothing says where the tasks are now; give --current, or the column pe \
         of --objects"
    );
    Ok(())
}

/// Nothing is written over what is read, and no two things to one place.
fn check(args: &MapArgs, outputs: &Outputs) -> anyhow::Result<()> {
    let files = files(args);
    let machine = Path::new(&args.topology);
    let read = files.all().chain(args.factors.as_deref()).chain(args.procs.as_deref());
    let read = read.chain([machine]);
    let read: Vec<&Path> = read.chain(args.judge.iter().map(PathBuf::as_path)).collect();
    let named = outputs.named();
    let mut before: Vec<(&str, &Path)> = Vec::new();
    for (option, path) in named.iter().map(|(option, path)| (*option, path.as_path())) {
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

fn case(args: &MapArgs, described: Described, mut input: Input) -> anyhow::Result<Case> {
    let Described { mut cluster, factors_from, caches_from, notes, .. } = described;
    input.notes.extend(notes);
    let mut background = None;
    if let Some(path) = &args.procs {
        let procs = procs_file(path, &cluster)?;
        let wrong = |what: String| anyhow::anyhow!("{}: {what}", path.display());
        cluster = with_speeds(cluster, &procs).map_err(wrong)?;
        background = Background::of(&input.graph, &cluster, &procs).map_err(wrong)?;
    }
    let (present, from) = present(&input, &cluster, args.current.as_ref())?;
    let topology = args.topology.clone();
    let by_work = args.effort.is_some();
    Ok(Case {
        input,
        cluster,
        topology,
        factors_from,
        caches_from,
        present,
        from,
        background,
        by_work,
    })
}

/// How much more than it takes a message between hosts may count before that is said.
const DEAR: f64 = 3.0;

/// Where the latency of messages between hosts was measured: what to say if they count for much more.
/// The usual alpha is the paper's, and goes with the paper's machines.
fn too_dear(described: &Described, options: &Options) -> Option<String> {
    let (cluster, memory_s) = (&described.cluster, described.memory_s?);
    let several = cluster.nodes().iter().any(|n| n.host != cluster.nodes()[0].host);
    let farthest = cluster.factors().iter().copied().fold(1.0, f64::max);
    match options.alpha {
        Alpha::Fixed(alpha) if several && alpha > DEAR * memory_s => Some(format!(
            "the farthest message counts for {} of load and takes {}; --alpha latency counts what \
             messages take",
            Nanos::from_secs_f64(alpha * farthest),
            Nanos::from_secs_f64(memory_s * farthest),
        )),
        _ => None,
    }
}

/// What a message between ranks of one core costs, over one from another core of its node: the one that
/// waits has to get the CPU first. 2: with it no mapper of `evenly-bench hosts --on here` is faster than `nuco+`,
/// with 0 three are (tools/bench/README.md).
const TURN: f64 = 2.0;

fn options(args: &MapArgs, memory_s: Option<f64>) -> anyhow::Result<Options> {
    let usual = Options::default();
    let alpha = match args.alpha {
        None => None,
        Some(AlphaArg::Is(alpha)) => Some(alpha),
        Some(AlphaArg::Latency) => Some(Alpha::Fixed(memory_s.with_context(|| {
            format!(
                "--alpha latency: the latency of local memory is not known for {}; it is for this \
                 machine after `evenly topology --measure`, and for hosts in what --network exports",
                args.topology
            )
        })?)),
    };
    check_bounds(args)?;
    // All of them, so that one that is new cannot be forgotten here.
    Ok(Options {
        alpha: alpha.unwrap_or(usual.alpha),
        beta: args.beta.or(usual.beta),
        greedy_comm: CommCost {
            message: alpha.unwrap_or(usual.greedy_comm.message),
            byte_s: args.beta.unwrap_or(usual.greedy_comm.byte_s),
        },
        seed: args.seed,
        time_limit: args.effort.map_or(args.time_limit, Nanos::from_secs_f64),
        migration_worth_s: args.migration_worth.or(usual.migration_worth_s),
        windows: args.windows.unwrap_or(usual.windows),
        // Not an option here: objects of a runtime are copied.
        copied_within_nodes: usual.copied_within_nodes,
        // These two follow from what the tasks are, which is read later ([`of_nature`]).
        received_in_loads: usual.received_in_loads,
        same_core: usual.same_core,
        max_migrations: args.max_migrations,
        max_imbalance: args.max_imbalance.map(|percent| percent / 100.0),
        tolerance: args.tolerance.map_or(usual.tolerance, |percent| percent / 100.0),
        program_limit: args.program_limit,
    })
}

/// The options for such tasks, whether they were just profiled or are read from a file that was kept.
fn of_nature(options: Options, nature: Nature) -> Options {
    let Nature { received_in_loads, loads_are_said: _, processes, mpi: _ } = nature;
    let options = Options { received_in_loads, ..options };
    if !processes {
        return options;
    }
    // Ranks that are started where they should be have not migrated.
    let migration_worth_s = options.migration_worth_s.or(Some(0.0));
    Options { migration_worth_s, same_core: TURN, ..options }
}

/// Refuses a bound that no mapper would keep.
///
/// # Errors
/// Where the algorithm does not look at it.
fn check_bounds(args: &MapArgs) -> anyhow::Result<()> {
    // Those of --front and --compare have nuco+ among them, and the others as a comparison.
    if args.compare || args.front.is_some() || !args.judge.is_empty() {
        return Ok(());
    }
    let name = args.algorithm.name();
    let given = [
        ("--beta", args.beta.is_some(), &["nuco+", "greedy-comm"][..]),
        ("--migration-worth", args.migration_worth.is_some(), &["nuco+"]),
        ("--windows", args.windows.is_some(), &["nuco+"]),
        ("--effort", args.effort.is_some(), &["nuco+"]),
        ("--max-migrations", args.max_migrations.is_some(), &["nuco+"]),
        ("--max-imbalance", args.max_imbalance.is_some(), &["nuco+"]),
        ("--tolerance", args.tolerance.is_some(), &["refine", "scotch", "metis", "kahip"]),
    ];
    for (flag, is_given, known_by) in given {
        anyhow::ensure!(
            !is_given || known_by.contains(&name),
            "{flag}: --algorithm {name} does not look at it; it is for {}",
            known_by.join(", ")
        );
    }
    Ok(())
}

/// What is read in a second, of CSV, with the graph that is made of it: a million tasks in a ring, 27
/// MB, took 2.3 s on a machine that had other work, too.
const READ_IN_A_SECOND: f64 = 12e6;

/// Announces a long wait, before anything is read, too.
fn say_how_long_to_read(files: &Files, quiet: bool) {
    // A pipe has no length; a missing file is reported when it is read.
    let length = |path: &Path| std::fs::metadata(path).map_or(0, |m| m.len());
    let bytes = files.all().map(length).sum::<u64>() as f64;
    let seconds = bytes / READ_IN_A_SECOND;
    if !quiet && seconds > LONG_READING_S {
        tell(&format!("evenly: {:.0} MB to read: this may take {seconds:.0} s", bytes / 1e6));
    }
}

/// Announces a long wait.
fn say_how_long(case: &Case, algorithms: &[Algorithm], options: &Options, quiet: bool) {
    let (n, m) = (case.input.graph.len(), case.cluster.cores().len());
    let pairs = case.input.graph.pairs();
    let own = |a: &Algorithm| match a {
        Algorithm::Own(mapper) => expected_s(mapper, n, m, pairs),
        // Not known.
        Algorithm::Program(_) => 0.0,
    };
    let searches = |a: &&Algorithm| matches!(a, Algorithm::Own(m) if m.effort.searches());
    let searching = algorithms.iter().filter(searches).count() as f64;
    let search_s = searching * options.time_limit.as_secs_f64();
    let deciding_s = algorithms.iter().map(own).sum::<f64>() + search_s;
    let seconds = deciding_s + judging_s(algorithms.len(), n, pairs);
    if !quiet && (seconds > LONG_S || n.max(pairs) >= MANY) {
        let search = if search_s > 0.0 {
            let limit = if case.by_work { "--effort" } else { "--time-limit" };
            format!(", {} of it search ({limit})", Nanos::from_secs_f64(search_s))
        } else {
            String::new()
        };
        let what = match algorithms {
            [a] => a.name().to_owned(),
            all => format!("{} algorithms", all.len()),
        };
        let programs = algorithms.iter().filter(|a| matches!(a, Algorithm::Program(_)));
        let programs: Vec<&str> = programs.map(|a| a.name()).collect();
        let besides = match &programs[..] {
            [] => String::new(),
            names => format!(", and what {} needs", names.join(" and ")),
        };
        // Less than a tenth of a second is not reported.
        let digits = usize::from(seconds < 9.95);
        let seconds = seconds.max(0.1);
        tell(&format!(
            "evenly: {what}, {n} tasks on {m} cores: this may take up to {seconds:.digits$} \
             s{search}{besides}"
        ));
    }
}

/// The files of `--front`: two pictures and their data.
fn front_files(prefix: &Path) -> [PathBuf; 3] {
    ["-imbalance.svg", "-messages.svg", ".csv"].map(|ending| {
        let mut name = prefix.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    })
}

/// Searches for mapping quality against number of migrations, and draws it.
fn draw_front(
    args: &MapArgs,
    case: &Case,
    options: &Options,
    judged: Vec<Mapped>,
    prefix: &Path,
    json: Option<&Path>,
) -> anyhow::Result<()> {
    let bar = progress("runs of nuco+")?;
    let front = case.front(options, judged, |done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    let [imbalance, messages, data] = front_files(prefix);
    let title = prefix.file_name().unwrap_or(prefix.as_os_str()).to_string_lossy();
    for (path, picture) in [imbalance, messages].iter().zip(front.pictures(&title)) {
        output::write(path, picture.svg().as_bytes())?;
    }
    output::write(&data, front.csv().as_bytes())?;
    if let Some(path) = json {
        let named = |p: &Point| Mapped { name: format!("nuco+, {}", p.how), ..p.mapped.clone() };
        let all: Vec<Mapped> =
            front.points.iter().map(named).chain(front.judged.iter().cloned()).collect();
        output::write_json(path, &case.comparison_json(&all, options))?;
    }
    if !args.quiet {
        let words = front.table();
        if json.is_some_and(output::is_stdout) {
            tell_lines(&words);
        } else {
            output::write(Path::new("-"), words.as_bytes())?;
        }
        for note in case.notes(&front.judged) {
            tell(&format!("evenly: note: {note}"));
        }
    }
    Ok(())
}

/// A bar on a terminal, and nothing elsewhere.
fn progress(of_what: &str) -> anyhow::Result<ProgressBar> {
    if !std::io::stderr().is_terminal() {
        return Ok(ProgressBar::hidden());
    }
    let style = ProgressStyle::with_template(&format!("{{bar:24}} {{pos}}/{{len}} {of_what}"))?;
    Ok(ProgressBar::new(1).with_style(style))
}

/// What a mapping from a file is worth.
fn judged(case: &Case, path: &Path) -> anyhow::Result<Mapped> {
    let mapping = mapping_file(path, &case.input.graph, &case.cluster)?;
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    Ok(case.judge(name, mapping))
}

/// What the user must know to start the program by this mapping.
fn launcher_notes(args: &MapArgs, case: &Case, mapped: &Mapped) -> Vec<String> {
    let Some(format) = evenly_map::format(&args.format) else { return Vec::new() };
    let described = evenly_map::is_synthetic(&args.topology);
    let several = case.cluster.nodes().iter().any(|n| n.host != 0);
    let mut notes = Vec::new();
    if format == Format::RankFile && shares_cores(&mapped.mapping) {
        notes.push(String::from(
            "ranks share cores: start with --bind-to :overload-allowed --mca mpi_yield_when_idle 1, or \
             those that wait spin away the time of those that compute",
        ));
    }
    if format == Format::Mpich && has_too_many(case, mapped) {
        notes.push(String::from(
            "there are more ranks than cores: MPICH's spin while they wait, which no setting changes, and \
             take the time of those that compute; start no more ranks than cores, or have evenly run \
             --policy hpc-auto divide the time of CPUs among ranks that are not bound",
        ));
    }
    notes.extend(case.input.nature.mpi.and_then(|mpi| of_another(mpi, format)));
    if described && !several && matches!(format, Format::MapCpu | Format::Mpich | Format::Masks) {
        notes.push(String::from(
            "CPUs have the numbers of the description, which need not be those of the system; map \
             with --topology this where the program is to run, or with its XML",
        ));
    }
    let named = matches!(format, Format::RankFile | Format::HostFile | Format::Mpich);
    if described && several && named && args.hosts.is_empty() {
        notes.push(String::from("hosts have the names of the description; --hosts gives theirs"));
    }
    notes
}

/// Where the form is for the launcher of another MPI than that of which the tasks were ranks.
fn of_another(mpi: Mpi, format: Format) -> Option<String> {
    let (whose, instead) = match (mpi, format) {
        (Mpi::Mpich, Format::RankFile) => (Mpi::OpenMpi, "mpich"),
        (Mpi::OpenMpi, Format::Mpich) => (Mpi::Mpich, "rankfile"),
        _ => return None,
    };
    Some(format!(
        "this is for the launcher of {whose}, and what was profiled is of {mpi}; --format {instead} is for \
         that"
    ))
}

/// Whether ranks share cores as MPICH places them: on one host by cores, on several by hosts alone.
fn has_too_many(case: &Case, mapped: &Mapped) -> bool {
    let host = |core: CoreIndex| case.cluster.nodes()[case.cluster.cores()[core].node].host;
    let several = case.cluster.nodes().iter().any(|n| n.host != 0);
    if !several {
        return shares_cores(&mapped.mapping);
    }
    let mut left: HashMap<u32, i64> = HashMap::new();
    for core in 0..case.cluster.cores().len() {
        *left.entry(host(core)).or_default() += 1;
    }
    for &core in &mapped.mapping {
        *left.entry(host(core)).or_default() -= 1;
    }
    left.values().any(|free| *free < 0)
}

fn shares_cores(mapping: &[CoreIndex]) -> bool {
    let mut cores = mapping.to_vec();
    cores.sort_unstable();
    cores.windows(2).any(|w| w[0] == w[1])
}

/// The mapping in the form that was asked for.
fn write(
    args: &MapArgs,
    case: &Case,
    mapped: &Mapped,
    hosts: &[String],
    path: &Path,
) -> anyhow::Result<()> {
    let format = evenly_map::format(&args.format).context("--format")?;
    let Case { input, cluster, present, .. } = case;
    let text = evenly_map::write(format, &input.graph, cluster, present, &mapped.mapping, hosts)
        .with_context(|| format!("--format {}", args.format))?;
    output::write(path, text.as_bytes())
}
