//! One lab: boots the guest, runs commands in it, takes it down.
//!
//! Invariant: from the moment the guest is ready its CPUs are capped, so that
//! everything that a command does happens on equal, steady CPUs; whatever ends
//! the lab, QEMU and the control groups go with it.

use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity};

use crate::cgroup::{CpuCaps, Quota};
use crate::error::{LabError, Result};
use crate::initramfs::Initramfs;
use crate::kernel::{self, Kernel};
use crate::qemu::{Killer, Qemu, Tail};
use crate::qmp::Qmp;
use crate::session::{Broken, Outcome, Session, Stream};
use crate::speed::{EqualSpeed, Verdict};
use crate::turns::Turns;

/// Boots tried, where the guest stays silent.
const BOOTS: u32 = 3;
const QEMU: &str = "qemu-system-x86_64";
const BUSYBOX: [&str; 2] = ["/bin/busybox", "/usr/bin/busybox"];
const INIT: &[u8] = include_bytes!("../guest/init");
const AGENT: &[u8] = include_bytes!("../guest/agent");
const INITTAB: &[u8] = include_bytes!("../guest/inittab");
const BUSY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/busy"));
/// Part of each host CPU that its virtual CPUs may use together; the rest is for
/// QEMU's other threads and for the host.
const USABLE: f64 = 0.8;
/// Above this they would take turns, and not be steady.
const USABLE_AT_MOST: f64 = 0.95;
const POWER_OFF_GRACE: Duration = Duration::from_secs(30);

/// How much of a host CPU each virtual CPU gets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Share {
    /// As much as leaves a fifth of the host's CPUs free.
    Auto,
    /// This fraction of one host CPU, above 0 and at most 1.
    Fraction(f64),
    /// As much as it can get: fast, but neither equal nor steady, so no figure
    /// from it counts.
    Uncapped,
}

/// A program or file of the host, to be found in the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Include {
    /// Where it is here.
    pub host: PathBuf,
    /// Where it shall be in the guest, an absolute path.
    pub guest: String,
}

/// A file given by its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestFile {
    /// Where it shall be in the guest, an absolute path.
    pub guest: String,
    /// What is in it.
    pub content: Vec<u8>,
    /// The permission bits of the file.
    pub mode: u32,
}

/// What lab is wanted.
#[derive(Debug, Clone)]
pub struct LabOptions {
    /// Number of CPUs, 1 to 240.
    pub cpus: u32,
    /// Number of NUMA nodes; the CPUs are spread over them evenly, in order.
    pub numa: u32,
    /// Memory of the guest in MiB, spread evenly over the nodes.
    pub memory_mb: u32,
    /// Beginning of the kernel's version, or the path of a kernel image.
    pub kernel: String,
    /// Speed of the CPUs.
    pub share: Share,
    /// Host files to have in the guest; programs bring their shared libraries.
    pub include: Vec<Include>,
    /// Further files to have in the guest.
    pub files: Vec<GuestFile>,
    /// Where kernels are kept; none for [`kernel::default_cache_dir`].
    pub cache_dir: Option<PathBuf>,
    /// How long one boot may take before another is tried.
    pub boot_timeout: Duration,
}

impl Default for LabOptions {
    fn default() -> Self {
        LabOptions {
            cpus: 8,
            numa: 2,
            memory_mb: 1024,
            kernel: "6.1".into(),
            share: Share::Auto,
            include: Vec::new(),
            files: Vec::new(),
            cache_dir: None,
            boot_timeout: Duration::from_secs(60),
        }
    }
}

/// What a command left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Its exit status as a shell counts it: 128 + N after signal N, 124 after a
    /// timeout.
    pub status: i32,
    /// Whether it was killed because its time was up.
    pub timed_out: bool,
    /// What the command wrote to its standard output.
    pub stdout: Vec<u8>,
    /// What the command wrote to its standard error.
    pub stderr: Vec<u8>,
    /// From sending the command to the last of its output, on the host's clock.
    pub elapsed: Duration,
}

impl Output {
    /// Its standard output as text, without the last line's end.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end().to_owned()
    }
}

/// A guest that runs, and commands that are run in it.
pub struct Lab {
    session: Session,
    messages: Tail,
    kernel: Kernel,
    cpus: u32,
    share: Option<f64>,
    boot_time: Duration,
    threads: Vec<Pid>,
    // In this order: the groups can go only once QEMU has ended.
    qemu: Qemu,
    caps: Option<CpuCaps>,
    _turns: Option<Turns>,
}

impl Lab {
    /// Boots a guest and waits until it takes commands. A guest that says nothing
    /// within the boot's time is killed and booted again, two times at most: under
    /// software emulation about one boot in some dozens never comes to its first
    /// word, whatever the guest.
    ///
    /// # Errors
    /// [`LabError::Unavailable`] when QEMU, busybox, the kernel or the right to
    /// cap CPUs is missing; [`LabError::Options`] when the options cannot be met;
    /// [`LabError::NoAnswer`] when no boot of three ended.
    pub fn boot(options: LabOptions) -> Result<Lab> {
        let host = host_cpus()?;
        let share = check(&options, host.len())?;
        let kernel = match &options.cache_dir {
            Some(cache) => kernel::obtain(&options.kernel, cache)?,
            None => kernel::obtain(&options.kernel, &kernel::default_cache_dir()?)?,
        };
        again_if_silent(BOOTS, || Lab::boot_once(&options, &host, share, kernel.clone()))
    }

    fn boot_once(
        options: &LabOptions,
        host: &[usize],
        share: Option<f64>,
        kernel: Kernel,
    ) -> Result<Lab> {
        let start = Instant::now();
        let mut initramfs = tempfile::NamedTempFile::with_prefix("evenly-lab-")
            .map_err(LabError::system("the initial file system"))?;
        initramfs
            .write_all(&root_file_system(options)?.archive())
            .map_err(LabError::file(initramfs.path()))?;

        let messages = Tail::default();
        let mut ours = Vec::new();
        let mut theirs = Vec::new();
        for _ in CHANNELS {
            let (our_end, their_end) =
                UnixStream::pair().map_err(LabError::system("a socket pair for QEMU"))?;
            ours.push(our_end);
            theirs.push(OwnedFd::from(their_end));
        }
        let descriptors: Vec<i32> = theirs.iter().map(AsRawFd::as_raw_fd).collect();
        let mut arguments = machine_arguments(options);
        arguments.extend(channel_arguments(&descriptors));
        arguments.extend(
            ["-kernel".into(), kernel.vmlinux.clone().into_os_string(), "-initrd".into()]
                .into_iter()
                .chain([initramfs.path().as_os_str().to_owned()]),
        );
        let qemu = Qemu::start(QEMU, arguments, theirs, &messages)?;
        let [qmp, console, control, stdout, stderr]: [UnixStream; 5] =
            ours.try_into().map_err(|_| LabError::Protocol {
                from: "the lab itself",
                answer: "a wrong number of channels".into(),
            })?;
        messages.follow(console);

        let explain = |broken: Broken| explain(broken, "while booting", &messages);
        let mut session = Session::new(control, stdout, stderr)
            .map_err(LabError::system("the channels to the guest"))?;
        let threads = match Qmp::new(qmp).and_then(|mut qmp| qmp.vcpu_threads()) {
            Ok(threads) => threads,
            // QEMU's own words say more than the end of its socket.
            Err(_) if qemu.ends_within(Duration::from_secs(2)) => {
                return Err(explain(Broken::Ended));
            }
            Err(error) => return Err(error),
        };
        let caps = share.map(|_| CpuCaps::new(qemu.pid, &threads)).transpose()?;
        let turns = caps.is_some().then(|| Turns::start(&threads, host)).transpose()?;
        session.wait_ready(options.boot_timeout).map_err(explain)?;
        if let (Some(caps), Some(share)) = (&caps, share) {
            caps.set(Some(Quota::of_share(share)))?;
        }
        Ok(Lab {
            session,
            messages,
            kernel,
            cpus: options.cpus,
            share,
            boot_time: start.elapsed(),
            threads,
            qemu,
            caps,
            _turns: turns,
        })
    }

    /// Runs a shell command line in the guest and waits for it to end, or for
    /// the timeout; then *everything* that runs in the guest is killed. Standard
    /// input is empty.
    ///
    /// # Errors
    /// When the guest no longer answers; a failing command is not an error.
    pub fn run(&mut self, command: &str, timeout: Duration) -> Result<Output> {
        let mut stdout = Vec::new();
        let mut stderr = Vec::new();
        let mut output =
            self.run_streaming(command, timeout, &mut |stream, data| match stream {
                Stream::Stdout => stdout.extend_from_slice(data),
                Stream::Stderr => stderr.extend_from_slice(data),
            })?;
        output.stdout = stdout;
        output.stderr = stderr;
        Ok(output)
    }

    /// Like [`Lab::run`], but hands the output on as it comes and returns none.
    ///
    /// # Errors
    /// As [`Lab::run`].
    pub fn run_streaming(
        &mut self,
        command: &str,
        timeout: Duration,
        sink: &mut dyn FnMut(Stream, &[u8]),
    ) -> Result<Output> {
        let start = Instant::now();
        let outcome = self
            .session
            .run(command, timeout, sink)
            .map_err(|broken| explain(broken, "while a command ran", &self.messages))?;
        let (status, timed_out) = match outcome {
            Outcome::Exited(status) => (status, false),
            Outcome::TimedOut => (124, true),
        };
        let elapsed = start.elapsed();
        Ok(Output { status, timed_out, stdout: Vec::new(), stderr: Vec::new(), elapsed })
    }

    /// Writes an executable file in the running guest. It goes through a serial
    /// line, slowly: what is known before the boot belongs into
    /// [`LabOptions::files`].
    ///
    /// # Errors
    /// When the file cannot be written there.
    pub fn push(&mut self, content: &[u8], guest: &str) -> Result<()> {
        const CHUNK: usize = 18 << 10;
        let path = shell_quote(guest);
        let mut write = |command: String| -> Result<()> {
            let output = self.run(&command, Duration::from_secs(120))?;
            if output.status == 0 {
                return Ok(());
            }
            Err(LabError::Options(format!(
                "{guest} cannot be written in the guest: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            )))
        };
        write(format!("mkdir -p \"$(dirname {path})\" && : >{path} && chmod 755 {path}"))?;
        for chunk in content.chunks(CHUNK) {
            write(format!("printf %s {} | base64 -d >>{path}", BASE64.encode(chunk)))?;
        }
        Ok(())
    }

    /// Checks that the CPUs are equally fast: one thread alone on the first, a
    /// middle and the last CPU against one thread on each CPU, in turns of
    /// four times 0.5 s: more turns, less chance. `limit` is the largest deviation
    /// allowed, as a fraction. Where `turns` cannot say, as many are added, up to
    /// `rounds` times in all; a machine that was called equal or unequal stays so.
    ///
    /// # Errors
    /// When the check could not be made; a failed check is not an error.
    pub fn equal_speed(&mut self, turns: u32, rounds: u32, limit: f64) -> Result<EqualSpeed> {
        let mut check = self.turns(turns, limit)?;
        for _ in 1..rounds {
            if !matches!(check.verdict(), Verdict::Unclear(_)) {
                break;
            }
            check.add(&self.turns(turns, limit)?)?;
        }
        Ok(check)
    }

    fn turns(&mut self, turns: u32, limit: f64) -> Result<EqualSpeed> {
        let mut alone = vec![0, self.cpus / 2, self.cpus - 1];
        alone.dedup();
        let alone: Vec<String> = alone.iter().map(u32::to_string).collect();
        let command = format!("/lab/busy 0.5 {turns} {} {}", alone.join(","), self.cpus);
        let output = self.run(&command, Duration::from_secs(180))?;
        if output.status != 0 {
            let answer = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(LabError::Protocol { from: "the busy program", answer });
        }
        EqualSpeed::parse(&output.text(), limit)
    }

    /// The kernel that runs.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Share of a host CPU that each virtual CPU has; none when uncapped.
    pub fn share(&self) -> Option<f64> {
        self.share
    }

    /// CPU time of the host that each virtual CPU has had so far. One that was busy all the time between two
    /// calls has had its share of that time, or the host was too busy with something else.
    ///
    /// # Errors
    /// When QEMU has ended, or the host's kernel does not count.
    pub fn cpu_times(&self) -> Result<Vec<Duration>> {
        let process = self.qemu.pid.as_raw_nonzero();
        let of = |thread: &Pid| {
            let thread = thread.as_raw_nonzero();
            let path = PathBuf::from(format!("/proc/{process}/task/{thread}/schedstat"));
            let text = fs::read_to_string(&path).map_err(LabError::file(&path))?;
            cpu_time(&text).ok_or(LabError::Protocol { from: "the host's kernel", answer: text })
        };
        self.threads.iter().map(of).collect()
    }

    /// Time from the start to the guest's first word, without the download of a
    /// kernel.
    pub fn boot_time(&self) -> Duration {
        self.boot_time
    }

    /// The end of what the kernel and QEMU wrote to the console.
    pub fn console(&self) -> String {
        self.messages.text()
    }

    /// A handle that ends the guest from another thread.
    pub fn killer(&self) -> Killer {
        self.qemu.killer()
    }

    /// Powers the guest off. Dropping a lab kills it instead, which is faster.
    ///
    /// # Errors
    /// When the guest does not power off in time; it is killed then.
    pub fn shutdown(mut self) -> Result<()> {
        if let Some(caps) = &self.caps {
            caps.set(None)?;
        }
        self.session
            .power_off()
            .map_err(|broken| explain(broken, "before power-off", &self.messages))?;
        if self.qemu.ends_within(POWER_OFF_GRACE) {
            return Ok(());
        }
        Err(explain(Broken::Silent(POWER_OFF_GRACE), "at power-off", &self.messages))
    }
}

/// Quotes a word for a shell.
pub fn shell_quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Tries up to `attempts` times as long as the guest gives no answer.
fn again_if_silent<T>(attempts: u32, mut boot: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 1..attempts {
        match boot() {
            Err(LabError::NoAnswer { .. }) => {}
            result => return result,
        }
    }
    boot()
}

fn explain(broken: Broken, when: &'static str, messages: &Tail) -> LabError {
    match broken {
        Broken::Ended => LabError::GuestEnded { when, console: messages.text() },
        Broken::Silent(waited) => LabError::NoAnswer { when, waited, console: messages.text() },
        Broken::Other(error) => error,
    }
}

/// What the kernel has counted of a thread (`schedstat`): time on a CPU first, in nanoseconds.
fn cpu_time(schedstat: &str) -> Option<Duration> {
    schedstat.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

/// The host CPUs that this process may use.
fn host_cpus() -> Result<Vec<usize>> {
    let mask = sched_getaffinity(None)
        .map_err(|error| LabError::system("this process's affinity")(error.into()))?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| mask.is_set(*cpu)).collect())
}

/// Checks the options; the share of each virtual CPU, none for uncapped.
fn check(options: &LabOptions, host_cpus: usize) -> Result<Option<f64>> {
    let refuse = |message: String| Err(LabError::Options(message));
    let LabOptions { cpus, numa, memory_mb, .. } = *options;
    if !(1..=240).contains(&cpus) {
        return refuse(format!("a lab with {cpus} CPUs is not possible; 1 to 240 are"));
    }
    if !(1..=cpus).contains(&numa) {
        return refuse(format!(
            "{numa} NUMA nodes for {cpus} CPUs are not possible; each node needs a CPU"
        ));
    }
    if memory_mb / numa < 128 {
        return refuse(format!(
            "{memory_mb} MiB for {numa} NUMA nodes are too little; each needs 128 MiB"
        ));
    }
    for guest in
        options.include.iter().map(|i| &i.guest).chain(options.files.iter().map(|f| &f.guest))
    {
        if !guest.starts_with('/') || guest.ends_with('/') {
            return refuse(format!(
                "`{guest}` is no place for a file in the guest; an absolute path is needed"
            ));
        }
    }
    // The number of virtual CPUs that the fullest host CPU has to carry.
    let crowd = f64::from(cpus.div_ceil(u32::try_from(host_cpus.max(1)).unwrap_or(u32::MAX)));
    match options.share {
        Share::Uncapped => Ok(None),
        Share::Auto => Ok(Some(USABLE / crowd)),
        Share::Fraction(share) if !(share > 0.0 && share <= 1.0) => {
            refuse(format!("a share of {share} is not possible; above 0 and at most 1 is"))
        }
        Share::Fraction(share) if share * crowd > USABLE_AT_MOST => refuse(format!(
            "{cpus} virtual CPUs with a share of {share} on {host_cpus} host CPUs would take \
             turns, and not be steady; at most {:.3} each is possible",
            USABLE_AT_MOST / crowd
        )),
        Share::Fraction(share) => Ok(Some(share)),
    }
}

fn root_file_system(options: &LabOptions) -> Result<Initramfs> {
    let mut root = Initramfs::default();
    let busybox =
        BUSYBOX.iter().map(PathBuf::from).find(|path| path.exists()).ok_or_else(|| {
            LabError::Unavailable(
                "the program busybox is missing; needed: apt-get install busybox-static".into(),
            )
        })?;
    root.host_file(&busybox, "/bin/busybox")?;
    root.file("/init", 0o755, INIT.to_vec());
    root.file("/lab/agent", 0o755, AGENT.to_vec());
    root.file("/lab/busy", 0o755, BUSY.to_vec());
    root.file("/etc/inittab", 0o644, INITTAB.to_vec());
    root.file(
        "/etc/passwd",
        0o644,
        b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n".to_vec(),
    );
    root.file("/etc/group", 0o644, b"root:x:0:\nnogroup:x:65534:\n".to_vec());
    for directory in ["proc", "sys", "dev", "tmp", "run", "root", "usr/bin", "usr/sbin", "sbin"] {
        root.directory(directory);
    }
    root.character_device("/dev/console", 5, 1);
    root.character_device("/dev/null", 1, 3);
    for Include { host, guest } in &options.include {
        if fs::metadata(host).map_err(LabError::file(host))?.is_dir() {
            return Err(LabError::Options(format!(
                "{} is a directory; only files can be included",
                host.display()
            )));
        }
        root.host_file(host, guest)?;
    }
    for GuestFile { guest, content, mode } in &options.files {
        root.file(guest, *mode, content.clone());
    }
    Ok(root)
}

/// CPUs, memory and NUMA nodes. Each node is a socket where the CPUs divide
/// evenly; else each CPU is one, so that no socket spans nodes.
fn machine_arguments(options: &LabOptions) -> Vec<OsString> {
    let LabOptions { cpus, numa, memory_mb, .. } = *options;
    let node_mb = memory_mb / numa;
    let (sockets, cores) = if cpus % numa == 0 { (numa, cpus / numa) } else { (cpus, 1) };
    let mut arguments: Vec<String> = [
        "-machine",
        "q35",
        "-accel",
        "tcg,thread=multi",
        "-cpu",
        "max,-la57",
        "-nodefaults",
        "-nic",
        "none",
        "-display",
        "none",
        "-no-reboot",
    ]
    .map(String::from)
    .to_vec();
    let mut add = |flag: &str, value: String| arguments.extend([flag.to_owned(), value]);
    add("-m", format!("{}M", node_mb * numa));
    add("-smp", format!("{cpus},sockets={sockets},cores={cores},threads=1"));
    for node in 0..numa {
        let (first, end) = (node * cpus / numa, (node + 1) * cpus / numa);
        add("-object", format!("memory-backend-ram,id=m{node},size={node_mb}M"));
        add("-numa", format!("node,nodeid={node},cpus={first}-{},memdev=m{node}", end - 1));
    }
    for from in 0..numa {
        for to in 0..from {
            add("-numa", format!("dist,src={to},dst={from},val=21"));
        }
    }
    // Throttled CPUs make watchdogs and the clock's cross-checks see ghosts.
    add(
        "-append",
        "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable nowatchdog \
         rcupdate.rcu_cpu_stall_suppress=1 random.trust_cpu=on"
            .into(),
    );
    arguments.into_iter().map(OsString::from).collect()
}

/// QEMU's channels, in the order of their descriptors.
const CHANNELS: [&str; 5] = ["qmp", "console", "control", "stdout", "stderr"];

/// The serial ports, ttyS0 to ttyS3: base address and interrupt line of each. On a PC the third
/// shares the line of the first and the fourth that of the second; in QEMU a port that lowers a
/// shared line hides what the other still has to say, and the guest, idle, waits for ever.
const SERIAL_PORTS: [(u16, u8); 4] = [(0x3f8, 4), (0x2f8, 3), (0x3e8, 5), (0x2e8, 7)];

fn channel_arguments(descriptors: &[i32]) -> Vec<OsString> {
    let mut arguments = Vec::new();
    let mut ports = SERIAL_PORTS.iter().enumerate();
    for (name, descriptor) in CHANNELS.iter().zip(descriptors) {
        arguments.push("-chardev".to_owned());
        arguments.push(format!("socket,id={name},fd={descriptor}"));
        if *name == "qmp" {
            arguments.extend(["-mon".to_owned(), format!("chardev={name},mode=control")]);
        } else if let Some((index, (base, line))) = ports.next() {
            arguments.push("-device".to_owned());
            arguments.push(format!(
                "isa-serial,chardev={name},index={index},iobase={base:#x},irq={line}"
            ));
        }
    }
    arguments.into_iter().map(OsString::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(cpus: u32, numa: u32, share: Share) -> LabOptions {
        LabOptions { cpus, numa, share, ..LabOptions::default() }
    }

    fn arguments(cpus: u32, numa: u32) -> String {
        let arguments = machine_arguments(&options(cpus, numa, Share::Auto));
        arguments.join(&OsString::from(" ")).into_string().unwrap()
    }

    #[test]
    fn only_silence_is_tried_again() {
        let silent = || LabError::NoAnswer {
            when: "while booting",
            waited: Duration::from_secs(60),
            console: String::new(),
        };
        let mut boots = 0;
        let third = again_if_silent(3, || {
            boots += 1;
            if boots < 3 { Err(silent()) } else { Ok(boots) }
        });
        assert_eq!(third.unwrap(), 3);
        let mut boots = 0;
        let never = again_if_silent(3, || -> Result<()> {
            boots += 1;
            Err(silent())
        });
        assert!(matches!(never, Err(LabError::NoAnswer { .. })) && boots == 3);
        let mut boots = 0;
        let missing = again_if_silent(3, || -> Result<()> {
            boots += 1;
            Err(LabError::Unavailable("no QEMU".into()))
        });
        assert!(missing.is_err() && boots == 1);
    }

    #[test]
    fn nodes_are_sockets_where_that_divides() {
        let text = arguments(8, 2);
        assert!(text.contains("-smp 8,sockets=2,cores=4,threads=1"), "{text}");
        assert!(text.contains("node,nodeid=0,cpus=0-3,memdev=m0"), "{text}");
        assert!(text.contains("node,nodeid=1,cpus=4-7,memdev=m1"), "{text}");
        assert!(text.contains("dist,src=0,dst=1,val=21"), "{text}");
        let text = arguments(7, 2);
        assert!(text.contains("-smp 7,sockets=7,cores=1"), "{text}");
        assert!(text.contains("nodeid=0,cpus=0-2,") && text.contains("nodeid=1,cpus=3-6,"));
    }

    #[test]
    fn shares_leave_the_host_room() {
        let share = |cpus, share| check(&options(cpus, 1, share), 2);
        assert_eq!(share(8, Share::Auto).unwrap(), Some(0.2));
        assert_eq!(share(7, Share::Auto).unwrap(), Some(0.2));
        assert_eq!(share(1, Share::Auto).unwrap(), Some(0.8));
        assert_eq!(share(8, Share::Uncapped).unwrap(), None);
        assert_eq!(share(4, Share::Fraction(0.4)).unwrap(), Some(0.4));
        let error = share(8, Share::Fraction(0.25)).unwrap_err().to_string();
        assert!(error.contains("at most 0.237"), "{error}");
        assert!(share(1, Share::Fraction(0.0)).is_err());
        assert!(share(1, Share::Fraction(f64::NAN)).is_err());
    }

    #[test]
    fn impossible_machines_are_refused() {
        assert!(check(&options(0, 1, Share::Auto), 2).is_err());
        assert!(check(&options(2, 3, Share::Auto), 2).is_err());
        assert!(check(&options(2, 0, Share::Auto), 2).is_err());
        assert!(check(&LabOptions { memory_mb: 200, ..LabOptions::default() }, 2).is_err());
        let file = GuestFile { guest: "x".into(), content: vec![], mode: 0o644 };
        assert!(check(&LabOptions { files: vec![file], ..LabOptions::default() }, 2).is_err());
    }

    #[test]
    fn time_on_a_cpu_comes_first() {
        let own = fs::read_to_string("/proc/self/schedstat").unwrap();
        assert!(cpu_time(&own).is_some(), "{own}");
        assert_eq!(cpu_time("1500000000 27 3\n"), Some(Duration::from_millis(1500)));
        assert_eq!((cpu_time(""), cpu_time("-1 2 3")), (None, None));
    }

    #[test]
    fn quoting_survives_a_shell() {
        let word = "it's $HOME `x` \\ \"y\"";
        let output = std::process::Command::new("sh")
            .args(["-c", &format!("printf %s {}", shell_quote(word))])
            .output()
            .unwrap();
        assert_eq!(output.stdout, word.as_bytes());
    }
}
