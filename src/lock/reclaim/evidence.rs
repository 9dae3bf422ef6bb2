//! What a person is shown before they decide that a run is gone: everything that is known, and what is not.
//!
//! The three lines of the documents come first. Below them is what can be checked: the job, the pod, the last will, and
//! until when a tool of the holder may still be at work. A killed run's tools run to their end by themselves, so a lock
//! whose run is gone does not mean that nothing of it writes any more.

use std::fmt::Write as _;

use jiff::Timestamp;

use crate::clock;
use crate::lock::message::plain;
use crate::lock::observation::Observation;
use crate::lock::place::Place;
use crate::lock::status::{Status, status};

/// What became of the holder's pod, as far as this cluster knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pod {
    /// It is there.
    There {
        /// `Running`, `Pending`, …
        phase: String,
    },
    /// A pod of this name is there, and it is another one.
    Another,
    /// No pod of this name is there.
    NotThere,
    /// It cannot be told.
    Unknown {
        /// Why.
        why: String,
    },
}

/// The question, after everything that is known.
pub const QUESTION: &str = "Type the holder identity above to take the lock, or anything else to abort:\n> ";

/// Everything that is known about the holder, a fact a line. `pod` is what was found out about the pod that it names.
pub fn evidence(seen: &Observation, pod: Option<&Pod>, place: &Place, wall: Timestamp) -> String {
    let known = status(Some(seen), place, wall);
    let mut text = String::new();
    for (name, value) in lines(seen, &known, pod, place, wall) {
        writeln!(text, "  {:<11}{value}", format!("{name}:")).expect("a String takes everything");
    }
    text
}

fn lines(
    seen: &Observation,
    known: &Status,
    pod: Option<&Pod>,
    place: &Place,
    wall: Timestamp,
) -> Vec<(&'static str, String)> {
    let holder = known.holder.as_ref().map(|holder| holder.identity.clone()).unwrap_or_default();
    let instance = known.work.instance.clone().unwrap_or_else(|| no_instance(place).to_owned());
    let mut lines = vec![("held by", holder), ("instance", instance), ("renewed", renewed(seen, wall))];
    lines.extend(folder(place).map(|path| ("lock", path)));
    lines.extend(known.looks_said().map(|said| ("looks", said)));
    lines.extend(command(known).map(|said| ("command", said)));
    lines.extend(known.work.job_url.clone().map(|url| ("job", url)));
    lines.extend(known.work.pod.as_ref().zip(pod).map(|(name, pod)| ("pod", pod_said(name, pod))));
    lines.extend(known.last_will_said().map(|said| ("last will", said)));
    lines.push(("tools", tools(known)));
    lines
}

fn no_instance(place: &Place) -> &'static str {
    match place {
        Place::Cluster(_) => "none: it works on the cluster itself",
        Place::Folder(_) => "none",
    }
}

/// The file that is the lock, where it is one: a person may look at it, and at who else uses the folder.
fn folder(place: &Place) -> Option<String> {
    match place {
        Place::Cluster(_) => None,
        Place::Folder(_) => Some(place.lease_path()),
    }
}

fn renewed(seen: &Observation, wall: Timestamp) -> String {
    match seen.age(wall) {
        Some(age) => format!("{} ago", clock::human(age)),
        None => "it does not say when".to_owned(),
    }
}

fn command(known: &Status) -> Option<String> {
    let work = &known.work;
    let verb = work.verb.as_ref()?;
    let step = work.step.as_ref().map(|step| format!(", at \"{step}\"")).unwrap_or_default();
    let ci = work.ci.as_ref().map(|ci| format!(", in {ci}")).unwrap_or_default();
    Some(format!("{verb}{step}{ci}"))
}

fn pod_said(name: &str, pod: &Pod) -> String {
    match pod {
        Pod::There { phase } => {
            format!("{name} is there ({}): what runs in it may well be alive", plain(phase))
        }
        Pod::Another => format!("{name} is gone: the pod that has its name now is another one"),
        Pod::NotThere => format!("{name} is not in this cluster: it is gone, or it belongs to another cluster"),
        Pod::Unknown { why } => format!("whether {name} is still there cannot be told: {}", plain(why)),
    }
}

/// Until when a tool of the holder may still be finishing. No limit is ever known: what was started runs to its end by
/// itself when the run is killed, and none of the tools limits the whole of it (Helm's time-out is for each wait).
fn tools(known: &Status) -> String {
    let at_work = match &known.last_will.children {
        Some(children) => format!("{children} was at work at its last renewal, and may still be"),
        None => "one may still be at work".to_owned(),
    };
    format!("{at_work}; no limit is known: {}", whom_to_look_for(known))
}

fn whom_to_look_for(known: &Status) -> String {
    let process = known.holder.as_ref().and_then(|holder| Some((holder.pid?, holder.host.as_deref()?)));
    match process {
        Some((pid, host)) => format!("look for pid {pid} on host {host}, and for what it started"),
        None => "ask whoever this holder is".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::lock::record::Record;

    fn seen(change: impl FnOnce(&mut Value)) -> Observation {
        let mut raw = json!({
            "metadata": {
                "uid": "u", "resourceVersion": "1",
                "annotations": { "core.devicechain.io/instance": "prod" },
            },
            "spec": {
                "holderIdentity": "alice@build-01/48213/9f3c1a20b7e4d5c6", "leaseDurationSeconds": 60,
                "renewTime": "2026-11-30T00:03:48.000000Z",
            },
        });
        change(&mut raw);
        Observation::new(Record::from_json(raw).expect("whole"))
    }

    fn note(raw: &mut Value, key: &str, value: &str) {
        raw["metadata"]["annotations"][format!("dcctl.devicechain.io/{key}")] = json!(value);
    }

    fn place() -> Place {
        Place::Cluster("prod-cluster".to_owned())
    }

    fn wall() -> Timestamp {
        "2026-11-30T00:10:00Z".parse().expect("a time")
    }

    fn line(text: &str, name: &str) -> String {
        let label = format!("  {:<11}", format!("{name}:"));
        let line = text.lines().find_map(|line| line.strip_prefix(&label));
        line.unwrap_or_else(|| panic!("no {name} in\n{text}")).to_owned()
    }

    #[test]
    fn the_lines_of_the_documents_come_first_and_word_by_word() {
        let text = evidence(&seen(|_| {}), None, &place(), wall());
        let documented =
            "  held by:   alice@build-01/48213/9f3c1a20b7e4d5c6\n  instance:  prod\n  renewed:   6m12s ago\n";
        assert!(text.starts_with(documented), "{text}");
        let question = "Type the holder identity above to take the lock, or anything else to abort:\n> ";
        assert_eq!(QUESTION, question);
        assert!(line(&text, "looks").starts_with("stale: "), "{text}");
    }

    #[test]
    fn everything_that_can_be_checked_is_below_them() {
        let told = seen(|raw| {
            for (key, value) in [
                ("verb", "bootstrap"),
                ("step", "Apply infrastructure"),
                ("ci", "GitLab CI"),
                ("job-url", "https://forge.example/job/7"),
                ("pod-namespace", "runners"),
                ("pod-name", "runner-0"),
                ("stop-requested", "2026-11-30T00:03:40Z"),
                ("stop-signal", "SIGTERM"),
            ] {
                note(raw, key, value);
            }
        });
        let text = evidence(&told, Some(&Pod::NotThere), &place(), wall());
        assert_eq!(line(&text, "command"), "bootstrap, at \"Apply infrastructure\", in GitLab CI");
        assert_eq!(line(&text, "job"), "https://forge.example/job/7");
        assert_eq!(
            line(&text, "pod"),
            "runners/runner-0 is not in this cluster: it is gone, or it belongs to another cluster"
        );
        assert_eq!(line(&text, "last will"), "a stop was requested at 2026-11-30T00:03:40Z by SIGTERM");
    }

    #[test]
    fn each_fate_of_the_pod_is_told_apart() {
        let named = seen(|raw| note(raw, "pod-name", "runner-0"));
        let said = |pod: Pod| line(&evidence(&named, Some(&pod), &place(), wall()), "pod");
        let there = Pod::There { phase: "Running".to_owned() };
        assert_eq!(said(there), "runner-0 is there (Running): what runs in it may well be alive");
        assert_eq!(said(Pod::Another), "runner-0 is gone: the pod that has its name now is another one");
        let unknown = Pod::Unknown { why: "pods is forbidden".to_owned() };
        assert_eq!(said(unknown), "whether runner-0 is still there cannot be told: pods is forbidden");
    }

    #[test]
    fn a_limit_for_the_tools_is_named_only_where_the_last_will_sets_one() {
        let said = |changes: &[(&str, &str)]| {
            let told = seen(|raw| changes.iter().for_each(|(key, value)| note(raw, key, value)));
            line(&evidence(&told, None, &place(), wall()), "tools")
        };
        let look = "no limit is known: look for pid 48213 on host build-01, and for what it started";
        assert_eq!(said(&[]), format!("one may still be at work; {look}"));
        assert_eq!(
            said(&[("children", "tofu apply (process 99)")]),
            format!("tofu apply (process 99) was at work at its last renewal, and may still be; {look}")
        );
        // When a stop's budget ends is no limit: nobody is left to end the tool then.
        assert!(said(&[("stop-deadline", "2026-11-30T00:23:40Z")]).ends_with(look));
    }

    #[test]
    fn a_holder_of_another_form_and_a_lease_without_times_are_shown_as_they_are() {
        let odd = seen(|raw| {
            raw["spec"] = json!({ "holderIdentity": "a-controller\u{1b}[2J" });
            raw["metadata"]["annotations"] = json!({});
        });
        let text = evidence(&odd, None, &place(), wall());
        assert_eq!(line(&text, "held by"), "a-controller\u{fffd}[2J");
        assert_eq!(line(&text, "instance"), "none: it works on the cluster itself");
        assert_eq!(line(&text, "renewed"), "it does not say when");
        assert!(line(&text, "tools").ends_with("no limit is known: ask whoever this holder is"));
    }

    #[test]
    fn a_lock_in_a_folder_is_named_by_its_file() {
        let command = seen(|raw| raw["metadata"]["annotations"] = json!({}));
        let text = evidence(&command, None, &Place::Folder("/srv/lock".into()), wall());
        assert_eq!(
            (line(&text, "lock"), line(&text, "instance")),
            ("/srv/lock/dcctl.lease.json".to_owned(), "none".to_owned())
        );
        assert!(text.starts_with("  held by:   alice@build-01/"), "{text}");
    }
}
