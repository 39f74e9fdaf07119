//! Requests in parts: a command and document sequences in the caller's memory.
//!
//! Small parts are copied together, so that they are sent at once; large parts are sent from their place. A request
//! that exceeds a message's limits is refused before any byte is sent.

use crate::{ClientError, Result};
use kauri_base::Error;
use kauri_bson::Doc;
use kauri_transport::ring::LARGE_BYTES;
use kauri_wire::{SEQUENCES_MAX, begin_msg_of, begin_sequence_of, sequence_head_bytes};

/// Maximum size of small parts that are copied together: one RDMA transfer.
const GATHERED_BYTES_MAX: usize = 256 << 10;

/// A document sequence: an array of documents of the command, stored beside it.
#[derive(Clone, Copy, Debug)]
pub struct Sequence<'a> {
    /// The field of the command that it stands for.
    pub name: &'a str,
    /// Its documents.
    pub documents: &'a [Doc<'a>],
}

impl Sequence<'_> {
    fn document_bytes(&self) -> usize {
        let lengths = self.documents.iter().map(|document| document.as_bytes().len());
        lengths.fold(0, usize::saturating_add)
    }
}

/// The error for a request that no message can hold.
pub fn refused(error: Error) -> ClientError {
    ClientError::Request(error.message().to_owned())
}

fn check(sequences: &[Sequence<'_>]) -> Result<()> {
    let why = match sequences {
        [] => return Ok(()),
        more if more.len() > SEQUENCES_MAX => {
            format!("more than {SEQUENCES_MAX} document sequences")
        }
        all if all.iter().any(|one| one.name.is_empty() || one.name.contains('\0')) => {
            "a document sequence without a name that a field may have".to_owned()
        }
        [one, other] if one.name == other.name => format!("two document sequences '{}'", one.name),
        _ => return Ok(()),
    };
    Err(ClientError::Request(why))
}

/// Passes a request to `send` piece by piece; `gathered` is memory for small parts.
pub fn send(
    id: i32,
    body: Doc<'_>,
    sequences: &[Sequence<'_>],
    gathered: &mut Vec<u8>,
    mut send: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    check(sequences)?;
    gathered.clear();
    let after: usize =
        sequences.iter().map(|one| sequence_head_bytes(one.name) + one.document_bytes()).sum();
    begin_msg_of(gathered, id, 0, 0, body.as_bytes().len() + after).map_err(refused)?;
    put(body, gathered, &mut send)?;
    for sequence in sequences {
        begin_sequence_of(gathered, sequence.name, sequence.document_bytes());
        for document in sequence.documents {
            put(*document, gathered, &mut send)?;
        }
    }
    if gathered.is_empty() { Ok(()) } else { send(gathered) }
}

fn put(
    document: Doc<'_>,
    gathered: &mut Vec<u8>,
    send: &mut impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let bytes = document.as_bytes();
    let large = bytes.len() >= LARGE_BYTES;
    if large || gathered.len() + bytes.len() > GATHERED_BYTES_MAX {
        send(gathered)?;
        gathered.clear();
    }
    if large {
        return send(bytes);
    }
    gathered.extend_from_slice(bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_bson::{DocBuf, doc};
    use kauri_wire::Message;

    /// The pieces of a request: their bytes, and where those lie.
    fn pieces(body: &DocBuf, sequences: &[Sequence<'_>]) -> Result<Vec<(Vec<u8>, *const u8)>> {
        let mut pieces = Vec::new();
        let mut gathered = Vec::new();
        send(7, body.as_doc(), sequences, &mut gathered, |piece| {
            pieces.push((piece.to_vec(), piece.as_ptr()));
            Ok(())
        })?;
        Ok(pieces)
    }

    fn padded(bytes: usize) -> DocBuf {
        doc! { "x" => "x".repeat(bytes).as_str() }
    }

    #[test]
    fn a_message_is_whole_whatever_its_parts() {
        for sizes in [
            vec![],
            vec![1, 2, 3],
            vec![20_000; 9],
            vec![60_000; 9],
            vec![5, 40_000, 5, 70_000],
            vec![LARGE_BYTES; 3],
        ] {
            let body = doc! { "insert" => "c", "$db" => "test" };
            let owned: Vec<DocBuf> = sizes.iter().map(|size| padded(*size)).collect();
            let documents: Vec<Doc<'_>> = owned.iter().map(DocBuf::as_doc).collect();
            let sequences = [
                Sequence { name: "documents", documents: &documents },
                Sequence { name: "none", documents: &[] },
            ];
            let sent: Vec<u8> = pieces(&body, &sequences)
                .unwrap()
                .into_iter()
                .flat_map(|(bytes, _)| bytes)
                .collect();
            let (header, Message::Msg(message)) = Message::parse(&sent).unwrap() else { panic!() };
            assert_eq!((header.request_id, message.body), (7, body.as_bytes()));
            let got: Vec<_> = message.sequences().map(|s| (s.identifier, s.count)).collect();
            assert_eq!(got, [("documents", sizes.len()), ("none", 0)]);
            let first = message.sequences().next().unwrap();
            assert!(first.documents().eq(documents.iter().map(|document| document.as_bytes())));
        }
    }

    #[test]
    fn what_is_large_goes_from_where_it_lies_and_what_is_small_goes_at_once() {
        let body = doc! { "insert" => "c", "$db" => "test" };
        let small = [padded(10), padded(1000), padded(30_000)];
        let small: Vec<_> = small.iter().map(DocBuf::as_doc).collect();
        let one = [Sequence { name: "documents", documents: &small }];
        assert_eq!(pieces(&body, &one).unwrap().len(), 1);
        let large = padded(LARGE_BYTES);
        let documents = [small[0], large.as_doc(), small[1]];
        let one = [Sequence { name: "documents", documents: &documents }];
        let pieces = pieces(&body, &one).unwrap();
        assert_eq!(pieces.len(), 3);
        assert_eq!(pieces[1].1, large.as_bytes().as_ptr());
    }

    #[test]
    fn what_no_message_can_hold_is_refused_before_anything_is_sent() {
        let body = doc! { "insert" => "c", "$db" => "test" };
        let large = padded(16_000_000);
        let three = [large.as_doc(); 3];
        let named = |name| Sequence { name, documents: &[] };
        for (sequences, words) in [
            (vec![Sequence { name: "documents", documents: &three }], "exceeds the maximum"),
            (vec![named("a"), named("b"), named("c")], "more than 2"),
            (vec![named("a"), named("a")], "two document sequences 'a'"),
            (vec![named("")], "without a name"),
            (vec![named("a\0b")], "without a name"),
        ] {
            let sent = |_: &[u8]| -> Result<()> { panic!("something was sent") };
            let error = send(1, body.as_doc(), &sequences, &mut Vec::new(), sent).unwrap_err();
            assert!(matches!(&error, ClientError::Request(why) if why.contains(words)), "{error}");
        }
    }
}
