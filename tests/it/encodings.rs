//! Secrets in every encoding that a tool may print, made by Python's own libraries and found by the redactor.
//!
//! The encoder is Python's because the redactor's own idea of an encoding proves nothing about it.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use dcctl::redact::{Added, Redactor};
use serde_json::Value;

use crate::bed::child::command;
use crate::bed::junit;

/// Reads a JSON list of secrets; prints `[secret, name, text]` for each of them in each encoding, a line each.
pub(crate) const PROGRAM: &str = r#"
import base64, html, json, re, shlex, sys, urllib.parse as url

def quote(safe, space='%20'):
    return lambda text: url.quote(text, safe=safe + ' ').replace(' ', space)

def lower(encode):
    return lambda text: re.sub('%[0-9A-F]{2}', lambda hit: hit.group().lower(), encode(text))

def inside(text):
    return json.dumps(text)[1:-1]

def numbered(form):
    return lambda text: ''.join(c if c.isascii() and c.isalnum() else form % ord(c) for c in text)

def raw_json(text):
    return json.dumps(text, ensure_ascii=False)[1:-1]

def go_json(text):
    return raw_json(text).replace('<', '\\u003c').replace('>', '\\u003e').replace('&', '\\u0026')

ENCODINGS = {
    'as it is': lambda text: text,
    'percent, unreserved characters': quote('-._~'),
    'percent, a path segment': quote("-._~!$&'()*+,;=:@"),
    'percent, user information': quote("-._~!$&'()*+,;="),
    'percent, a query': quote("-._~!$'()*,;:@/?", '+'),
    'percent, a form': lambda text: url.urlencode({'': text})[1:],
    'JSON': raw_json,
    'JSON of Go': go_json,
    'JSON in ASCII': inside,
    'JSON in ASCII, capital digits': lambda text: re.sub(r'\\u[0-9a-f]{4}', lambda hit: '\\u' + hit.group()[2:].upper(), inside(text)),
    'JSON with its slashes escaped': lambda text: inside(text).replace('/', '\\/'),
    'JSON in JSON': lambda text: inside(inside(text)),
    'JSON of Go in JSON of Go': lambda text: go_json(go_json(text)),
    'JSON in a URL': lambda text: url.quote_plus(inside(text)),
    'a URL in JSON of Go': lambda text: go_json(quote("-._~!$&'()*+,;=:@")(text)),
    'a URL in a URL': lambda text: url.quote(url.quote(text, safe=''), safe=''),
    'JSON in XML': lambda text: html.escape(inside(text)),
    "a shell's single quotes": lambda text: text.replace("'", "'\\''"),
    'shlex': lambda text: shlex.quote('\n' + text)[2:-1],
    'HTML': html.escape,
    'HTML, numbers in ASCII': lambda text: html.escape(text).encode('ascii', 'xmlcharrefreplace').decode(),
    'HTML, every number': numbered('&#%d;'),
    'HTML, every hexadecimal number': numbered('&#x%x;'),
    'HTML, every HEXADECIMAL number': numbered('&#x%X;'),
    'repr': lambda text: repr(text)[1:-1],
    'repr in ASCII': lambda text: ascii(text)[1:-1],
    'repr of bytes': lambda text: repr(text.encode())[2:-1],
    'YAML, single quotes': lambda text: text.replace("'", "''"),
    'hexadecimal': lambda text: text.encode().hex(),
    'HEXADECIMAL': lambda text: text.encode().hex().upper(),
    'base64': lambda text: base64.b64encode(text.encode()).decode(),
    'base64 without padding': lambda text: base64.b64encode(text.encode()).decode().rstrip('='),
    'base64 of URLs': lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    'base64 in a URL': lambda text: url.quote_plus(base64.b64encode(text.encode()).decode()),
    'base64 in JSON': lambda text: base64.b64encode(text.encode()).decode().replace('/', '\\/'),
}
for name in [name for name in ENCODINGS if 'percent' in name or 'URL' in name]:
    ENCODINGS[name + ', small digits'] = lower(ENCODINGS[name])

for secret in json.load(sys.stdin):
    for name, encode in ENCODINGS.items():
        print(json.dumps([secret, name, encode(secret)]))
"#;

/// Each of these secrets in each encoding: the secret, the name of the encoding, the text.
pub(crate) fn encoded(python: &Path, secrets: &[String]) -> Vec<[String; 3]> {
    let child = command(python).args(["-c", PROGRAM]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut python = child.expect("it was there before");
    let mut input = python.stdin.take().expect("it is piped");
    let writing = serde_json::to_vec(secrets).expect("texts");
    let writer = std::thread::spawn(move || input.write_all(&writing));
    let output = python.wait_with_output().expect("python3 ends");
    writer.join().expect("it does not panic").expect("python3 reads all");
    assert!(output.status.success(), "python3 does not encode these: {secrets:?}");
    let lines = String::from_utf8(output.stdout).expect("JSON is UTF-8");
    lines.lines().map(|line| serde_json::from_str(line).expect("three texts")).collect()
}

/// Secrets of letters that encodings treat differently, the same ones each time.
fn random_secrets(count: usize) -> Vec<String> {
    let letters: Vec<char> = "aZ09\"\\/'<>&%+=?#:@!$*(),;-_.~^|`[]{} äß€😀\u{7f}\u{1}\u{2028}".chars().collect();
    let mut dice = fastrand::Rng::with_seed(3);
    let mut next = move |below: usize| dice.usize(..below);
    let mut secret = |_| -> String {
        // A secret is known without what is around it; one that begins and ends with a letter has nothing there.
        let middle: String = (0..2 + next(14)).map(|_| letters[next(letters.len())]).collect();
        format!("k{middle}q")
    };
    (0..count).map(&mut secret).collect()
}

#[test]
fn no_encoding_hides_a_secret() {
    let Some(python) = junit::python() else { return };
    let secrets = random_secrets(300);
    for [secret, name, text] in encoded(python, &secrets) {
        let redactor = Redactor::default();
        assert_eq!(redactor.add("it", &secret), Added::Kept);
        let said = redactor.text(&format!("before, {text} after")).into_owned();
        assert_eq!(said, "before, [redacted] after", "{secret:?} as {name}: {text:?}");
    }
}

#[test]
fn the_encodings_are_what_their_names_say() {
    let Some(python) = junit::python() else { return };
    let encoded = encoded(python, &["a \"b\"/<é>".to_owned()]);
    let text = |name: &str| {
        let found = encoded.iter().find(|[_, known, _]| known == name);
        found.map_or_else(|| panic!("no {name}"), |[_, _, text]| text.as_str())
    };
    assert_eq!(text("percent, unreserved characters"), "a%20%22b%22%2F%3C%C3%A9%3E");
    assert_eq!(text("percent, a form, small digits"), "a+%22b%22%2f%3c%c3%a9%3e");
    assert_eq!(text("JSON of Go"), r#"a \"b\"/\u003cé\u003e"#);
    assert_eq!(serde_json::from_str::<Value>(&format!("\"{}\"", text("JSON in ASCII"))).expect("JSON"), "a \"b\"/<é>");
    assert_eq!(text("HTML, every number"), "a&#32;&#34;b&#34;&#47;&#60;&#233;&#62;");
}
