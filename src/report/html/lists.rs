//! Resources and diagnostics.

use std::fmt::Write as _;

use crate::event::Severity;
use crate::report::account::words::took;
use crate::report::account::{Account, Said, ThingState};
use crate::report::html::escaped;

/// How many resources have a row; a browser is slow with more, and the log has them all.
const RESOURCES: usize = 1_000;
/// How many diagnostics are shown in full.
const DIAGNOSTICS: usize = 200;

/// The table of resources, objects and checks.
pub(super) fn resources(account: &Account) -> String {
    let things = account.things();
    if things.is_empty() {
        return "<p class=\"none\">No resource, object or check is in the journal.</p>".to_owned();
    }
    let mut html = String::from(
        "<div class=\"scroll\" role=\"region\" aria-label=\"Table of resources\" tabindex=\"0\"><table id=\"things\"><thead>\
         <tr><th scope=\"col\">Address</th><th scope=\"col\">Action</th><th scope=\"col\">Status</th>\
         <th scope=\"col\" class=\"number\">Time</th><th scope=\"col\">Step</th></tr></thead><tbody>",
    );
    for (step, thing) in things.iter().take(RESOURCES) {
        let class = match thing.state {
            ThingState::Failed => "failed",
            ThingState::Started | ThingState::Waiting(_) => "open",
            ThingState::Planned | ThingState::Would => "unbegun",
            ThingState::Done => "done",
        };
        let ms = thing.took.map_or(0, |time| time.as_millis());
        let time = thing.took.map(took).unwrap_or_default();
        write!(
            html,
            "<tr class=\"{class}\"><th scope=\"row\"><code>{}</code></th><td>{}</td><td class=\"status\">{}</td>\
             <td class=\"number\" data-ms=\"{ms}\">{time}</td><td>{}</td></tr>",
            escaped(&thing.name),
            escaped(&thing.action),
            escaped(&thing.state.said()),
            escaped(&step.title),
        )
        .expect("a String takes everything");
    }
    html.push_str("</tbody></table></div>");
    let more = things.len().saturating_sub(RESOURCES);
    if more > 0 {
        write!(html, "<p class=\"none\">{more} more are not in this table; the search of the log finds them.</p>")
            .expect("a String takes everything");
    }
    html
}

/// The diagnostics, errors first.
pub(super) fn diagnostics(account: &Account) -> String {
    let is_error = |said: &&Said| said.diagnostic.severity == Severity::Error;
    let (errors, warnings): (Vec<_>, Vec<_>) = account.diagnostics.iter().partition(is_error);
    if errors.is_empty() && warnings.is_empty() {
        return "<p class=\"none\">Nothing is wrong that a tool, the API server or dcctl has said.</p>".to_owned();
    }
    let more = account.diagnostics.len().saturating_sub(DIAGNOSTICS);
    let mut html: String =
        errors.into_iter().chain(warnings).take(DIAGNOSTICS).map(|said| diagnostic(account, said)).collect();
    if more > 0 {
        write!(html, "<p class=\"none\">{more} more are not shown here; the search of the log finds them.</p>")
            .expect("a String takes everything");
    }
    html
}

fn diagnostic(account: &Account, said: &Said) -> String {
    let diagnostic = &said.diagnostic;
    let (class, word) = match diagnostic.severity {
        Severity::Error => ("failed", "Error"),
        Severity::Warning => ("stopped", "Warning"),
    };
    let mut html = format!(
        "<article class=\"said {class}\"><h3><span class=\"word\">{word}</span> {}</h3><p class=\"of\">{}",
        escaped(&diagnostic.summary),
        escaped(&diagnostic.origin)
    );
    let mut about = |text: &str| {
        write!(html, " · {}", escaped(text)).expect("a String takes everything");
    };
    if let Some(step) = said.step.and_then(|index| account.steps.get(index)) {
        about(&step.title);
    }
    for text in [&diagnostic.code, &diagnostic.address, &diagnostic.source].into_iter().flatten() {
        about(text);
    }
    let (seq, at) = (said.seq, took(said.at));
    write!(html, " · <a href=\"#e{seq}\">at {at} in the log</a></p>").expect("a String takes everything");
    if !diagnostic.detail.is_empty() {
        write!(html, "<pre>{}</pre>", escaped(diagnostic.detail.trim_end())).expect("a String takes everything");
    }
    html.push_str("</article>");
    html
}

/// The steps to choose one from.
pub(super) fn step_options(account: &Account) -> String {
    let option = |(index, title): (usize, &str)| format!("<option value=\"{index}\">{}</option>", escaped(title));
    account.steps.iter().map(|step| step.title.as_str()).enumerate().map(option).collect()
}
