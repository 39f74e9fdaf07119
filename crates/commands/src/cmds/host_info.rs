//! `hostInfo`: the host of the server.

use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use crate::server::Server;
use kauri_bson::{DocWriter, Value};

/// See the module's head.
pub const COMMAND: Command = Command::new("hostInfo", "returns information about the host", run);

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let args = Args::new("hostInfo");
        for elem in invocation.body.iter().skip(1) {
            args.other(elem)?;
        }
        write(invocation.server, &mut invocation.reply);
        Ok(())
    })
}

/// Writes what it tells.
pub fn write(server: &Server, out: &mut DocWriter<'_>) {
    let machine = &server.start.machine;
    {
        let mut system = out.document("system");
        system.put("currentTime", Value::DateTime(server.clock.unix_ms()));
        system.put("hostname", &machine.hostname);
        system.put("cpuAddrSize", usize::BITS as i32);
        system.put("memSizeMB", (machine.memory_bytes >> 20) as i64);
        system.put("memLimitMB", (machine.memory_limit_bytes >> 20) as i64);
        system.put("numCores", machine.cores as i32);
        system.put("numCoresAvailableToProcess", machine.cores as i32);
        system.put("numPhysicalCores", machine.cores as i32);
        system.put("numCpuSockets", 1);
        system.put("cpuArch", std::env::consts::ARCH);
        system.put("numaEnabled", false);
        system.put("numNumaNodes", 1);
    }
    {
        let mut os = out.document("os");
        os.put("type", "Linux");
        os.put("name", &machine.os_name);
        os.put("version", &machine.os_version);
    }
    let mut extra = out.document("extra");
    extra.put("versionString", &machine.os_version);
    extra.put("cpuString", &machine.cpu);
    extra.put("pageSize", machine.page_bytes as i64);
    extra.put("numPages", (machine.memory_bytes / machine.page_bytes.max(1)) as i32);
    extra.put("kernelVersion", &machine.os_version);
    extra.put("maxOpenFiles", machine.open_files_max as i32);
}
