//! The few words of QEMU's machine protocol that the lab needs.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::process::Pid;
use serde_json::{Value, json};

use crate::error::{LabError, Result};

pub(crate) struct Qmp {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
}

impl Qmp {
    /// Greets QEMU at the other end of `stream`.
    pub(crate) fn new(stream: UnixStream) -> Result<Qmp> {
        let broken = LabError::system("QEMU's control socket");
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .and_then(|()| Ok((stream.try_clone()?, stream)))
            .map_err(broken)
            .and_then(|(writer, reader)| {
                let mut qmp = Qmp { reader: BufReader::new(reader), writer };
                let greeting = qmp.receive()?;
                if greeting.get("QMP").is_none() {
                    return Err(unexpected(&greeting));
                }
                qmp.execute("qmp_capabilities")?;
                Ok(qmp)
            })
    }

    /// The thread ids of the virtual CPUs, in the order of the CPUs.
    pub(crate) fn vcpu_threads(&mut self) -> Result<Vec<Pid>> {
        parse_vcpus(&self.execute("query-cpus-fast")?)
    }

    fn execute(&mut self, command: &str) -> Result<Value> {
        let mut line = json!({ "execute": command }).to_string();
        line.push('\n');
        self.writer
            .write_all(line.as_bytes())
            .map_err(LabError::system("writing to QEMU's control socket"))?;
        loop {
            let mut answer = self.receive()?;
            if let Some(result) = answer.get_mut("return") {
                return Ok(result.take());
            }
            // Events come in between.
            if answer.get("event").is_none() {
                return Err(unexpected(&answer));
            }
        }
    }

    fn receive(&mut self) -> Result<Value> {
        let mut line = String::new();
        let length = self
            .reader
            .read_line(&mut line)
            .map_err(LabError::system("reading from QEMU's control socket"))?;
        if length == 0 {
            return Err(LabError::Protocol { from: "QEMU", answer: "end of file".into() });
        }
        serde_json::from_str(&line).map_err(|_| LabError::Protocol { from: "QEMU", answer: line })
    }
}

pub(crate) fn parse_vcpus(answer: &Value) -> Result<Vec<Pid>> {
    let mut cpus = answer
        .as_array()
        .and_then(|cpus| {
            cpus.iter()
                .map(|cpu| {
                    let index = cpu.get("cpu-index")?.as_i64()?;
                    let thread = i32::try_from(cpu.get("thread-id")?.as_i64()?).ok()?;
                    Some((index, Pid::from_raw(thread)?))
                })
                .collect::<Option<Vec<_>>>()
        })
        .ok_or_else(|| unexpected(answer))?;
    cpus.sort_by_key(|(index, _)| *index);
    Ok(cpus.into_iter().map(|(_, thread)| thread).collect())
}

fn unexpected(answer: &Value) -> LabError {
    LabError::Protocol { from: "QEMU", answer: answer.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_vcpu_threads() {
        // From QEMU 7.2, shortened to two CPUs.
        let answer = json!([
            {"thread-id": 4243, "props": {"core-id": 1, "thread-id": 0, "node-id": 0, "socket-id": 0},
             "qom-path": "/machine/unattached/device[2]", "cpu-index": 1, "target": "x86_64"},
            {"thread-id": 4242, "props": {"core-id": 0, "thread-id": 0, "node-id": 0, "socket-id": 0},
             "qom-path": "/machine/unattached/device[0]", "cpu-index": 0, "target": "x86_64"}
        ]);
        let raw: Vec<i32> =
            parse_vcpus(&answer).unwrap().iter().map(|pid| pid.as_raw_nonzero().get()).collect();
        assert_eq!(raw, [4242, 4243]);
        assert!(parse_vcpus(&json!([{"cpu-index": 0}])).is_err());
    }
}
