//! A preflight for people: a line for each check, and what to do below those that want something done.

use crate::commands::preflight::check::{Check, Level};
use crate::commands::preflight::{Report, judge};
use crate::commands::terminal::plain;

/// All of it, with a newline at the end.
pub(crate) fn text(report: &Report) -> String {
    let mut text = title(report);
    let width = report.checks.iter().map(|check| check.id.len()).max().unwrap_or(0);
    for check in &report.checks {
        line(check, width, &mut text);
    }
    if !report.not_asked.is_empty() {
        let these = report.not_asked.join(", ");
        text.push_str(&format!("not looked at, because of what failed above: {these}\n"));
    }
    let [ok, warnings, failures] = judge::counts(&report.checks);
    let exit = report.exit_code;
    text.push_str(&format!(
        "{ok} ok, {}, {}; exit code {exit}\n",
        count(warnings, "warning"),
        count(failures, "failure")
    ));
    text
}

fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

fn title(report: &Report) -> String {
    let verb = report.verb.map_or_else(|| "any verb".to_owned(), |verb| format!("`dcctl {verb}`"));
    let instance = report.instance.as_deref().map(|name| format!(" of \"{}\"", plain(name))).unwrap_or_default();
    let context = report.kube_context.as_deref().map(|name| format!(" on {}", plain(name))).unwrap_or_default();
    format!("preflight for {verb}{instance}{context}\n")
}

fn line(check: &Check, width: usize, text: &mut String) {
    let word = match check.level {
        Level::Ok | Level::Warning => check.level.word().to_owned(),
        Level::Failure => check.level.word().to_uppercase(),
    };
    text.push_str(&format!("{word:<7}  {:<width$}  {}\n", check.id, plain(&check.message)));
    let below = " ".repeat(7 + 2 + width + 2);
    for cause in &check.causes {
        text.push_str(&format!("{below}because: {}\n", plain(cause)));
    }
    if let Some(fix) = &check.fix {
        text.push_str(&format!("{below}fix: {}\n", plain(fix)));
    }
}
