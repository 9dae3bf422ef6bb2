//! What is found and replaced, whoever spelled it.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};

use super::*;

fn knowing(values: &[&str]) -> Redactor {
    let redactor = Redactor::default();
    for value in values {
        assert_eq!(redactor.add("a", value), Added::Kept, "{value}");
    }
    redactor
}

/// What others print of a secret: Python 3.11, Go 1.26, Node 20 and bash 5.2 did, by the call that is named.
const SPELLED: &[(&str, &[(&str, &str)])] = &[
    (
        "p\"a'ss\\w/ö<r>&d 😀%7$+~*",
        &[
            ("json.dumps", r#"p\"a'ss\\w/\u00f6<r>&d \ud83d\ude00%7$+~*"#),
            ("json.dumps, twice", r#"p\\\"a'ss\\\\w/\\u00f6<r>&d \\ud83d\\ude00%7$+~*"#),
            ("json.Marshal", r#"p\"a'ss\\w/ö\u003cr\u003e\u0026d 😀%7$+~*"#),
            ("json.Marshal, twice", r#"p\\\"a'ss\\\\w/ö\\u003cr\\u003e\\u0026d 😀%7$+~*"#),
            ("JSON with its slashes escaped", r#"p\"a'ss\\w\/\u00f6<r>&d \ud83d\ude00%7$+~*"#),
            ("quote", "p%22a%27ss%5Cw/%C3%B6%3Cr%3E%26d%20%F0%9F%98%80%257%24%2B~%2A"),
            ("quote, safe=''", "p%22a%27ss%5Cw%2F%C3%B6%3Cr%3E%26d%20%F0%9F%98%80%257%24%2B~%2A"),
            ("quote, in small letters", "p%22a%27ss%5cw%2f%c3%b6%3cr%3e%26d%20%f0%9f%98%80%257%24%2b~%2a"),
            ("quote_plus", "p%22a%27ss%5Cw%2F%C3%B6%3Cr%3E%26d+%F0%9F%98%80%257%24%2B~%2A"),
            ("urlencode of a form", "p%22a%27ss%5Cw%2F%C3%B6%3Cr%3E%26d+%F0%9F%98%80%257%24%2B%7E*"),
            ("url.PathEscape", "p%22a%27ss%5Cw%2F%C3%B6%3Cr%3E&d%20%F0%9F%98%80%257$+~%2A"),
            ("url.User", "p%22a%27ss%5Cw%2F%C3%B6%3Cr%3E&d%20%F0%9F%98%80%257$+~%2A"),
            (
                "quote, twice",
                "p%2522a%2527ss%255Cw/%25C3%25B6%253Cr%253E%2526d%2520%25F0%259F%2598%2580%25257%2524%252B~%252A",
            ),
            ("html.escape", "p&quot;a&#x27;ss\\w/ö&lt;r&gt;&amp;d 😀%7$+~*"),
            ("html.EscapeString", "p&#34;a&#39;ss\\w/ö&lt;r&gt;&amp;d 😀%7$+~*"),
            ("xmlcharrefreplace", "p&#34;a&#39;ss\\w/&#246;&lt;r&gt;&amp;d &#128512;%7$+~*"),
            ("shlex.quote", "p\"a'\"'\"'ss\\w/ö<r>&d 😀%7$+~*"),
            ("single quotes of a shell", "p\"a'\\''ss\\w/ö<r>&d 😀%7$+~*"),
            ("printf %q of bash", "p\\\"a\\'ss\\\\w/ö\\<r\\>\\&d\\ 😀%7\\$+~\\*"),
            ("printf %q of bash, LC_ALL=C", "p\"a\\'ss\\\\w/\\303\\266<r>&d \\360\\237\\230\\200%7$+~*"),
            ("%q", "p\\\"a'ss\\\\w/ö<r>&d 😀%7$+~*"),
            ("%+q", "p\\\"a'ss\\\\w/\\u00f6<r>&d \\U0001f600%7$+~*"),
            ("repr of its bytes", "p\"a\\'ss\\\\w/\\xc3\\xb6<r>&d \\xf0\\x9f\\x98\\x80%7$+~*"),
            (
                "jsonencode in urlencode",
                "p%5C%22a%27ss%5C%5Cw%2F%C3%B6%5Cu003cr%5Cu003e%5Cu0026d+%F0%9F%98%80%257%24%2B~%2A",
            ),
            ("yaml, single quotes", "p\"a''ss\\w/ö<r>&d 😀%7$+~*"),
            ("csv", "p\"\"a'ss\\w/ö<r>&d 😀%7$+~*"),
            ("JSEscapeString", r#"p\"a\'ss\\w/ö\u003Cr\u003E\u0026d 😀%7$+~*"#),
            ("encodeURI", "p%22a'ss%5Cw/%C3%B6%3Cr%3E&d%20%F0%9F%98%80%257$+~*"),
            ("encodeURIComponent", "p%22a'ss%5Cw%2F%C3%B6%3Cr%3E%26d%20%F0%9F%98%80%257%24%2B~*"),
            ("escape", "p%22a%27ss%5Cw/%F6%3Cr%3E%26d%20%uD83D%uDE00%257%24+%7E*"),
            ("hex", "7022612773735c772fc3b63c723e266420f09f98802537242b7e2a"),
        ],
    ),
    ("${x}%{y}", &[("a string of HCL", "$${x}%%{y}"), ("quote", "%24%7Bx%7D%25%7By%7D")]),
    ("a b  c\td", &[("quote_plus", "a+b++c%09d"), ("json.dumps", r"a b  c\td"), ("a sentence", "a b c d")]),
];

#[test]
fn every_spelling_is_found_and_nothing_beside_it() {
    for (secret, spelled) in SPELLED {
        let redactor = knowing(&[secret]);
        for (by, text) in *spelled {
            assert_eq!(redactor.text(&format!("x={text}; y")), "x=[redacted]; y", "{by}");
            assert_eq!(redactor.text(&format!("{text}{text}")), "[redacted]", "{by}");
        }
    }
}

#[test]
fn a_value_is_replaced_wherever_it_stands() {
    let redactor = knowing(&["hunter2"]);
    assert_eq!(redactor.text("hunter2, hunter2hunter2 and hunter"), "[redacted], [redacted] and hunter");
    assert!(matches!(redactor.text("nothing here"), Cow::Borrowed(_)));
    assert_eq!(redactor.text("ühunter2ü\u{fffd}"), "ü[redacted]ü\u{fffd}");
}

#[test]
fn overlapping_secrets_leave_no_byte() {
    let redactor = knowing(&["abcdef", "defghi", "cdef", "ghijkl"]);
    assert_eq!(redactor.text("xabcdefghijklx"), "x[redacted]x");
    assert_eq!(redactor.text("cdefg abcdef"), "[redacted]g [redacted]");
}

#[test]
fn short_values_are_not_searched_for_and_that_is_said() {
    let redactor = Redactor::default();
    for short in ["", "abc", "  a \n", "äöü"] {
        assert_eq!(redactor.add("short", short), Added::TooShort);
    }
    assert_eq!(redactor.text("abc"), "abc");
}

#[test]
fn each_line_of_a_longer_secret_is_one() {
    let key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADAN\n  indented line\nab\n-----END PRIVATE KEY-----\n";
    let redactor = knowing(&[key]);
    assert_eq!(redactor.text("> MIIEvQIBADAN"), "> [redacted]");
    assert_eq!(redactor.text("indented line"), "[redacted]");
    assert_eq!(redactor.text("-----BEGIN PRIVATE KEY-----"), "-----BEGIN PRIVATE KEY-----");
    assert_eq!(redactor.text(&serde_json::to_string(key).expect("a text")), "\"[redacted]\\n\"");
    assert_eq!(redactor.text(&key.replace('\n', "\r\n")), "[redacted]\r\n");
}

#[test]
fn colour_in_the_middle_of_a_secret_hides_nothing() {
    let redactor = knowing(&["hunter2"]);
    for text in [
        "say hun\u{1b}[1mter2 now",
        "say h\u{1b}[31mu\u{1b}[0mnter2 now",
        "say hunter\u{0}2 now",
        "say hun\u{1b}]8;;http://x\u{7}ter2 now",
        r"say h\u001b[1munter2 now",
        r"say h\x1b[1munter2 now",
    ] {
        assert_eq!(redactor.text(text), "say [redacted] now", "{text:?}");
    }
    // A secret that looks like colour itself.
    let redactor = knowing(&[r"C:\e[1mhunter2"]);
    assert_eq!(redactor.text(r"say C:\e[1mhunter2 now"), "say [redacted] now");
}

/// Text broken into lines of this many columns, as `base64` and `xxd` do.
fn wrapped(text: &str, columns: usize) -> Vec<&str> {
    (0..text.len()).step_by(columns).map(|from| &text[from..text.len().min(from + columns)]).collect()
}

#[test]
fn base64_is_found_alone_padded_and_inside_something_longer() {
    let secret = "correct horse battery staple";
    let redactor = knowing(&[secret]);
    assert_eq!(redactor.text(&STANDARD.encode(secret)), "[redacted]");
    for before in ["", "a", "ab", "abc", "user:"] {
        for after in ["", "\n", "xy", "xyz"] {
            let said = redactor.text(&STANDARD.encode(format!("{before}{secret}{after}"))).into_owned();
            assert!(said.contains(REPLACEMENT) && said.len() < 30, "{before:?} {after:?}: {said}");
        }
    }
    let odd = "?>?>?>~~~öö";
    let redactor = knowing(&[odd]);
    assert!(STANDARD.encode(odd).contains(['+', '/']));
    let in_a_url = STANDARD.encode(odd).replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    for text in [STANDARD.encode(odd), URL_SAFE.encode(odd), in_a_url, STANDARD.encode(odd).replace('/', "\\/")] {
        assert_eq!(redactor.text(&text), "[redacted]", "{text}");
    }
}

#[test]
fn encoded_text_that_was_broken_into_lines_keeps_less_than_six_bytes_of_the_secret() {
    let secret = "correct horse battery staple, and then quite a lot more of the same; up to the hundred-and-fiftieth byte, which is far beyond what fits on a line of base64";
    let redactor = knowing(&[secret]);
    for before in 0..120 {
        let file = format!("{}{secret}{}", "-".repeat(before), "-".repeat(90));
        for (encoded, columns) in [(STANDARD.encode(&file), 76), (STANDARD.encode(&file), 64), (hex(&file), 60)] {
            let bits = if columns == 60 { 4 } else { 6 };
            let (first, last) = (before * 8 / bits, ((before + secret.len()) * 8).div_ceil(bits));
            let lines = wrapped(&encoded, columns);
            for (number, line) in lines.iter().enumerate() {
                let begin = number * columns;
                let of_secret = last.min(begin + line.len()).saturating_sub(first.max(begin));
                let said = redactor.text(line);
                let kept = line.len() - said.replace(REPLACEMENT, "").len();
                assert!(of_secret - of_secret.min(kept) < 6 * 8 / bits + 4, "{before} {columns}: {line} became {said}");
            }
        }
    }
}

fn hex(text: &str) -> String {
    text.bytes()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)]))
        .collect()
}

#[test]
fn the_armour_of_another_key_is_not_taken_for_this_one() {
    let key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG\n-----END PRIVATE KEY-----\n";
    let redactor = knowing(&[key]);
    let other = STANDARD.encode("-----BEGIN PRIVATE KEY-----\nQk9PS0VZ\n-----END PRIVATE KEY-----\n");
    assert_eq!(redactor.text(&other), other);
    assert!(!redactor.text(&STANDARD.encode(format!("x{key}"))).contains(&STANDARD.encode("MIIEvQIB")[..8]));
}

#[test]
fn a_cut_never_divides_a_secret() {
    let redactor = knowing(&["hunter2", "ter2abcd", "pass\"word"]);
    for (text, limit, cut) in [
        ("say hunter2 now", 7, 4),
        ("say hunter2abcd", 12, 4),
        ("say hunt", 8, 4),
        ("say something else", 8, 8),
        ("done.", 80, 5),
        ("say hun\u{1b}[1mter2 now", 12, 4),
        ("say hun\u{1b}[1", 10, 4),
        (r"say pass\\\u0022word now", 11, 4),
        (r"say pass\", 9, 4),
        (r"say h\u001b[1munter2 now", 18, 4),
        ("say aHVudGVyMg== now", 8, 4),
    ] {
        assert_eq!(redactor.safe_cut(text.as_bytes(), limit), cut, "{text:?}");
    }
}

#[test]
fn whatever_is_cut_nothing_is_left_of_it() {
    let secret = "pa\"ss/wörd <4711>";
    let redactor = knowing(&[secret]);
    let spelled = [
        secret.to_owned(),
        serde_json::to_string(secret).expect("a text"),
        STANDARD.encode(secret),
        "pa\u{1b}[1m\"ss/w\u{1b}[0mörd <4711>".to_owned(),
        r"pa\u001b[1m\u0022ss\/w\u00f6rd \u003c4711\u003e".to_owned(),
    ];
    for text in &spelled {
        let line = format!("before {text} after it");
        let whole = without_noise(&redactor.text(&line)).into_owned();
        for limit in 1..line.len() {
            let cut = redactor.safe_cut(line.as_bytes(), limit);
            if !line.is_char_boundary(cut) {
                continue;
            }
            let parts = [&line[..cut], &line[cut..]].map(|part| without_noise(&redactor.text(part)).into_owned());
            assert_eq!(parts.concat(), whole, "{line:?} cut at {cut}");
        }
    }
}

#[test]
fn nothing_prints_a_secret() {
    let redactor = knowing(&["hunter2"]);
    let secret = Secret::from("hunter2".to_owned());
    assert_eq!(format!("{secret} {secret:?} {redactor:?}"), "[redacted] [redacted] Redactor { names: {\"a\"}, .. }");
}

#[test]
fn random_texts_never_keep_an_occurrence() {
    // A small alphabet makes secrets overlap in every way that they can.
    let mut dice = fastrand::Rng::with_seed(1);
    let mut letter = move || dice.char('x'..='z');
    for round in 0..200 {
        let secrets: Vec<String> = (4..7).map(|length| (0..length).map(|_| letter()).collect()).collect();
        let redactor = knowing(&secrets.iter().map(String::as_str).collect::<Vec<_>>());
        for _ in 0..10 {
            let text: String = (0..60).map(|_| letter()).collect();
            let clean = redactor.text(&text);
            assert!(secrets.iter().all(|secret| !clean.contains(secret)), "round {round}: {secrets:?} in {text}");
        }
    }
}
