//! `kauriUpgrade`: a client's request to switch from its byte stream to a faster transport. The switch happens
//! after the reply was sent (docs/design/rdma.md).

use crate::args::{self, Args};
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_bson::Value;

/// See the module's head.
pub const COMMAND: Command = Command {
    ..Command::admin("kauriUpgrade", "switches a session to shared memory or RDMA", run)
};

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let args = Args::new("kauriUpgrade");
        let (mut transport, mut parameters) = (None, None);
        for elem in args::fields(invocation.body) {
            match (elem.key(), elem.value()) {
                ("transport", _) => transport = Some(args.string(elem)?),
                ("parameters", Value::Binary { bytes, .. }) => parameters = Some(bytes),
                ("parameters", _) => return Err(args.wrong_type(elem, &["binData"])),
                _ => args.other(elem)?,
            }
        }
        let transport = transport.ok_or_else(|| args.missing("transport"))?;
        let parameters = parameters.ok_or_else(|| args.missing("parameters"))?;
        let random = &*invocation.server.random;
        let answer = invocation.session.upgrade.prepare(&transport, &parameters, random)?;
        invocation.reply.put("transport", transport.as_str());
        let answer = Value::Binary { subtype: 0, bytes: answer.into() };
        invocation.reply.put("parameters", answer);
        Ok(())
    })
}
