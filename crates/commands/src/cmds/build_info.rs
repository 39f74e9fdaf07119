//! `buildInfo`: version and build options.

use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use crate::server::{Server, VERSION, VERSION_ARRAY};
use kauri_base::limits;
use kauri_bson::{DocWriter, Value};

/// See the module's head.
pub const COMMAND: Command = Command {
    aliases: &["buildinfo"],
    needs_no_login: true,
    ..Command::new("buildInfo", "returns version and build options of the server", run)
};

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let args = Args::new("buildInfo");
        for elem in invocation.body.iter().skip(1) {
            args.other(elem)?;
        }
        write(invocation.server, &mut invocation.reply);
        Ok(())
    })
}

/// Writes the reply.
pub fn write(server: &Server, out: &mut DocWriter<'_>) {
    out.put("version", VERSION);
    out.put("gitVersion", server.start.revision);
    out.put_value("modules", &Value::array([]));
    out.put("allocator", "system");
    out.put("javascriptEngine", "none");
    out.put("sysInfo", "deprecated");
    out.put_value("versionArray", &Value::array(VERSION_ARRAY.map(Value::Int32)));
    {
        let mut openssl = out.document("openssl");
        openssl.put("running", "disabled");
        openssl.put("compiled", "disabled");
    }
    {
        let mut environment = out.document("buildEnvironment");
        environment.put("distmod", "");
        environment.put("distarch", std::env::consts::ARCH);
        environment.put("cc", "rustc");
        environment.put("ccflags", "");
        environment.put("cxx", "rustc");
        environment.put("cxxflags", "");
        environment.put("linkflags", "");
        environment.put("target_arch", std::env::consts::ARCH);
        environment.put("target_os", std::env::consts::OS);
        environment.put("cppdefines", "");
    }
    out.put("bits", (usize::BITS) as i32);
    out.put("debug", cfg!(debug_assertions));
    out.put("maxBsonObjectSize", limits::DOCUMENT_BYTES_MAX as i32);
    let engines = [Value::from(server.backend.engine().name())];
    out.put_value("storageEngines", &Value::array(engines));
}
