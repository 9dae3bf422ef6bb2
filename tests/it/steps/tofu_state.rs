//! OpenTofu's state: whose it is, what is lost with a killed apply, and what happens when it cannot be saved.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;

use dcctl::failure::Code;
use dcctl::step::{Severity, Update, kept, refuse_local_state};
use serde_json::json;

use crate::bed::Bed;
use crate::steps::bench::{done, failed};
use crate::steps::tofu::{apply, bench, root, state};

const THING: &str = "resource \"bed_thing\" \"a\" { name = \"a\" }\n";

/// A state backend on loopback that has no state and can save none.
fn backend_that_cannot_save() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream);
            let mut first = String::new();
            let (mut length, mut line) = (0, String::new());
            let _ = reader.read_line(&mut first);
            while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 2) {
                let lower = line.to_lowercase();
                length = lower.strip_prefix("content-length:").map_or(length, |size| size.trim().parse().unwrap_or(0));
                line.clear();
            }
            let mut body = vec![0; length];
            let _ = reader.read_exact(&mut body);
            let status = if first.starts_with("GET") { "404 Not Found" } else { "500 Broken" };
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            let _ = reader.get_mut().write_all(answer.as_bytes());
        }
    });
    port
}

#[tokio::test]
async fn a_state_that_cannot_be_saved_is_kept_and_stops_the_next_apply() {
    let bed = Bed::take();
    let port = backend_that_cannot_save();
    let backend = format!(
        "terraform {{\n  backend \"http\" {{\n    address = \"http://127.0.0.1:{port}/state\"\n    retry_max = 0\n  }}\n}}\n"
    );
    let mut bench = bench(&bed, &format!("{backend}{THING}")).await;
    let failure = failed(apply(&bench).await);
    let kept_at = bench.kit.state_dir.join("infrastructure.errored.tfstate");
    assert_eq!(failure.code, Code::InfrastructureFailed);
    let named = format!("OpenTofu could not save its state; it is kept in `{}`", kept_at.display());
    assert_eq!(failure.message, named);
    assert!(failure.causes.iter().any(|cause| cause.contains("Failed to save state")), "{failure:?}");
    let text = fs::read_to_string(&kept_at).expect("kept");
    assert!(text.contains("bed_thing"), "{text}");
    assert_eq!(fs::metadata(&kept_at).expect("kept").permissions().mode() & 0o777, 0o600);
    let first = kept(&bench.kit.run_dir, &bench.kit.state_dir).into_iter().next().expect("a file to look at");
    assert_eq!(first, ("the OpenTofu state that could not be saved".to_owned(), kept_at.clone()));

    bench.next_run("second");
    let refused = failed(apply(&bench).await);
    assert_eq!(refused.code, Code::StateErrored);
    assert!(refused.message.contains(&kept_at.display().to_string()), "{refused}");
}

#[tokio::test]
async fn a_backend_that_is_named_by_a_variable_keeps_a_state_for_each_instance() {
    let bed = Bed::take();
    let backend = "variable \"name\" { type = string }\nterraform {\n  backend \"kubernetes\" {\n    \
                   secret_suffix = var.name\n    namespace = \"default\"\n  }\n}\n\
                   output \"hidden\" {\n  value = var.name\n  sensitive = true\n}\n";
    let mut bench = bench(&bed, &format!("{backend}{THING}")).await;
    for name in ["one", "two"] {
        root(&mut bench).vars.insert("name".to_owned(), json!(name));
        bench.next_run(name);
        done(apply(&bench).await);
    }
    let secrets = bed.api().list("/api/v1/namespaces/default/secrets").expect("an answer");
    let names: Vec<_> = secrets.iter().map(|secret| secret["metadata"]["name"].as_str().unwrap_or_default()).collect();
    assert_eq!(names, ["tfstate-default-one", "tfstate-default-two"]);
    assert!(!state(&bench).exists());
}

#[tokio::test]
async fn the_state_of_another_cluster_or_instance_is_not_touched() {
    let bed = Bed::take();
    let mut bench = bench(&bed, THING).await;
    done(apply(&bench).await);
    let before = fs::read(state(&bench)).expect("there");
    bench.next_run("second");
    bench.kit.instance = Some("other".to_owned());
    let failure = failed(apply(&bench).await);
    assert_eq!(failure.code, Code::StateMissing);
    assert!(failure.message.ends_with("belongs to instance \"demo\""), "{failure}");

    bench.kit.instance = Some("demo".to_owned());
    let owner = bench.kit.state_dir.join("infrastructure.owner.json");
    let text = fs::read_to_string(&owner).expect("there");
    let mut json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    json["cluster"] = "11111111-2222-3333-4444-555555555555".into();
    fs::write(&owner, json.to_string()).expect("written");
    bench.next_run("third");
    let failure = failed(apply(&bench).await);
    assert!(failure.message.contains("of another cluster"), "{failure}");
    assert_eq!(fs::read(state(&bench)).expect("there"), before);
}

#[tokio::test]
async fn an_empty_state_file_is_warned_about() {
    let bed = Bed::take();
    let mut bench = bench(&bed, THING).await;
    fs::create_dir_all(&bench.kit.state_dir).expect("made");
    fs::write(state(&bench), "").expect("written");
    done(apply(&bench).await);
    let warned = |update: &Update| matches!(update, Update::Diagnostic { severity: Severity::Warning, summary, .. } if summary.ends_with("is empty"));
    assert!(bench.said().iter().any(warned));
}

#[tokio::test]
async fn a_shipped_lock_file_is_used_and_not_changed() {
    let bed = Bed::take();
    let mut bench = bench(&bed, THING).await;
    done(apply(&bench).await);
    bench.said();
    let chosen = bench.kit.state_dir.join("infrastructure.terraform.lock.hcl");
    let lock = root(&mut bench).dir.join(".terraform.lock.hcl");
    let text = fs::read_to_string(&chosen).expect("kept");
    fs::write(&lock, &text).expect("written");
    bench.next_run("second");
    done(apply(&bench).await);
    let said = bench.said();
    assert!(!said.iter().any(|update| matches!(update, Update::Note(note) if note.contains("chose"))), "{said:?}");
    assert_eq!(fs::read_to_string(&lock).expect("there"), text);

    fs::write(&lock, text.replace("0.1.0", "0.0.9")).expect("written");
    bench.next_run("third");
    let failure = failed(apply(&bench).await);
    assert_eq!(failure.code, Code::InfrastructureFailed);
    assert_eq!(failure.message, "OpenTofu could not initialise `infra/instance`");
    assert!(!failure.causes.is_empty(), "{failure:?}");
}

#[tokio::test]
async fn local_state_is_told_from_remote_state_before_anything_runs() {
    let bed = Bed::take();
    let mut bench = bench(&bed, THING).await;
    let failure = refuse_local_state(&bench.kit.bundle).expect_err("the state is local");
    assert_eq!(failure.code, Code::OptionInvalid);
    assert!(failure.message.starts_with("`infra/instance` keeps"), "{failure}");
    let backend: &Path = &root(&mut bench).dir.join("backend.tf");
    fs::write(backend, "terraform {\n  backend \"s3\" {}\n}\n").expect("written");
    assert_eq!(refuse_local_state(&bench.kit.bundle), Ok(()));
}
