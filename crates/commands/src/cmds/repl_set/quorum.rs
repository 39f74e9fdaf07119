//! Whether the servers that are to begin a set answer, and are in no set yet. A set of which one does not would never
//! have a primary, and could not be initiated once more.

use crate::invocation::Invocation;
use crate::server::Greeting;
use kauri_base::{Error, ErrorCode, Result};
use kauri_bson::DocBuf;
use kauri_member::SetConfig;
use std::future::poll_fn;
use std::task::Poll;

/// Asks all members but this server at once. Fails unless each of them can become a member.
pub async fn check(invocation: &mut Invocation<'_>, config: &SetConfig, me: &str) -> Result<()> {
    let server = invocation.server;
    let Some(greet) = &server.greet else { return Ok(()) };
    let others = config.members.iter().filter(|of| of.host != me && !(server.is_self)(&of.host));
    let others: Vec<&str> = others.map(|of| of.host.as_str()).collect();
    let asked = others.iter().map(|host| greet(invocation.worker, host)).collect();
    let answers = invocation.op.wait_for(all(asked)).await?;
    let mut failures = Vec::new();
    for (host, answer) in others.into_iter().zip(answers) {
        match answer {
            Ok(hello) => failures.extend(refusal(host, &hello)?),
            Err(why) => failures.push(format!("{host} failed with {why}")),
        }
    }
    if failures.is_empty() {
        return Ok(());
    }
    let why = format!(
        "replSetInitiate quorum check failed because not all proposed set members responded affirmatively: {}",
        failures.join(", ")
    );
    Err(Error::new(ErrorCode::NodeNotFound, why))
}

/// Why a server that has answered so cannot become a member. Fails if it is one already.
fn refusal(host: &str, hello: &DocBuf) -> Result<Option<String>> {
    let hello = hello.as_doc();
    if let Some(set) = hello.value("setName").as_str() {
        let why = format!("{host} is a member of replica set '{set}' already");
        return Err(Error::new(ErrorCode::NewReplicaSetConfigurationIncompatible, why));
    }
    let is_waiting = hello.value("isreplicaset").truthy();
    Ok((!is_waiting).then(|| format!("{host} failed with not running with --replSet")))
}

/// All answers, in order.
async fn all(mut asked: Vec<Greeting>) -> Vec<std::result::Result<DocBuf, String>> {
    let mut answers: Vec<_> = asked.iter().map(|_| None).collect();
    poll_fn(|cx| {
        for (asked, answer) in asked.iter_mut().zip(&mut answers) {
            if answer.is_none()
                && let Poll::Ready(ready) = asked.as_mut().poll(cx)
            {
                *answer = Some(ready);
            }
        }
        if answers.iter().all(Option::is_some) {
            return Poll::Ready(answers.drain(..).flatten().collect());
        }
        Poll::Pending
    })
    .await
}
