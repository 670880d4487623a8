//! What tests of promises need that start processes: a test program starts itself again in roles, of which
//! `program` is here: one with threads that follows commands.
//!
//! Invariant: no test waits for a time to be over; each waits for what is expected, for much longer than
//! that can take, and leaves no process behind.

#![allow(dead_code, unreachable_pub, reason = "shared by several test programs")]

use evenly_linux::proc::Proc;
use evenly_model::Pid;
use rustix::process::{Signal, kill_process};
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;

/// The role of a test program that was started by itself; it has a test `role` that takes it on.
pub const ROLE: &str = "EVENLY_TEST_ROLE";

/// This test program in a role.
pub fn role_command(role: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "role", "--nocapture", "--test-threads=1"]).env(ROLE, role);
    command
}

/// From now on this process dies, with SIGSYS, where this thread makes a system call that changes anything for
/// others: how a thread is scheduled or where, a directory, or what a file holds that is opened for it now. A
/// journal is open before, and no call is needed to write into it.
pub fn kill_at_a_change() -> std::io::Result<()> {
    let calls = [
        libc::SYS_setpriority,
        libc::SYS_sched_setattr,
        libc::SYS_sched_setscheduler,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setaffinity,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_mkdir,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rmdir,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rename,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_unlink,
        libc::SYS_mkdirat,
        libc::SYS_unlinkat,
    ];
    let instruction = |code: u32, k: u32, if_so: u8, if_not: u8| libc::sock_filter {
        code: code as u16,
        jt: if_so,
        jf: if_not,
        k,
    };
    let load = |offset| instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0, 0);
    let is = |number: libc::c_long, if_so, if_not| {
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number as u32, if_so, if_not)
    };
    // The number of the system call is the first word that the kernel passes.
    let mut program = vec![load(0)];
    for (i, number) in calls.into_iter().enumerate() {
        // Over the calls behind it and the three instructions that look at openat.
        program.push(is(number, (calls.len() - 1 - i + 3) as u8, 0));
    }
    program.extend([
        is(libc::SYS_openat, 0, 3),
        // Its flags are its third argument; the lower half, as machines that are little-endian have it.
        load(16 + 2 * 8),
        instruction(
            libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K,
            (libc::O_WRONLY | libc::O_RDWR) as u32,
            0,
            1,
        ),
        instruction(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_KILL_PROCESS, 0, 0),
        instruction(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
    ]);
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the kernel copies the filter, which is live, and so long as is said.
    let refused = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) != 0
    };
    if refused { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// Three threads, the last of which does what the lines on standard input say.
pub fn program() {
    thread::spawn(|| {
        loop {
            thread::park();
        }
    });
    thread::spawn(|| {
        println!("reply: ready");
        for line in std::io::stdin().lines() {
            match line.unwrap().as_str() {
                "thread" => {
                    let (send, receive) = mpsc::channel();
                    thread::spawn(move || {
                        send.send(rustix::thread::gettid().as_raw_nonzero()).unwrap();
                        loop {
                            thread::park();
                        }
                    });
                    println!("reply: {}", receive.recv().unwrap());
                }
                "process" => {
                    let mut child = Command::new("sleep").arg("600").spawn().unwrap();
                    println!("reply: {}", child.id());
                    child.wait().unwrap();
                }
                "exec" => {
                    println!("reply: now");
                    panic!("{}", Command::new("sleep").arg("600").exec());
                }
                other => panic!("{other}"),
            }
        }
    })
    .join()
    .unwrap();
}

/// A process in a role that is killed at the end of the test.
pub struct Helper {
    pub child: Child,
    replies: BufReader<std::process::ChildStdout>,
}

impl Helper {
    pub fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let replies = BufReader::new(child.stdout.take().unwrap());
        Self { child, replies }
    }

    pub fn program() -> Self {
        let mut program = Self::start(role_command("program"));
        assert_eq!(program.reply(), "ready");
        program
    }

    /// The next reply; the test harness prints lines of its own.
    pub fn reply(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.replies.read_line(&mut line).unwrap(), 0, "the helper ended");
            if let Some((_, reply)) = line.trim_end().split_once("reply: ") {
                return reply.to_owned();
            }
        }
    }

    pub fn ask(&mut self, what: &str) -> String {
        writeln!(self.child.stdin.as_mut().unwrap(), "{what}").unwrap();
        self.reply()
    }

    pub fn pid(&self) -> Pid {
        Pid(self.child.id() as i32)
    }

    pub fn signal(&self, signal: Signal) {
        send(self.pid(), signal);
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn send(pid: Pid, signal: Signal) {
    kill_process(rustix::process::Pid::from_raw(pid.0).unwrap(), signal).unwrap();
}

/// Whether it has ended; a zombie has.
pub fn has_ended(pid: Pid) -> bool {
    Proc::default().process_stat(pid).is_none_or(|s| s.state == b'Z')
}
