//! A proxy, and the fake servers before which it stands.

use kauri_bson::{Doc, DocBuf};
use kauri_client::Uri;
use kauri_proxy::{Proxy, ProxyOptions};
use kauri_wire::{Message, MsgWriter, ReplyWriter};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// What a fake server does with a command: the connection's number, the command's number on it, the command.
pub type Answer = Arc<dyn Fn(usize, usize, Doc<'_>) -> Option<DocBuf> + Send + Sync>;

/// A server that answers so, and closes where there is no answer.
pub fn server(answer: Answer) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    serve_all(listener, answer);
    port
}

/// The same at this address.
pub fn serve_all(listener: TcpListener, answer: Answer) {
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let (stream, answer) = (stream.unwrap(), Arc::clone(&answer));
            std::thread::spawn(move || serve(stream, number, &answer));
        }
    });
}

fn serve(mut stream: TcpStream, connection: usize, answer: &Answer) {
    for number in 0.. {
        let Some(request) = received(&mut stream) else { return };
        let (header, message) = Message::parse(&request).unwrap();
        let mut reply = Vec::new();
        match message {
            Message::Msg(msg) => {
                let body = Doc::from_bytes(msg.body).unwrap();
                let Some(answer) = answer(connection, number, body) else { return };
                let writer = MsgWriter::begin(&mut reply, 1, header.request_id, 0);
                reply.extend_from_slice(answer.as_bytes());
                writer.finish(&mut reply).unwrap();
            }
            Message::Query(query) => {
                let body = Doc::from_bytes(query.command()).unwrap();
                let Some(answer) = answer(connection, number, body) else { return };
                let writer = ReplyWriter::begin(&mut reply, 1, header.request_id, 8, 0, 1);
                reply.extend_from_slice(answer.as_bytes());
                writer.finish(&mut reply).unwrap();
            }
            _ => panic!("what is this?"),
        }
        if stream.write_all(&reply).is_err() {
            return;
        }
    }
}

pub fn received(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut message = vec![0; 16];
    stream.read_exact(&mut message).ok()?;
    let length = i32::from_le_bytes(message[..4].try_into().unwrap());
    message.resize(length as usize, 0);
    stream.read_exact(&mut message[16..]).ok()?;
    Some(message)
}

pub fn proxy(port: u16, options: &str) -> (Proxy, Uri) {
    proxy_before(&format!("127.0.0.1:{port}"), options)
}

/// Before a set, whose hosts are separated by commas.
pub fn proxy_before(hosts: &str, options: &str) -> (Proxy, Uri) {
    let uri = format!("mongodb://{hosts}/?sharedMemory=off&rdma=off&{options}");
    let proxy = Proxy::start(&ProxyOptions {
        bind_ips: vec!["127.0.0.1".to_owned()],
        port: 0,
        ipv6: false,
        unix: None,
        workers: 2,
        connections_max: 100,
        upstream: uri.parse().unwrap(),
        resting_max: 10,
        resting_time: Duration::from_secs(600),
    })
    .unwrap();
    let uri = format!(
        "mongodb://{}/?sharedMemory=off&rdma=off&socketTimeoutMS=60000",
        proxy.addresses()[0]
    );
    (proxy, uri.parse().unwrap())
}

pub fn message(command: &DocBuf, flags: u32) -> Vec<u8> {
    let mut message = Vec::new();
    let writer = MsgWriter::begin(&mut message, 1, 0, flags);
    message.extend_from_slice(command.as_bytes());
    writer.finish(&mut message).unwrap();
    message
}
