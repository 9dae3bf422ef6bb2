//! One client's connection: its requests one after the other, each on a connection of its own to the API server.

use std::io::{self, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, ServerConnection, StreamOwned};

use crate::bed::message::{Body, Head, carry};
use crate::bed::proxy::Shared;
use crate::bed::proxy::rule::{Fault, Side};

type Client = BufReader<StreamOwned<ServerConnection, TcpStream>>;
type Server = BufReader<StreamOwned<ClientConnection, TcpStream>>;

/// What becomes of the connection after a request.
#[derive(Debug, PartialEq, Eq)]
enum Then {
    Next,
    Close,
    Reset,
}

/// A request that was read to its end.
struct Request {
    head: Head,
    body: Vec<u8>,
    number: usize,
}

/// Serves a client until one of the two ends it.
pub(super) fn serve(shared: &Arc<Shared>, client: TcpStream) -> io::Result<()> {
    let socket = client.try_clone()?;
    let registered = shared.register(&client)?;
    let session = ServerConnection::new(shared.towards_client.clone()).map_err(io::Error::other)?;
    let mut client = BufReader::new(StreamOwned::new(session, client));
    let outcome = loop {
        match one_request(shared, &mut client) {
            Ok(Then::Next) => {}
            other => break other,
        }
    };
    shared.forget(registered);
    if matches!(outcome, Ok(Then::Reset)) {
        // Closed without lingering, a connection is reset; but only by its last descriptor.
        rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
        return Ok(());
    }
    client.get_mut().conn.send_close_notify();
    let _ = client.get_mut().flush();
    let _ = socket.shutdown(Shutdown::Both);
    outcome.map(drop)
}

fn one_request(shared: &Arc<Shared>, client: &mut Client) -> io::Result<Then> {
    let Some(head) = Head::read(client)? else { return Ok(Then::Close) };
    let mut body = Vec::new();
    carry(head.body(Body::Sized(0)), client, &mut body, usize::MAX)?;
    let (number, fault) = shared.arrived(&head);
    let request = Request { head, body, number };
    let then = answer(shared, client, &request, fault)?;
    Ok(if then == Then::Next && request.head.is_last() { Then::Close } else { then })
}

fn answer(
    shared: &Arc<Shared>,
    client: &mut Client,
    request: &Request,
    fault: Option<(Side, Fault)>,
) -> io::Result<Then> {
    match fault {
        None => forward(shared, client, request, None),
        Some((Side::Reply, fault)) => forward(shared, client, request, Some(&fault)),
        Some((Side::Request, Fault::Twice)) => {
            let mut first = ask(shared, request, usize::MAX)?;
            Head::read(&mut first)?;
            forward(shared, client, request, None)
        }
        Some((Side::Request, Fault::Truncate(most))) => {
            ask(shared, request, most)?;
            Ok(Then::Close)
        }
        Some((Side::Request, fault)) => match suffer(client, &fault)? {
            Then::Next if matches!(fault, Fault::Delay(_) | Fault::Hold(_)) => forward(shared, client, request, None),
            then => Ok(then),
        },
    }
}

/// Asks the API server and carries its reply to the client, unless something happens to it.
fn forward(shared: &Arc<Shared>, client: &mut Client, request: &Request, fault: Option<&Fault>) -> io::Result<Then> {
    let mut server = ask(shared, request, usize::MAX)?;
    let head = Head::read(&mut server)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    shared.answered(request.number, head.status());
    let mut most = usize::MAX;
    match fault {
        None | Some(Fault::Twice) => {}
        Some(Fault::Truncate(bytes)) => most = *bytes,
        Some(fault) => {
            let then = suffer(client, fault)?;
            if !matches!(fault, Fault::Delay(_) | Fault::Hold(_)) {
                return Ok(then);
            }
        }
    }
    let bodiless = request.head.word(0) == "HEAD" || matches!(head.status(), 100..200 | 204 | 304);
    let body = if bodiless { Body::Sized(0) } else { head.body(Body::UntilEnd) };
    client.get_mut().write_all(head.bytes())?;
    match &shared.alias {
        None => carry(body, &mut server, client.get_mut(), most)?,
        Some(alias) => {
            // A name that two pieces share would be missed. What is followed, as a watch is, comes through no such proxy.
            let mut whole = Vec::new();
            carry(body, &mut server, &mut whole, usize::MAX)?;
            carry(body, &mut alias.for_client(&whole).as_slice(), client.get_mut(), most)?;
        }
    }
    Ok(if most < usize::MAX || body == Body::UntilEnd || head.is_last() { Then::Close } else { Then::Next })
}

/// Sends a request to the API server, or only the first bytes of its body.
fn ask(shared: &Arc<Shared>, request: &Request, most: usize) -> io::Result<Server> {
    let socket = TcpStream::connect(shared.server)?;
    // Registered until the proxy ends: a watch is cut then, too. A closed one in the list does no harm.
    shared.register(&socket)?;
    let name = ServerName::IpAddress(Ipv4Addr::LOCALHOST.into());
    let session = ClientConnection::new(shared.towards_server.clone(), name).map_err(io::Error::other)?;
    let mut server = StreamOwned::new(session, socket);
    let (head, mut body) = (request.head.bytes(), request.body.as_slice());
    let translated = shared.alias.as_ref().map(|alias| (alias.for_server(head), alias.for_server(body)));
    let head = translated.as_ref().map_or(head, |(head, _)| head);
    body = translated.as_ref().map_or(body, |(_, body)| body);
    server.write_all(head)?;
    server.write_all(&body[..body.len().min(most)])?;
    server.flush()?;
    Ok(BufReader::new(server))
}

/// What a fault does to the client, and what becomes of the connection.
fn suffer(client: &mut Client, fault: &Fault) -> io::Result<Then> {
    match fault {
        // fact: the delay is the fault itself.
        Fault::Delay(time) => thread::sleep(*time),
        Fault::Hold(gate) => gate.pass(),
        Fault::Drop | Fault::Truncate(_) => return Ok(Then::Close),
        Fault::Reset => return Ok(Then::Reset),
        Fault::HalfOpen => {
            // Until the client closes, or the proxy ends.
            let mut ignored = [0; 1024];
            while client.read(&mut ignored)? > 0 {}
            return Ok(Then::Close);
        }
        Fault::Answer(status, body) => say(client, *status, "Content-Type: application/json\r\n", body)?,
        Fault::AnswerWith(status, fields, body) => say(client, *status, fields, body)?,
        Fault::Twice => {}
    }
    Ok(Then::Next)
}

fn say(client: &mut Client, status: u16, fields: &str, body: &str) -> io::Result<()> {
    let head = format!("HTTP/1.1 {status} By the proxy\r\n{fields}Content-Length: {}\r\n\r\n", body.len());
    client.get_mut().write_all(head.as_bytes())?;
    client.get_mut().write_all(body.as_bytes())?;
    client.get_mut().flush()
}
