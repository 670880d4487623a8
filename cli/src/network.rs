//! `evenly topology --measure --network`: several hosts and the network between them, measured by what
//! MPI's launcher starts on each.
//!
//! The launcher first starts evenly itself on each host. Each process describes its host in a directory that
//! all share, so that problems are found before anything is measured. If the memory of a host was not measured
//! yet, the launcher starts evenly again to do that. Then it starts the ping-pong (`probe/c/pingpong.c`),
//! unless an earlier result for these hosts is kept. The launcher's own output goes to standard error.

use crate::flags::TopologyArgs;
use crate::measure::measured_machine;
use crate::program::check_command;
use crate::{End, tell};
use anyhow::Context;
use evenly_probe::build::{Compiler, PING_PONG, build};
use evenly_probe::mpi::Used;
use evenly_topology::{
    Host, HostReport, MOST_PING_PONG_BYTES, MachineTopology, Measurement, Network, NetworkError,
    cache_dir, claim_host, default_dir, join, keep_network, kept_network, read_hosts,
    read_ping_pong, this_machine, write_host,
};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{IsTerminal, Read, stderr};
use std::iter;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// What a process that the launcher has started does: one on each host describes that host, and measures it
/// first if asked to.
pub(crate) fn one(args: &TopologyArgs, dir: &Path) -> anyhow::Result<End> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname")
        .context("cannot read the name of this host")?;
    let name = name.trim();
    let cannot =
        || format!("host {name}: cannot write to {}, which hosts must share", dir.display());
    if claim_host(dir, name).with_context(cannot)? {
        let mut notes = Vec::new();
        let mut machine = this_machine()?;
        if args.measure {
            machine = measured_machine(machine, args.again, &mut notes);
        }
        write_host(dir, name, &machine, &notes).with_context(cannot)?;
    }
    Ok(End::Status(0))
}

/// All hosts on which the launcher starts ranks, as one machine.
pub(crate) fn all(args: &TopologyArgs, notes: &mut Vec<String>) -> anyhow::Result<MachineTopology> {
    check_command("topology", &args.command)?;
    let used = Used::of(&args.command)?;
    let words = || args.command.join(OsStr::new(" ")).to_string_lossy().into_owned();
    anyhow::ensure!(
        used.program.is_none(),
        "'{}' starts an MPI program; give the launcher with its options only, evenly adds what is to \
         be started",
        words()
    );
    let Some(flavour) = used.launcher else {
        anyhow::bail!(
            "'{}' begins with no launcher of Open MPI or MPICH; give one, such as mpirun -host a,b -n 2",
            words()
        );
    };
    let cache = |part: &str| {
        cache_dir(part).context(
            "what is measured has no place: neither XDG_CACHE_HOME nor HOME is set; set one of them",
        )
    };
    let (probes, shared) = (cache("probe")?, cache("hosts")?);
    let compiler = Compiler::of(&used, args.mpicc.as_deref())?;
    let built = build(&PING_PONG, &compiler, &probes)?;
    if built.new {
        tell(&format!(
            "evenly: built the ping-pong for {} {} with {}, into {}",
            compiler.flavour,
            compiler.version,
            compiler.path.display(),
            built.file.display()
        ));
    }
    // Not in /tmp: ranks on other hosts read and write there, too.
    let cannot_make = || format!("cannot make a directory for hosts in {}", shared.display());
    fs::create_dir_all(&shared).with_context(cannot_make)?;
    let dir = tempfile::tempdir_in(&shared).with_context(cannot_make)?;

    said("asking which hosts there are");
    let mut reports = each_host(args, &dir.path().join("there"), &[])?;
    if let [only] = &reports[..] {
        return Err(NetworkError::OneHost { host: only.host.name.clone() }.into());
    }
    if args.again || reports.iter().any(|t| t.host.machine.measurement().is_none()) {
        said("measuring the memory of each host");
        let again = args.again.then_some("--again");
        let options: Vec<&str> = iter::once("--measure").chain(again).collect();
        reports = each_host(args, &dir.path().join("measured"), &options)?;
    } else {
        let note =
            |m: &Measurement| format!("measured before, at {}; --again measures anew", m.when());
        for t in &mut reports {
            t.notes.extend(t.host.machine.measurement().map(note));
        }
    }
    let mut hosts: Vec<Host> = Vec::new();
    for HostReport { host, notes: of_host } in reports {
        notes.extend(of_host.iter().map(|note| format!("host {}: {note}", host.name)));
        hosts.push(host);
    }

    // Another version of an MPI may use the network in another way.
    let mpi = format!("{flavour} {}", compiler.version);
    let store = default_dir();
    let kept = store.as_deref().filter(|_| !args.again);
    let network = match kept.and_then(|store| kept_network(store, &hosts, &mpi)) {
        Some(network) => {
            notes.push(format!(
                "messages between hosts were measured before, at {}; --again measures anew",
                network.when()
            ));
            network
        }
        None => {
            let network = ping_pong(args, built.file.as_os_str(), dir.path())?;
            if let Some(Err(e)) = store.map(|store| keep_network(&store, &hosts, &mpi, &network)) {
                notes.push(format!("what was measured between hosts cannot be kept: {e}"));
            }
            network
        }
    };
    Ok(join(&hosts, network)?)
}

/// Has the launcher start evenly on each host, each writing what it found into a directory, which is created.
fn each_host(args: &TopologyArgs, dir: &Path, options: &[&str]) -> anyhow::Result<Vec<HostReport>> {
    fs::create_dir(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let evenly = std::env::current_exe().context("cannot find this program's own file")?;
    let mut words = vec![evenly.into_os_string(), "topology".into()];
    words.extend(options.iter().map(OsString::from));
    words.extend([OsString::from("--as-host"), dir.as_os_str().to_owned()]);
    launch(&args.command, &words)?;
    let reports = read_hosts(dir)?;
    anyhow::ensure!(
        !reports.is_empty(),
        "no host wrote to {}; hosts must share that directory (XDG_CACHE_HOME)",
        dir.display()
    );
    Ok(reports)
}

/// Measures messages between hosts.
fn ping_pong(args: &TopologyArgs, program: &OsStr, dir: &Path) -> anyhow::Result<Network> {
    said("measuring messages between hosts");
    let file = dir.join("pingpong.json");
    let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let begun = Instant::now();
    let ended = launch(&args.command, &[program.to_owned(), file.as_os_str().to_owned()]);
    let seconds = begun.elapsed().as_secs_f64();
    if !file.exists() {
        ended?;
    }
    // It is written as the last thing but MPI's own end, however that goes; a part of it is no JSON.
    let mut text = Vec::new();
    File::open(&file)
        .and_then(|file| file.take(MOST_PING_PONG_BYTES).read_to_end(&mut text))
        .with_context(|| {
            format!("the ping-pong left no {}; hosts must share that directory", file.display())
        })?;
    Ok(read_ping_pong(&text, unix_s, seconds)?)
}

/// Says on a terminal what goes on.
fn said(what: &str) {
    if stderr().is_terminal() {
        tell(&format!("evenly: {what}"));
    }
}

/// Has the launcher start a program with these words, and waits for it.
fn launch(launcher: &[OsString], program: &[OsString]) -> anyhow::Result<()> {
    let Some((first, options)) = launcher.split_first() else {
        anyhow::bail!("no launcher was given");
    };
    let name = first.to_string_lossy();
    let words = stderr().as_fd().try_clone_to_owned().context("cannot use standard error")?;
    let status = Command::new(first)
        .args(options)
        .args(program)
        .stdin(Stdio::null())
        // Standard output is for what evenly was asked for.
        .stdout(Stdio::from(words))
        .status()
        .with_context(|| format!("cannot start '{name}'"))?;
    anyhow::ensure!(
        status.success(),
        "'{name}' could not run {} on all hosts: {status}; what it says stands above",
        program.first().map_or_else(String::new, |p| p.to_string_lossy().into_owned())
    );
    Ok(())
}
