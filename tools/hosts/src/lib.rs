//! Two simulated hosts on this machine, for tests and benchmarks: each has a network, a name, shared
//! memory (`/dev/shm`), a table of hosts and, if wanted, CPUs of its own; everything else (files,
//! processes, users) they have in common. Between them is a [wire](mod@wire) that is as slow as
//! asked for.
//!
//! ```text
//!   host a: net, uts, ipc, mount ns, cpuset     host b: the same
//!   ev0 10.199.0.1 (TAP) ------ threads that hold packets ------ (TAP) ev0 10.199.0.2
//! ```
//!
//! Both MPIs take a command that starts something on the other host: [`Hosts::environment`] names a script
//! that stands for ssh. As host names differ, MPI takes them for hosts and uses TCP between them, and its
//! shared memory within.
//!
//! Hosts with CPUs of their own cannot have rank files of Open MPI 4.1: it binds the ranks of a host to the
//! CPUs that a host of the same shape has, which are the first one's (`orte_hetero_nodes` does not help).
//!
//! Invariant: nothing is left on the machine when a [`Hosts`] is dropped, or the process that made it ends
//! in any way: namespaces live as long as their holders, and those as long as a pipe to us is open. What
//! still runs on a host is killed then, as all of its processes are ours. (Where we are killed ourselves
//! such processes, control groups and a directory with scripts are left.)

#![deny(unsafe_code)]

pub mod wire;

use evenly_model::CpuSet;
use evenly_testing::groups::Group;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use wire::Wire;

/// The key with which tests say that hosts cannot be simulated.
pub const KEY: &str = "hosts";

/// Name of the network interface on each host.
const INTERFACE: &str = "ev0";
/// Largest packet on the wire, in bytes: fewer packets are less work for the wire, which has no CPU of its
/// own.
const MTU: &str = "9000";
/// Last numbers of the addresses.
const ADDRESSES: [&str; 2] = ["10.199.0.1", "10.199.0.2"];

/// Why there are no hosts.
#[derive(Debug, thiserror::Error)]
#[error("hosts cannot be simulated: {what}: {why}")]
pub struct HostsError {
    what: String,
    why: String,
}

fn failed<E: ToString>(what: impl Into<String>) -> impl FnOnce(E) -> HostsError {
    let what = what.into();
    move |e| HostsError { what, why: e.to_string() }
}

/// What hosts are wanted.
#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    /// Their names; letters, digits and hyphens.
    pub names: [&'a str; 2],
    /// How long the wire holds a packet, one way. Without a delay it still takes its time, some tens of
    /// microseconds.
    pub delay: Duration,
    /// The CPUs of each; None: all.
    pub cpus: Option<[CpuSet; 2]>,
}

/// A process in the namespaces of a host, which is there for nothing else.
struct Holder {
    child: Child,
    /// When this is closed the holder ends.
    stdin: Option<ChildStdin>,
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.stdin = None;
        // It is ours, and has ended or does so now.
        let _ = self.child.wait();
    }
}

/// Two simulated hosts with a network between them.
pub struct Hosts {
    names: [String; 2],
    // Fields are dropped in this order: the wire goes before the interfaces on its ends.
    wire: Option<Wire>,
    holders: [Holder; 2],
    dir: tempfile::TempDir,
    groups: Vec<Group>,
}

/// What a holder does: it makes its host what it is, says so, and waits for the end of its input.
///
/// Of a mounted sysfs, the interfaces are those of where it was mounted, and MPI looks for its own there;
/// control groups are mounted below it.
const HOLD: &str = "set -e
mount -t tmpfs none /dev/shm
mount --rbind /sys/fs/cgroup \"$3\"
mount -t sysfs none /sys
mount --rbind \"$3\" /sys/fs/cgroup
mount --bind \"$1\" /etc/hosts
hostname \"$2\"
ip link set lo up
echo ready
read -r _ || :";

impl Hosts {
    /// Makes them.
    ///
    /// # Errors
    /// What cannot be done, and why: namespaces need root; `ip` is of the Debian package iproute2.
    pub fn new(wanted: &Wanted<'_>) -> Result<Self, HostsError> {
        let dir = tempfile::tempdir().map_err(failed("a directory"))?;
        let names = wanted.names.map(str::to_owned);
        let hosts = dir.path().join("hosts");
        let mut table = String::from("127.0.0.1 localhost\n");
        for (name, address) in names.iter().zip(ADDRESSES) {
            table.push_str(&format!("{address} {name}\n"));
        }
        fs::write(&hosts, table).map_err(failed(hosts.display().to_string()))?;
        let mut groups = Vec::new();
        for (name, cpus) in names.iter().zip(wanted.cpus.iter().flatten()) {
            // Tests of one process may have hosts of the same names at the same time.
            static MADE: AtomicU32 = AtomicU32::new(0);
            let name = format!("{name}-{}", MADE.fetch_add(1, Ordering::Relaxed));
            let group = Group::new("cpuset", &name).map_err(failed("a cpuset"))?;
            group.set_cpus(cpus).map_err(failed(format!("a cpuset with CPUs {cpus}")))?;
            groups.push(group);
        }
        let aside = dir.path().join("cgroup");
        fs::create_dir(&aside).map_err(failed(aside.display().to_string()))?;
        let holder = |name| Holder::new(&hosts, name, &aside);
        let holders = [holder(&names[0])?, holder(&names[1])?];
        let mut all = Self { names, wire: None, holders, dir, groups };
        all.scripts().map_err(failed("scripts"))?;
        all.connect(wanted.delay)?;
        Ok(all)
    }

    fn pid(&self, host: usize) -> u32 {
        self.holders[host].child.id()
    }

    fn connect(&mut self, delay: Duration) -> Result<(), HostsError> {
        let pids = [self.pid(0), self.pid(1)];
        self.wire = Some(Wire::new(pids, INTERFACE, delay).map_err(failed("a wire"))?);
        for (host, address) in ADDRESSES.into_iter().enumerate() {
            let address = format!("{address}/24");
            run(self.command(host, "ip").args(["addr", "add", &address, "dev", INTERFACE]))?;
            let words = ["link", "set", INTERFACE, "mtu", MTU, "txqueuelen", "10000", "up"];
            run(self.command(host, "ip").args(words))?;
        }
        Ok(())
    }

    /// Writes the scripts that enter a host, and that stand for ssh.
    fn scripts(&self) -> std::io::Result<()> {
        let mut enter = String::from("#!/bin/sh\n# enter HOST COMMAND...\ncase $1 in\n");
        for (host, name) in self.names.iter().enumerate() {
            let join = self.groups.get(host).map_or_else(String::new, |group| {
                format!("echo $$ >{}/cgroup.procs || exit 255; ", group.path().display())
            });
            enter.push_str(&format!("{name}) {join}pid={} ;;\n", self.pid(host)));
        }
        enter.push_str(
            "*) echo \"there is no host $1\" >&2; exit 255 ;;\nesac\nshift\n\
             exec nsenter --target $pid --net --uts --ipc --mount -- sh -c 'cd \"$0\" && exec \"$@\"' \
             \"$PWD\" \"$@\"\n",
        );
        self.script("enter", &enter)?;
        let ssh = format!(
            "#!/bin/sh\n# As ssh: [OPTION...] HOST COMMAND...\n\
             while case $1 in -*) true ;; *) false ;; esac; do shift; done\n\
             host=$1\nshift\nexec {} \"$host\" sh -c \"$*\"\n",
            self.path("enter").display()
        );
        self.script("ssh", &ssh)
    }

    fn script(&self, name: &str, text: &str) -> std::io::Result<()> {
        evenly_testing::scripts::write(&self.path(name), text)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The names of the hosts.
    #[must_use]
    pub fn names(&self) -> [&str; 2] {
        [&self.names[0], &self.names[1]]
    }

    /// A program on a host, 0 or 1.
    #[must_use]
    pub fn command(&self, host: usize, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(self.path("enter"));
        command.arg(&self.names[host]).arg(program);
        command
    }

    /// What a command line begins with that is to run on a host, 0 or 1.
    #[must_use]
    pub fn on(&self, host: usize) -> [String; 2] {
        [self.path("enter").display().to_string(), self.names[host].clone()]
    }

    /// Variables with which the launchers of Open MPI and MPICH start programs on the other host.
    #[must_use]
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let ssh = self.path("ssh").display().to_string();
        vec![
            ("OMPI_MCA_plm_rsh_agent", ssh.clone()),
            // It would look at the other host for a shell.
            ("OMPI_MCA_plm_rsh_assume_same_shell", String::from("1")),
            // What it leaves on the other host stays a child of what started it.
            ("OMPI_MCA_orte_leave_session_attached", String::from("1")),
            // UCX, below MPICH, knows hosts by the kernel's boot, and would go through shared memory.
            ("UCX_TLS", String::from("tcp,self")),
            ("UCX_NET_DEVICES", INTERFACE.to_owned()),
            ("HYDRA_LAUNCHER", String::from("rsh")),
            ("HYDRA_LAUNCHER_EXEC", ssh),
            ("HYDRA_IFACE", INTERFACE.to_owned()),
        ]
    }

    /// Whether the wire runs before all ordinary threads (real-time), so that a busy machine does not make
    /// it slower.
    #[must_use]
    pub fn wire_is_prompt(&self) -> bool {
        self.wire.as_ref().is_some_and(Wire::is_prompt)
    }

    /// Packets and bytes that an interface has sent and received since the hosts were made, of host 0 or 1.
    ///
    /// # Errors
    /// Where that cannot be read.
    pub fn traffic(&self, host: usize) -> Result<Traffic, HostsError> {
        let what = format!("/proc/{}/net/dev", self.pid(host));
        let text = fs::read_to_string(&what).map_err(failed(&what))?;
        Traffic::parse(&text, INTERFACE)
            .ok_or_else(|| failed(what)(format!("no {INTERFACE} in it")))
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.end_all();
    }
}

impl Hosts {
    /// Kills what is left on the hosts: a launcher that failed may have left something on the other one.
    fn end_all(&self) {
        let network = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let ours = [0, 1].map(|host| network(&self.pid(host).to_string()));
        let Ok(all) = fs::read_dir("/proc") else { return };
        for entry in all.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Ok(pid) = name.parse::<i32>() else { continue };
            let holds = self.holders.iter().any(|h| h.child.id().cast_signed() == pid);
            let there = network(&name).is_some_and(|n| ours.iter().flatten().any(|own| *own == n));
            if let (true, false, Some(pid)) = (there, holds, Pid::from_raw(pid)) {
                // One that has ended meanwhile is what was wanted.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

/// What went over an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    /// How many bytes the host has received.
    pub received_bytes: u64,
    /// How many bytes the host has sent.
    pub sent_bytes: u64,
}

impl Traffic {
    /// From a table as in `/proc/net/dev` (proc_pid_net(5)).
    fn parse(text: &str, interface: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(interface))?;
        let numbers: Vec<u64> = line
            .strip_prefix(':')?
            .split_ascii_whitespace()
            .map(str::parse)
            .collect::<Result<_, _>>()
            .ok()?;
        Some(Self { received_bytes: *numbers.first()?, sent_bytes: *numbers.get(8)? })
    }
}

impl Holder {
    fn new(hosts: &Path, name: &str, aside: &Path) -> Result<Self, HostsError> {
        let what = format!("namespaces for {name}");
        let child = Command::new("unshare")
            .args(["--net", "--uts", "--ipc", "--mount", "sh", "-c", HOLD, "sh"])
            .arg(hosts)
            .arg(name)
            .arg(aside)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed(&what))?;
        let mut holder = Self { child, stdin: None };
        holder.stdin = holder.child.stdin.take();
        let mut line = String::new();
        if let Some(out) = holder.child.stdout.take() {
            BufReader::new(out).read_line(&mut line).map_err(failed(&what))?;
        }
        if line == "ready\n" {
            return Ok(holder);
        }
        let mut said = String::new();
        if let Some(mut words) = holder.child.stderr.take() {
            words.read_to_string(&mut said).map_err(failed(&what))?;
        }
        Err(failed(what)(said.trim()))
    }
}

/// Runs a command that says nothing unless it fails.
fn run(command: &mut Command) -> Result<(), HostsError> {
    let what = format!("{command:?}");
    let output = command.stdin(Stdio::null()).output().map_err(failed(&what))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(what)(String::from_utf8_lossy(&output.stderr).trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_is_read() {
        let text = "Inter-|   Receive |  Transmit\n face |bytes packets\n    lo: 1 2 0 0 0 0 0 0 1 2 0 0 0 0 0 0\n\
                    \x20  ev0: 700 5 0 0 0 0 0 0 900 6 0 0 0 0 0 0\n";
        let expected = Traffic { received_bytes: 700, sent_bytes: 900 };
        assert_eq!(Traffic::parse(text, "ev0"), Some(expected));
        assert_eq!(Traffic::parse(text, "eth0"), None);
        assert_eq!(Traffic::parse("ev0: x", "ev0"), None);
    }
}
