//! The head of the page: how the run ended, why, what to do now, and what run it was.

use std::fmt::Write as _;

use crate::clock::rfc3339;
use crate::report::account::words::took;
use crate::report::account::{Account, Mood, Verdict};
use crate::report::html::{escaped, spoken};
use crate::report::recorded::Ending;

/// The class of the whole page.
pub(super) fn mood(verdict: &Verdict) -> &'static str {
    match verdict.mood {
        Mood::Good => "good",
        Mood::Calm => "calm",
        Mood::Bad => "bad",
        Mood::Unknown => "unknown",
    }
}

/// The picture of the mood; the heading says the same in words.
fn sign(mood: Mood) -> &'static str {
    match mood {
        Mood::Good => "M9 16.5l4.5 4.5L23 11.5",
        Mood::Calm => "M12 12h8v8h-8z",
        Mood::Bad => "M11 11l10 10M21 11L11 21",
        Mood::Unknown => "M12 13a4 4 0 1 1 5.5 3.7c-1 .5-1.5 1-1.5 2.3M16 23v.01",
    }
}

/// How it ended, why, what to do now.
pub(super) fn verdict(account: &Account, verdict: &Verdict, ending: &Ending) -> String {
    let mut html = String::new();
    let mut say = |text: &str| html.push_str(text);
    say(&format!(
        "<div class=\"head\"><svg class=\"sign\" viewBox=\"0 0 32 32\" aria-hidden=\"true\"><circle cx=\"16\" cy=\"16\" \
         r=\"15\"/><path d=\"{}\"/></svg><div><h1>{}</h1><p class=\"last\">{}</p></div></div>",
        sign(verdict.mood),
        escaped(&verdict.heading),
        escaped(&below_the_heading(account, verdict)),
    ));
    say("<ul class=\"chips\">");
    if let Some(code) = verdict.exit_code {
        say(&format!("<li class=\"strong\">exit code {code}</li>"));
    }
    if let Some(code) = &verdict.code {
        say(&format!("<li><code>{}</code></li>", escaped(code)));
    }
    say(&format!("<li>{}</li></ul>", spoken(&verdict.lock)));
    say("<div class=\"two\">");
    if let Some(why) = &verdict.why {
        say(&format!("<section class=\"why\"><h2>Why</h2><p>{}</p>", spoken(why)));
        say(&list("ul", verdict.causes.iter()));
        say("</section>");
    }
    if !verdict.to_do.is_empty() {
        say("<section class=\"now\"><h2>What to do now</h2>");
        say(&list("ol", verdict.to_do.iter()));
        say("</section>");
    }
    for (name, lines) in &verdict.lists {
        say(&format!("<section class=\"names\"><h2>{name}</h2>"));
        say(&list("ul", lines.iter()));
        say("</section>");
    }
    say("</div>");
    let remarks = ending.remarks();
    if !remarks.is_empty() {
        say("<section class=\"remarks\"><h2>Of the journal</h2>");
        say(&list("ul", remarks.iter()));
        say("</section>");
    }
    html
}

/// When and where it was, or what was seen last.
fn below_the_heading(account: &Account, verdict: &Verdict) -> String {
    let Some(last) = &account.last else { return String::new() };
    if account.verdict.is_none() {
        return format!("last seen {} into the run, at {}", took(last.at), rfc3339(last.time));
    }
    let place =
        account.started.as_ref().and_then(|started| started.kube_context.as_ref().or(started.lock_dir.as_ref()));
    let place = place.map(|place| format!("on {place}, ")).unwrap_or_default();
    format!("{place}after {}, at {}", took(verdict.took), rfc3339(last.time))
}

fn list<'a>(element: &str, lines: impl Iterator<Item = &'a String>) -> String {
    let items = lines.map(|line| format!("<li>{}</li>", spoken(line))).collect::<Vec<_>>().concat();
    if items.is_empty() { items } else { format!("<{element}>{items}</{element}>") }
}

/// What run it was: names and places.
pub(super) fn facts(account: &Account, ending: &Ending) -> String {
    let mut html = String::new();
    let mut row = |name: &str, value: &str| {
        let shown = escaped(value);
        let shown = match name {
            // A link of any other kind could be a script.
            "job" if value.starts_with("https://") => format!("<a href=\"{shown}\" rel=\"noreferrer\">{shown}</a>"),
            _ => shown.into_owned(),
        };
        write!(html, "<div><dt>{name}</dt><dd>{shown}</dd></div>").expect("a String takes everything");
    };
    row("run", &ending.run);
    if let Some(began) = account.began() {
        row("began", &rfc3339(began));
    }
    if let Some(started) = &account.started {
        let mut known = |name, value: &Option<String>| {
            if let Some(value) = value {
                row(name, value);
            }
        };
        known("cluster", &started.kube_context);
        known("API server", &started.server);
        known("lock folder", &started.lock_dir);
        known("bundle", &started.bundle.as_ref().map(|bundle| format!("{} {}", bundle.name, bundle.version)));
        known("holder", &started.holder);
        let ci = started.ci.as_ref();
        known("started by", &ci.map(|ci| ci.system.clone()));
        known("job", &ci.and_then(|ci| ci.job_url.clone()));
        known("run directory", &started.run_dir);
        let budget = started.stop_budget.as_ref();
        known("a stop may take", &budget.map(|budget| format!("{}s ({})", budget.seconds, budget.source)));
        row("dcctl", &started.dcctl);
    }
    html
}
