//! `getDiagnosticData`: one sample of monitoring data: `serverStatus`, `replSetGetStatus` of a set's member, and
//! figures of the machine, each with its start and end time. With `diagnosticDataCollectionEnabled` off, there is no sample.
//!
//! The command takes the sample itself. The collection on disk takes its own samples ([`sample`]) and writes
//! [`about`] at the head of each file.

use super::{build_info, get_cmd_line_opts, host_info, repl_set, server_status};
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use crate::server::Server;
use kauri_bson::{DocBuf, DocWriter, Value};
pub use server_status::Source;

/// See the module's head.
pub const COMMAND: Command =
    Command { ..Command::admin("getDiagnosticData", "returns a sample of diagnostic data", run) };

/// The parameter that switches samples on and off.
pub const ENABLED: &str = "diagnosticDataCollectionEnabled";

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let data = if invocation.server.parameters.flag(ENABLED) {
            sample(&Source::of(invocation))
        } else {
            DocBuf::new()
        };
        invocation.reply.put("data", &data);
        Ok(())
    })
}

/// A sample of the server and the machine, as of now.
pub fn sample(source: &Source<'_>) -> DocBuf {
    let server = source.server;
    DocBuf::build(|out| {
        timed(server, out, |out| {
            timed(server, &mut out.document("serverStatus"), |out| {
                server_status::write(source, out);
            });
            if let Some(status) = repl_set::status::sample(server) {
                timed(server, &mut out.document("replSetGetStatus"), |out| {
                    out.put_all(status.as_doc());
                });
            }
            timed(server, &mut out.document("systemMetrics"), |out| (server.system)(out));
        });
    })
}

/// The constant part of samples: the build, the command line and the machine.
pub fn about(server: &Server) -> DocBuf {
    DocBuf::build(|out| {
        timed(server, out, |out| {
            timed(server, &mut out.document("buildInfo"), |out| build_info::write(server, out));
            timed(server, &mut out.document("getCmdLineOpts"), |out| {
                get_cmd_line_opts::write(server, out);
            });
            timed(server, &mut out.document("hostInfo"), |out| host_info::write(server, out));
        });
    })
}

/// The output of `write`, between its start and end times.
fn timed(server: &Server, out: &mut DocWriter<'_>, write: impl FnOnce(&mut DocWriter<'_>)) {
    let now = || Value::DateTime(server.clock.unix_ms());
    out.put("start", now());
    write(out);
    out.put("end", now());
}
