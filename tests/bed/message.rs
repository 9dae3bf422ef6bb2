//! How HTTP/1.1 frames messages: where a head ends, how long a body is. Bytes are carried as they came.

use std::io::{self, BufRead, Read, Write};

/// The first line and the fields of a request or a reply, as they came, with the empty line.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    bytes: Vec<u8>,
}

/// How long the body of a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Body {
    /// This many bytes.
    Sized(u64),
    /// In chunks, the last of which is empty.
    Chunked,
    /// Until the end of the connection.
    UntilEnd,
}

impl Head {
    /// Reads one; nothing when the connection ends before its first byte.
    pub(crate) fn read(from: &mut impl BufRead) -> io::Result<Option<Head>> {
        let mut bytes = Vec::new();
        loop {
            let before = bytes.len();
            let read = from.read_until(b'\n', &mut bytes)?;
            if read == 0 {
                return if bytes.is_empty() { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
            if matches!(&bytes[before..], b"\r\n" | b"\n") {
                return Ok(Some(Head { bytes }));
            }
        }
    }

    /// As it came.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A word of the first line: 0 and 1 are method and path of a request, 1 is the status of a reply.
    pub(crate) fn word(&self, number: usize) -> String {
        let text = String::from_utf8_lossy(&self.bytes);
        text.lines().next().and_then(|line| line.split(' ').nth(number)).unwrap_or("").to_owned()
    }

    /// The status of a reply; 0 when it has none.
    pub(crate) fn status(&self) -> u16 {
        self.word(1).parse().unwrap_or(0)
    }

    /// How long the body is that follows. A request without a word about it has none; a reply goes on to the end.
    pub(crate) fn body(&self, without_a_word: Body) -> Body {
        if self.field("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
            return Body::Chunked;
        }
        self.field("content-length").and_then(|value| value.parse().ok()).map_or(without_a_word, Body::Sized)
    }

    /// Whether the connection ends after this message.
    pub(crate) fn is_last(&self) -> bool {
        let first = self.bytes.split(|byte| *byte == b'\r').next().unwrap_or(&[]);
        first.ends_with(b"HTTP/1.0")
            || self.field("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }

    /// The value of a field, by its name in whatever case.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        let text = String::from_utf8_lossy(&self.bytes);
        let mut fields = text.lines().skip(1).filter_map(|line| line.split_once(':'));
        fields.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned())
    }
}

/// Carries a body over, each piece as soon as it comes, but no more than `most` of its bytes. It is an error when the
/// connection ends before the body does.
pub(crate) fn carry(body: Body, from: &mut impl BufRead, to: &mut impl Write, most: usize) -> io::Result<()> {
    let mut left = u64::try_from(most).unwrap_or(u64::MAX);
    match body {
        Body::Sized(length) => exactly(length.min(left), from, to),
        Body::UntilEnd => pieces(&mut from.take(left), to).map(drop),
        Body::Chunked => loop {
            let (line, size) = chunk_size(from)?;
            to.write_all(&line)?;
            // Two more bytes end every chunk.
            let length = size + 2;
            exactly(length.min(left), from, to)?;
            left = left.saturating_sub(length);
            if size == 0 || left == 0 {
                return Ok(());
            }
        },
    }
}

/// Reads a body to its end, without its framing.
pub(crate) fn read_body(body: Body, from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if body != Body::Chunked {
        carry(body, from, &mut bytes, usize::MAX)?;
        return Ok(bytes);
    }
    loop {
        let (_, size) = chunk_size(from)?;
        exactly(size, from, &mut bytes)?;
        exactly(2, from, &mut io::sink())?;
        if size == 0 {
            return Ok(bytes);
        }
    }
}

/// The line before a chunk, as it came, and the size that it tells.
fn chunk_size(from: &mut impl BufRead) -> io::Result<(Vec<u8>, u64)> {
    let mut line = Vec::new();
    from.read_until(b'\n', &mut line)?;
    let size = String::from_utf8_lossy(&line);
    let size = u64::from_str_radix(size.trim().split(';').next().unwrap_or(""), 16).map_err(io::Error::other)?;
    Ok((line, size))
}

fn exactly(length: u64, from: &mut impl BufRead, to: &mut impl Write) -> io::Result<()> {
    let carried = pieces(&mut from.take(length), to)?;
    if carried < length { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}

fn pieces(from: &mut impl BufRead, to: &mut impl Write) -> io::Result<u64> {
    let mut carried = 0;
    loop {
        let piece = from.fill_buf()?;
        if piece.is_empty() {
            to.flush()?;
            return Ok(carried);
        }
        to.write_all(piece)?;
        to.flush()?;
        let length = piece.len();
        from.consume(length);
        carried += length as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::{Body, Head, carry, read_body};

    #[test]
    fn a_chunked_body_is_carried_as_it_came() {
        let mut from = &b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nnext"[..];
        let head = Head::read(&mut from).expect("whole").expect("there");
        assert_eq!((head.status(), head.body(Body::UntilEnd)), (200, Body::Chunked));
        let mut to = Vec::new();
        carry(Body::Chunked, &mut from, &mut to, usize::MAX).expect("whole");
        assert_eq!((to.as_slice(), from), (&b"3\r\nabc\r\n0\r\n\r\n"[..], &b"next"[..]));
    }

    #[test]
    fn a_chunked_body_is_read_without_its_framing() {
        let body = read_body(Body::Chunked, &mut &b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"[..]).expect("whole");
        assert_eq!(body, b"abcde");
    }

    #[test]
    fn a_body_that_ends_too_early_is_an_error() {
        assert!(carry(Body::Sized(10), &mut &b"0123"[..], &mut Vec::new(), usize::MAX).is_err());
        assert!(carry(Body::Chunked, &mut &b"3\r\nabc\r\n"[..], &mut Vec::new(), usize::MAX).is_err());
    }

    #[test]
    fn a_truncated_body_ends_early() {
        let mut to = Vec::new();
        carry(Body::Sized(10), &mut &b"0123456789"[..], &mut to, 4).expect("whole");
        assert_eq!(to, b"0123");
    }
}
